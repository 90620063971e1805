"""Where a model's URL leads: a directory that is called like a bucket, the host's own store, or an S3 service."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from halimede.hosting.errors import ApiError
from halimede.hosting.store.directory_place import DirectoryPlace
from halimede.hosting.store.endpoints import check_endpoint
from halimede.hosting.store.extraction import extract
from halimede.hosting.store.object_store import ObjectStore
from halimede.hosting.store.offers import OfferTokens
from halimede.hosting.store.places import LocalPlace, Location, Place, failed, location_of, too_slow
from halimede.hosting.store.records import SmallPut, StoredObject
from halimede.hosting.store.source import ObjectInfo, Offer, OnProgress
from halimede.hosting.store.store_place import StorePlace

if TYPE_CHECKING:
    from halimede.hosting.store.remote_place import RemotePlace

_EXTRACTIONS = 8
"""So many at a time; the others wait."""


def model_source(
    store: ObjectStore,
    tokens: OfferTokens,
    s3_endpoint: str = "",
    directories: Mapping[str, Path] | None = None,
) -> "Places":
    """Fetches models from wherever their URLs lead.

    Args:
        store: the host's own store.
        tokens: with which other machines may fetch what is here.
        s3_endpoint: the URL of an S3 service that has the buckets which the store has not; ``aws`` for AWS's; "" for
            none.
        directories: bucket → directory whose files are its objects; these come first.

    Raises:
        ApiError: the endpoint is none.
    """
    remote = _remote(s3_endpoint) if s3_endpoint else None
    aliases = {bucket: DirectoryPlace(path) for bucket, path in (directories or {}).items()}
    return Places(StorePlace(store), tokens, remote, aliases)


def _remote(endpoint: str) -> "RemotePlace":
    check_endpoint(endpoint)
    from halimede.hosting.store.remote_place import RemotePlace

    return RemotePlace(endpoint)


class Places:
    """All places. Lives on the event loop."""

    def __init__(
        self,
        store: StorePlace,
        tokens: OfferTokens,
        remote: "RemotePlace | None",
        aliases: Mapping[str, LocalPlace],
    ) -> None:
        self._store = store
        self._tokens = tokens
        self._remote = remote
        self._aliases = aliases
        self._threads = ThreadPoolExecutor(_EXTRACTIONS, "halimede-models")

    def of(self, account: str) -> "AccountPlaces":
        """What an account may read of them (`ModelSource`)."""
        return AccountPlaces(self, account)

    def place(self, location: Location) -> Place:
        """Where an object is, or would be.

        Raises:
            ApiError: nothing here has such a bucket.
        """
        return self._local(location) or self._elsewhere(location)

    def is_in_store(self, bucket: str) -> bool:
        """Whether a bucket is one of the host's own store."""
        return bucket not in self._aliases and self._store.has(bucket)

    async def write_small(self, account: str, puts: Sequence[SmallPut]) -> list[ApiError | None]:
        """Put an account's objects of at most `SMALL_BYTES` into the host's own store, with one write to the disk.

        Returns:
            For each None, or why it is not put.
        """
        return await self._store.write_small(account, puts)

    async def describe(self, location: Location) -> ObjectInfo:
        """What is known of an object.

        Raises:
            ApiError: it is not there or cannot be read; the text names bucket and key, and what to check.
        """
        place = self.place(location)
        return await place.describe(location)

    async def offer(self, location: Location) -> Offer:
        """Let other machines fetch an object as it is now; from where it is, not through this host.

        Raises:
            ApiError: as `describe` does.
        """
        place = self._local(location)
        if place is None:
            return await self._elsewhere(location).offer(location)
        info = await place.describe(location)
        return self._tokens.offer(location, info.size, info.etag)

    async def open(self, location: Location) -> tuple[StoredObject, FileIO]:
        """An object that is on this machine, and a file with its bytes, which the caller closes.

        Raises:
            ApiError: it is not there, or cannot be read.
        """
        place = self._local(location)
        if place is None:
            raise _no_bucket(location)
        return await place.open(location)

    async def fetch_model(
        self, location: Location, directory: Path, timeout_s: float, on_progress: OnProgress
    ) -> int:
        """Download an archive and extract it into `directory`, which must not be there; nothing is left of a failure.

        Returns:
            The bytes that it takes on disk.

        Raises:
            ApiError: it is not there, is no archive that may be served, does not fit on the disk, or it took longer
                than `timeout_s`; the text says which, and what to do.
        """
        reached = "was looked for"

        def progress(done: int, total: int) -> None:
            nonlocal reached
            reached = f"{done:,} of {total:,} bytes had been downloaded"
            on_progress(done, total)

        try:
            async with asyncio.timeout(timeout_s):
                place = self.place(location)
                async with place.archive(location, directory.parent, progress) as archive:
                    return await extract(archive, directory, location.url, self._threads)
        except TimeoutError:
            raise too_slow(location, timeout_s, reached) from None

    def _local(self, location: Location) -> LocalPlace | None:
        """Where an object is on this machine; None if nothing here has such a bucket."""
        alias = self._aliases.get(location.bucket)
        if alias is not None:
            return alias
        return self._store if self._store.has(location.bucket) else None

    def _elsewhere(self, location: Location) -> "RemotePlace":
        if self._remote is None:
            raise _no_bucket(location)
        return self._remote


class AccountPlaces:
    """What one account may read (`ModelSource`): of the host's own store only its own buckets."""

    def __init__(self, places: Places, account: str) -> None:
        self._places = places
        self._account = account

    async def describe(self, url: str) -> ObjectInfo:
        """What is known of the object at a URL."""
        return await self._places.describe(location_of(url, self._account))

    async def offer(self, url: str) -> Offer:
        """Let other machines fetch the object at a URL as it is now."""
        return await self._places.offer(location_of(url, self._account))

    async def fetch_model(self, url: str, directory: Path, timeout_s: float, on_progress: OnProgress) -> int:
        """Download an archive and extract it; the bytes that it takes on disk."""
        location = location_of(url, self._account)
        return await self._places.fetch_model(location, directory, timeout_s, on_progress)


def _no_bucket(location: Location) -> ApiError:
    advice = (
        f"Make it with: aws s3 mb s3://{location.bucket}; or start the host with --s3-endpoint if the bucket is in "
        f"another S3 service, or with --bucket {location.bucket}=DIRECTORY if it is a directory"
    )
    return failed(location, "there is no such bucket in this host's object store", advice)
