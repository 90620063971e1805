"""Objects of any bucket, read, written and listed by URL, for one account."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.s3_urls import bucket_and_key
from halimede.hosting.store.object_store import SMALL_BYTES
from halimede.hosting.store.places import ListedObject, Location
from halimede.hosting.store.records import SmallPut
from halimede.hosting.store.source import ObjectInfo
from halimede.hosting.store.sources import Places


class Objects:
    """What an account may read and write. Called on the event loop.

    Errors are ApiErrors whose texts name bucket and key, and say what to check.
    """

    def __init__(self, places: Places, account: str) -> None:
        self._places = places
        self._account = account

    async def describe(self, url: str) -> ObjectInfo:
        """What is known of the object at ``s3://BUCKET/KEY``.

        Raises:
            ApiError: it is not there, or cannot be read.
        """
        return await self._places.describe(self._object(url, "read the object"))

    async def read(self, url: str, limit: int) -> bytes:
        """The bytes of an object that has no more than `limit`.

        Raises:
            ApiError: it is not there, cannot be read, or is larger.
        """
        async with self.file(url, Path(tempfile.gettempdir()), limit) as path:
            return await asyncio.to_thread(path.read_bytes)

    @asynccontextmanager
    async def file(self, url: str, directory: Path, limit: int | None = None) -> AsyncIterator[Path]:
        """An object as a file, which is there during the block.

        Args:
            url: ``s3://BUCKET/KEY``.
            directory: where a temporary file may be; it is there.
            limit: so many bytes it may have; None for any number.

        Raises:
            ApiError: it is not there, cannot be read, is larger, or does not fit on the disk.
        """
        location = self._object(url, "read the object")
        place = self._places.place(location)
        if limit is not None:
            size = (await place.describe(location)).size
            if size > limit:
                raise invalid(f"{url} has {size:,} bytes; it may have {limit:,}")
        async with place.archive(location, directory, lambda done, total: None) as path:
            yield path

    async def write(
        self, url: str, content: bytes | Path, content_type: str = "application/octet-stream"
    ) -> None:
        """Put an object, whose bytes are these or those of a file. It is there whole, or as it was before.

        Raises:
            ApiError: it cannot be written.
        """
        location = self._object(url, "write the object")
        await self._places.place(location).write(location, content, content_type)

    def small_put(self, url: str, content: bytes | Path, content_type: str) -> SmallPut | None:
        """An object as `write_small` takes it; None if it is large, or is not for the host's own store."""
        if not isinstance(content, bytes) or len(content) > SMALL_BYTES:
            return None
        bucket, key = bucket_and_key(url)
        if not key or not self._places.is_in_store(bucket):
            return None
        return SmallPut(bucket, key, content, {"content-type": content_type})

    async def write_small(self, puts: Sequence[SmallPut]) -> Sequence[ApiError | None]:
        """Put objects that `small_put` has made, with one write to the disk: for each None, or why it is not put."""
        return await self._places.write_small(self._account, puts)

    async def list(self, url: str) -> Sequence[ListedObject]:
        """The objects whose URLs begin with this one, in the order of their keys.

        Raises:
            ApiError: there is no such bucket, or it cannot be listed.
        """
        bucket, key = bucket_and_key(url)
        if not bucket:
            raise _no_url(url, "s3://BUCKET/PREFIX")
        location = Location(bucket, key, self._account, "list the objects", "FILE")
        return await self._places.place(location).below(location)

    def _object(self, url: str, purpose: str) -> Location:
        bucket, key = bucket_and_key(url)
        if not bucket or not key:
            raise _no_url(url, "s3://BUCKET/KEY")
        return Location(bucket, key, self._account, purpose, "FILE")


def _no_url(url: str, expected: str) -> ApiError:
    return invalid(f"'{url}' is no URL of an object; expected {expected}")
