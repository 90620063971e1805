"""Objects of the host's own store: their files are extracted where they are."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from io import FileIO
from pathlib import Path

from halimede.hosting.errors import ApiError
from halimede.hosting.store.blobs import NewBlob
from halimede.hosting.store.listing import Listing
from halimede.hosting.store.object_store import ObjectStore
from halimede.hosting.store.places import ListedObject, Location, failed
from halimede.hosting.store.records import SmallPut, StoredObject
from halimede.hosting.store.source import ObjectInfo, OnProgress

_PIECE_BYTES = 1 << 20
_WHERE_TO_WRITE = "Check the bucket, and the disk of this host's object store"


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
        return ObjectInfo(stored.size, stored.etag, stored.headers.get("content-type", ""))

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

    async def write(self, location: Location, content: bytes | Path, content_type: str) -> None:
        """Put an object.

        Raises:
            ApiError: the bucket is gone or another account's, or the disk is full.
        """
        self._check_owner(location)
        headers = {"content-type": content_type}
        try:
            if isinstance(content, bytes):
                await self._store.put_bytes(location.bucket, location.key, content, headers)
                return
            blob = await self._store.new_blob()
            try:
                await self._store.run(_fill, blob, content)
            except BaseException:
                await self._store.discard(blob)
                raise
            await self._store.put(location.bucket, location.key, blob, headers)
        except ApiError as error:
            raise _unwritten(location, error) from None
        except OSError as error:
            raise failed(location, str(error.strerror), _WHERE_TO_WRITE) from None

    async def write_small(self, account: str, puts: Sequence[SmallPut]) -> list[ApiError | None]:
        """Put small objects of an account with one write to the disk: for each None, or why it is not put."""
        try:
            outcomes = await self._store.put_small(puts, account)
        except ApiError as error:
            outcomes = [error] * len(puts)
        return [
            _unwritten(Location(put.bucket, put.key, account, "write the object"), outcome)
            if isinstance(outcome, ApiError)
            else None
            for put, outcome in zip(puts, outcomes, strict=True)
        ]

    async def below(self, prefix: Location) -> list[ListedObject]:
        """The objects below a prefix.

        Raises:
            ApiError: the bucket is gone or another account's.
        """
        self._check_owner(prefix)
        found: list[ListedObject] = []
        after = ""
        while True:
            try:
                page = await self._store.page(prefix.bucket, Listing(prefix.key, after=after))
            except ApiError as error:
                raise failed(prefix, error.message.rstrip("."), "Make the bucket first") from None
            found += [
                ListedObject(f"s3://{prefix.bucket}/{key}", each.size, each.etag, each.modified)
                for key, each in page.objects
            ]
            if not page.is_truncated:
                return found
            after = page.last

    def _check_owner(self, location: Location) -> None:
        owner = self._store.owner(location.bucket)
        if owner is not None and owner != location.account:
            advice = f"Use a bucket of account {location.account}, who asks for it"
            raise failed(location, "Access Denied, as the bucket belongs to another account", advice)


def _fill(blob: NewBlob, content: Path) -> None:
    with content.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            blob.write(piece)


def _unwritten(location: Location, error: ApiError) -> ApiError:
    return failed(location, error.message.rstrip("."), _WHERE_TO_WRITE)


def _absent(location: Location, error: ApiError) -> ApiError:
    if error.status != 404:
        return error
    advice = f"Put it there with: aws s3 cp {location.example} {location.url}"
    return failed(location, "there is no such object in this host's object store", advice)
