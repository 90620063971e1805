"""The host's own object store: a directory with the objects' bytes in files and all else in SQLite.

    DIRECTORY/
      store.sqlite     buckets, objects, uploads and parts; the bytes of small objects
      objects/3f/3f…   the bytes of others, a file each

An object is there when its row is: the file is complete and on disk before. What is in the way of that, such as a
killed host, leaves a file that nobody knows, and it is removed when the store is opened. Small objects that come
together are one write to the disk.
"""

import asyncio
import errno
import fcntl
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from hashlib import md5
from io import FileIO
from pathlib import Path
from typing import TypeVar

from halimede.core import tasks
from halimede.hosting.errors import ApiError
from halimede.hosting.store import checksums
from halimede.hosting.store.blobs import Blobs, NewBlob, in_memory
from halimede.hosting.store.checksums import Checksum
from halimede.hosting.store.failures import disk_failed, disk_full
from halimede.hosting.store.index import Index, is_row
from halimede.hosting.store.listing import Listing, Page
from halimede.hosting.store.records import Bucket, Conditions, Part, SmallPut, StoredObject, Upload

Result = TypeVar("Result")

SMALL_BYTES = 64 << 10
"""Larger objects are files."""

_RESERVE_BYTES = 64 << 20
"""The tables need room when objects have taken all of it."""

_THREADS = 8
_COPY_BYTES = 1 << 20


class StoreError(Exception):
    """The directory cannot be used; the text says why."""


class ObjectStore:
    """Objects in buckets. Lives on the event loop; `open` before, `close` after.

    Attributes:
        directory: where everything is.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._blobs = Blobs(directory / "objects")
        self._files = ThreadPoolExecutor(_THREADS, "halimede-objects")
        self._tables = ThreadPoolExecutor(1, "halimede-store")
        self._index: Index
        self._owners: dict[str, str] = {}  # bucket → account
        self._lock = -1

    async def open(self) -> None:
        """Open the store, or make it.

        Raises:
            StoreError: it cannot be opened, or another process has.
        """
        await asyncio.get_running_loop().run_in_executor(self._tables, self._open)

    def _open(self) -> None:
        try:
            self._blobs.prepare()
            self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._index = Index(self.directory / "store.sqlite")
            self._blobs.sweep(self._index.blobs())
            self._owners = {bucket.name: bucket.account for bucket in self._index.buckets()}
        except BlockingIOError:
            self._unlock()
            raise StoreError(f"the object store at {self.directory} is in use by another process") from None
        except (OSError, sqlite3.Error) as error:
            self._unlock()
            raise StoreError(f"cannot open the object store at {self.directory}: {error}") from error

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def close(self) -> None:
        """Close the store, when all that was begun is done."""
        await asyncio.get_running_loop().run_in_executor(self._tables, self._index.close)
        self._files.shutdown()
        self._tables.shutdown()
        self._unlock()

    async def run(self, work: Callable[..., Result], *values: object) -> Result:
        """Have something done that reads or writes files.

        Raises:
            ApiError: the disk is full or fails.
        """
        return await self._uninterrupted(self._files, None, work, *values)

    async def _made(
        self, release: Callable[[Result], object], work: Callable[..., Result], *values: object
    ) -> Result:
        """As `run`, with a result that must be released when nobody gets it."""
        return await self._uninterrupted(self._files, release, work, *values)

    async def _tell(self, work: Callable[..., Result], *values: object) -> Result:
        """Have something done with the tables."""
        return await self._uninterrupted(self._tables, None, work, *values)

    async def _uninterrupted(
        self,
        executor: ThreadPoolExecutor,
        release: Callable[[Result], object] | None,
        work: Callable[..., Result],
        *values: object,
    ) -> Result:
        # what is begun is waited for, even by who is cancelled: nobody may clean up under a thread that works
        running = asyncio.get_running_loop().run_in_executor(executor, work, *values)
        try:
            return await tasks.uninterrupted(running, release)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk_failed(self.directory, error) from error
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
                raise disk_full(self.directory) from error
            raise

    # buckets

    async def create_bucket(self, name: str, account: str, region: str) -> Bucket | None:
        """Make a bucket; the one that is there already, if there is."""
        known = await self._tell(lambda: self._index.add_bucket(Bucket(name, _now(), account, region)))
        self._owners[name] = account if known is None else known.account
        return known

    def owner(self, bucket: str) -> str | None:
        """The account whose bucket it is; None if there is no such bucket."""
        return self._owners.get(bucket)

    async def bucket(self, name: str) -> Bucket:
        """A bucket.

        Raises:
            ApiError: there is none (``NoSuchBucket``).
        """
        return await self._tell(lambda: self._index.bucket(name))

    async def buckets(self, account: str) -> list[Bucket]:
        """The buckets of an account, by name."""
        every = await self._tell(lambda: self._index.buckets())
        return [bucket for bucket in every if bucket.account == account]

    async def delete_bucket(self, name: str) -> None:
        """Remove a bucket.

        Raises:
            ApiError: there is none, or it has objects.
        """
        unused = await self._tell(lambda: self._index.remove_bucket(name))
        if unused is None:
            msg = f"The bucket you tried to delete is not empty: '{name}'; delete its objects first"
            raise ApiError("BucketNotEmpty", msg, 409)
        self._owners.pop(name, None)
        await self._remove(unused)

    # bytes

    async def new_blob(self, expected: int = 0) -> NewBlob:
        """A file to be written.

        Args:
            expected: how many bytes it will have, if that is known.

        Raises:
            ApiError: the disk has no room for them.
        """

        def create() -> NewBlob:
            if expected + _RESERVE_BYTES > self._blobs.free_bytes():
                raise disk_full(self.directory, expected)
            return self._blobs.create()

        return await self._made(NewBlob.discard, create)

    async def discard(self, blob: NewBlob) -> None:
        """Remove a file that is not needed."""
        await self.run(blob.discard)

    async def _remove(self, blobs: Iterable[str]) -> None:
        names = list(blobs)
        if names:
            await self.run(self._blobs.remove, names)

    async def _keep(
        self,
        remove: Callable[[], None],
        keep: Callable[[], list[str]],
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """Have a file on disk, then the row that names it; neither, if one of them fails.

        Args:
            remove: removes the file.
            keep: writes the row, and says which files are not needed any more.
            prepare: has the file on disk.
        """

        async def work() -> None:
            try:
                if prepare is not None:
                    await self.run(prepare)
                unused = await self._tell(keep)
            except BaseException:
                await self.run(remove)
                raise
            await self._remove(unused)

        await tasks.uninterrupted(tasks.submit(work()))

    # objects

    async def object(self, bucket: str, key: str) -> StoredObject:
        """An object, but for its bytes.

        Raises:
            ApiError: there is none.
        """
        return await self._tell(lambda: self._index.object(bucket, key))

    async def open_object(self, bucket: str, key: str) -> tuple[StoredObject, FileIO]:
        """An object, and a file to read its bytes from, which are there until that is closed.

        Raises:
            ApiError: there is none.
        """
        return await self._with_blob((bucket, key), self._blobs.open, in_memory, FileIO.close)

    async def _with_blob(
        self,
        place: tuple[str, str],
        of_file: Callable[[str], Result],
        of_row: Callable[[bytes], Result],
        release: Callable[[Result], None],
    ) -> tuple[StoredObject, Result]:
        """An object, and what is made of the name of its file, or of the bytes in its row.

        Args:
            place: its bucket and its key.
            of_file: makes it of the name.
            of_row: makes it of the bytes.
            release: undoes either, when the caller is cancelled.
        """
        bucket, key = place
        previous = ""
        while True:
            stored = await self.object(bucket, key)
            try:
                if is_row(stored.blob):
                    data = await self._tell(self._index.small, stored.blob)
                    return stored, await self._made(release, of_row, data)
                return stored, await self._made(release, of_file, stored.blob)
            except FileNotFoundError:  # another object has taken its place in between
                if stored.blob == previous:
                    msg = f"the bytes of '{key}' in bucket '{bucket}' are missing in {self.directory}"
                    raise ApiError("InternalError", msg, 500) from None
                previous = stored.blob

    async def check(self, bucket: str, key: str, conditions: Conditions) -> None:
        """Whether an object may be put.

        Raises:
            ApiError: there is no such bucket, or a condition does not hold.
        """
        await self._tell(lambda: self._index.check(bucket, key, conditions))

    async def put(
        self,
        bucket: str,
        key: str,
        blob: NewBlob,
        headers: Mapping[str, str],
        checksum: Checksum | None = None,
        conditions: Conditions = Conditions(),  # noqa: B008 - never changes
    ) -> StoredObject:
        """Put an object whose bytes have been written; the file is gone if that fails.

        Raises:
            ApiError: there is no such bucket, a condition does not hold, or the disk is full.
        """
        stored = StoredObject(blob.name, blob.size, blob.md5().hex(), _now(), headers, checksum)
        await self._keep(blob.discard, lambda: self._index.put(bucket, key, stored, conditions), blob.finish)
        return stored

    async def put_bytes(self, bucket: str, key: str, data: bytes, headers: Mapping[str, str]) -> StoredObject:
        """Put an object whose bytes are here.

        Raises:
            ApiError: there is no such bucket, or the disk is full.
        """
        if len(data) <= SMALL_BYTES:
            (outcome,) = await self.put_small([SmallPut(bucket, key, data, headers)])
            if isinstance(outcome, ApiError):
                raise outcome
            return outcome
        blob = await self.new_blob(len(data))
        try:
            await self.run(blob.write, data)
        except BaseException:
            await self.discard(blob)
            raise
        return await self.put(bucket, key, blob, headers)

    async def put_small(self, puts: Sequence[SmallPut], account: str = "") -> list[StoredObject | ApiError]:
        """Put objects of at most `SMALL_BYTES` with one write to the disk: for each the object, or why it is not put.

        Args:
            puts: the objects.
            account: whose buckets they are for; "" for anybody's.

        Raises:
            ApiError: none is put, since the disk is full.
        """

        def work() -> tuple[list[StoredObject | ApiError], list[str]]:
            size = sum(len(put.data) for put in puts)
            if size + _RESERVE_BYTES > self._blobs.free_bytes():
                raise disk_full(self.directory, size)
            return self._index.put_small(puts, account)

        outcomes, unused = await self._tell(work)
        await self._remove(unused)
        return outcomes

    async def copy(
        self,
        source: tuple[str, str],
        target: tuple[str, str],
        headers: Mapping[str, str] | None,
        check: Callable[[StoredObject], None],
        conditions: Conditions = Conditions(),  # noqa: B008 - never changes
    ) -> StoredObject:
        """Copy an object.

        Args:
            source: bucket and key.
            target: bucket and key.
            headers: of the copy; None for those of the source.
            check: looks at the source, and raises if it is not what it should be.
            conditions: what must hold of the object that is replaced.

        Raises:
            ApiError: there is no such object or bucket, or a condition does not hold.
        """
        await self.check(*target, conditions)

        def remove(name: str) -> None:
            self._blobs.remove([name])

        found, name = await self._with_blob(source, self._blobs.duplicate, self._blobs.keep, remove)

        kept = found.headers if headers is None else headers
        copied = StoredObject(name, found.size, found.etag, _now(), kept, found.checksum)

        def keep() -> list[str]:
            check(found)
            return self._index.put(*target, copied, conditions)

        await self._keep(lambda: remove(name), keep)
        return copied

    async def delete(self, bucket: str, keys: Sequence[str]) -> None:
        """Remove those of these objects that there are.

        Raises:
            ApiError: there is no such bucket.
        """
        await self._remove(await self._tell(lambda: self._index.remove(bucket, keys)))

    async def page(self, bucket: str, listing: Listing) -> Page:
        """A page of a bucket's objects.

        Raises:
            ApiError: there is no such bucket.
        """
        return await self._tell(lambda: self._index.page(bucket, listing))

    # uploads in parts

    async def create_upload(
        self, bucket: str, key: str, headers: Mapping[str, str], algorithm: str, checksum_kind: str
    ) -> Upload:
        """Begin an upload.

        Raises:
            ApiError: there is no such bucket.
        """
        upload = Upload(secrets.token_urlsafe(32), bucket, key, _now(), headers, algorithm, checksum_kind)
        await self._tell(lambda: self._index.add_upload(upload))
        return upload

    async def upload(self, bucket: str, key: str, upload: str) -> Upload:
        """An upload.

        Raises:
            ApiError: there is none of this object.
        """
        return await self._tell(lambda: self._index.upload(bucket, key, upload))

    async def uploads(self, bucket: str, prefix: str, after: tuple[str, str], limit: int) -> list[Upload]:
        """The uploads of a bucket by key and id, those after a key and an id.

        Raises:
            ApiError: there is no such bucket.
        """
        return await self._tell(lambda: self._index.uploads(bucket, prefix, after, limit))

    async def put_part(self, upload: Upload, number: int, blob: NewBlob, checksum: Checksum | None) -> Part:
        """Put a part whose bytes have been written; the file is gone if that fails.

        Raises:
            ApiError: there is no such upload any more, or the disk is full.
        """
        part = Part(number, blob.name, blob.size, blob.md5().hex(), _now(), checksum)
        await self._keep(blob.discard, lambda: self._index.put_part(upload, part), blob.finish)
        return part

    async def copy_part(self, upload: Upload, number: int, source: FileIO, offset: int, size: int) -> Part:
        """Put a part with bytes of an object.

        Raises:
            ApiError: there is no such upload any more, or the disk is full.
        """
        blob = await self.new_blob(size)
        total = checksums.hasher(upload.algorithm) if upload.algorithm else None

        def work() -> None:
            left, position = size, offset
            while left:
                data = os.pread(source.fileno(), min(left, _COPY_BYTES), position)
                if not data:
                    raise OSError(errno.EIO, "an object's file is shorter than it was")
                blob.write(data)
                if total is not None:
                    total.update(data)
                left -= len(data)
                position += len(data)

        try:
            await self.run(work)
        except BaseException:
            await self.discard(blob)
            raise
        value = None if total is None else Checksum(upload.algorithm, checksums.encode(total.digest()))
        return await self.put_part(upload, number, blob, value)

    async def parts(self, upload: Upload, after: int = 0, limit: int = 10_000) -> list[Part]:
        """The parts of an upload, those with a number above one."""
        return await self._tell(lambda: self._index.parts(upload.id, after, limit))

    async def complete(
        self, upload: Upload, parts: Sequence[Part], expected: Checksum | None, conditions: Conditions
    ) -> StoredObject:
        """Make the object of an upload from parts of it, and forget the upload.

        Args:
            upload: the upload.
            parts: what the object is made of, in order.
            expected: the checksum that the object must have, as far as the upload has such a one; None for any.
            conditions: what must hold of the object that is replaced.

        Raises:
            ApiError: there is no such upload any more, a condition does not hold, the checksum is another, or the
                disk is full.
        """
        checksum = None
        if upload.algorithm:
            known = [(part.checksum.value, part.size) for part in parts if part.checksum is not None]
            checksum = checksums.of_parts(upload.algorithm, upload.checksum_kind, known)
        if expected is not None and (checksum is None or checksum.value != expected.value):
            has = "none" if checksum is None else f"{checksum.kind} {checksum.algorithm} {checksum.value}"
            msg = f"The {expected.algorithm} you specified did not match the calculated checksum of the object: {has}"
            raise ApiError("BadDigest", msg)
        size = sum(part.size for part in parts)
        total = md5(b"".join(bytes.fromhex(part.etag) for part in parts), usedforsecurity=False)
        blob = await self.new_blob(size)
        etag = f"{total.hexdigest()}-{len(parts)}"
        stored = StoredObject(blob.name, size, etag, _now(), upload.headers, checksum)

        def join() -> None:
            for part in parts:
                with self._blobs.open(part.blob) as file:
                    blob.append(file.fileno(), 0, part.size)
            blob.finish()

        try:
            await self._keep(blob.discard, lambda: self._index.complete(upload, stored, conditions), join)
        except FileNotFoundError:  # somebody else has completed it, or replaced a part
            await self.upload(upload.bucket, upload.key, upload.id)
            msg = "a part was replaced while the upload was completed; complete it again with the new part's ETag"
            raise ApiError("InvalidPart", msg) from None
        return stored

    async def abort(self, bucket: str, key: str, upload: str) -> None:
        """Forget an upload and its parts.

        Raises:
            ApiError: there is no such upload.
        """
        await self._remove(await self._tell(lambda: self._index.abort(bucket, key, upload)))


def _now() -> datetime:
    return datetime.now(UTC)
