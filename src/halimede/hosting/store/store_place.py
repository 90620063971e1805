"""Objects of the host's own store: their files are extracted where they are."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import FileIO
from pathlib import Path

from halimede.hosting.errors import ApiError
from halimede.hosting.store.object_store import ObjectStore
from halimede.hosting.store.places import Location, failed
from halimede.hosting.store.records import StoredObject
from halimede.hosting.store.source import ObjectInfo, OnProgress


class StorePlace:
    """The host's own store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def has(self, bucket: str) -> bool:
        """Whether the store has a bucket."""
        return self._store.owner(bucket) is not None

    async def describe(self, location: Location) -> ObjectInfo:
        """What is known of an object.

        Raises:
            ApiError: it is not there.
        """
        self._check_owner(location)
        try:
            stored = await self._store.object(location.bucket, location.key)
        except ApiError as error:
            raise _absent(location, error) from None
        return ObjectInfo(stored.size, stored.etag)

    @asynccontextmanager
    async def archive(
        self, location: Location, directory: Path, on_progress: OnProgress
    ) -> AsyncIterator[Path]:
        """The object's own file.

        Raises:
            ApiError: it is not there.
        """
        del directory
        stored, file = await self.open(location)
        with file:
            on_progress(stored.size, stored.size)
            # by the open file, since the name goes when the object is replaced
            yield Path(f"/proc/self/fd/{file.fileno()}")

    async def open(self, location: Location) -> tuple[StoredObject, FileIO]:
        """An object and a file with its bytes.

        Raises:
            ApiError: it is not there.
        """
        self._check_owner(location)
        try:
            return await self._store.open_object(location.bucket, location.key)
        except ApiError as error:
            raise _absent(location, error) from None

    def _check_owner(self, location: Location) -> None:
        owner = self._store.owner(location.bucket)
        if owner is not None and owner != location.account:
            advice = f"Put the archive into a bucket of account {location.account}, whose endpoint it is for"
            raise failed(location, "Access Denied, as the bucket belongs to another account", advice)


def _absent(location: Location, error: ApiError) -> ApiError:
    if error.status != 404:
        return error
    advice = f"Put it there with: aws s3 cp model.tar.gz {location.url}"
    return failed(location, "there is no such object in this host's object store", advice)
