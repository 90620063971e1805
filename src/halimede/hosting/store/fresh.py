"""Small objects that come many at a time: their bytes are on disk with their rows, in one write for all of them.

Each has its file as any object has, but nobody waits until that is on disk by itself. Until it is, the table `fresh`
has its bytes too; should the machine stop before, the file is made again from there when the store is opened.
"""

import asyncio
import ctypes
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import md5
from pathlib import Path
from typing import Any

from halimede.hosting.errors import ApiError
from halimede.hosting.store.blobs import Blobs
from halimede.hosting.store.failures import disk_full
from halimede.hosting.store.index import Index
from halimede.hosting.store.records import StoredObject

LARGEST = 64 << 10
"""A larger object is put by itself."""

RESERVE_BYTES = 64 << 20
"""The tables need room when objects have taken all of it."""

_AT_A_TIME = 256
_KEPT = 4096
_KEPT_BYTES = 16 << 20
"""After so many objects, or bytes, files are brought to disk and the table is emptied."""

Run = Callable[..., Awaitable[Any]]
"""Has something done on a thread."""


@dataclass(slots=True)
class _Put:
    bucket: str
    key: str
    data: bytes
    headers: Mapping[str, str]
    done: "asyncio.Future[StoredObject]"


class FreshObjects:
    """Puts small objects. Lives on the event loop."""

    def __init__(self, blobs: Blobs, index: Index, on_files: Run, on_tables: Run) -> None:
        """Puts objects into the store that has these files and tables.

        Args:
            blobs: the files.
            index: the tables.
            on_files: runs what reads or writes files.
            on_tables: runs what reads or writes tables.
        """
        self._blobs = blobs
        self._index = index
        self._on_files = on_files
        self._on_tables = on_tables
        self._waiting: list[_Put] = []
        self._writing: asyncio.Task[None] | None = None
        self._kept = self._kept_bytes = 0

    async def put(self, bucket: str, key: str, data: bytes, headers: Mapping[str, str]) -> StoredObject:
        """Put an object of at most `LARGEST` bytes.

        Raises:
            ApiError: there is no such bucket, or the disk is full.
        """
        loop = asyncio.get_running_loop()
        put = _Put(bucket, key, data, headers, loop.create_future())
        self._waiting.append(put)
        if self._writing is None:
            self._writing = loop.create_task(self._write())
        return await put.done

    async def close(self) -> None:
        """Return when all is written."""
        while self._writing is not None:
            await asyncio.wait([self._writing])
        if self._kept:
            with suppress(ApiError):  # the next process does it
                await self._settle()

    async def _write(self) -> None:
        while self._waiting:
            puts, self._waiting = self._waiting[:_AT_A_TIME], self._waiting[_AT_A_TIME:]
            try:
                await self._write_some(puts)
                if self._kept >= _KEPT or self._kept_bytes >= _KEPT_BYTES:
                    await self._settle()
            except Exception as error:  # whoever waits is told
                for put in puts:
                    if not put.done.done():
                        put.done.set_exception(error)
        self._writing = None

    async def _write_some(self, puts: Sequence[_Put]) -> None:
        stored = await self._on_files(self._write_files, puts)
        rows = [(put.bucket, put.key, each, put.data) for put, each in zip(puts, stored, strict=True)]
        try:
            outcomes = await self._on_tables(self._index.put_fresh, rows)
        except BaseException:
            await self._on_files(self._blobs.remove, [each.blob for each in stored])
            raise
        unused = []
        for put, each, outcome in zip(puts, stored, outcomes, strict=True):
            if isinstance(outcome, ApiError):
                unused.append(each.blob)
            else:
                unused += outcome
                self._kept += 1
                self._kept_bytes += len(put.data)
            if not put.done.done():
                if isinstance(outcome, ApiError):
                    put.done.set_exception(outcome)
                else:
                    put.done.set_result(each)
        if unused:
            await self._on_files(self._blobs.remove, unused)

    def _write_files(self, puts: Sequence[_Put]) -> list[StoredObject]:
        """Write the files; they are all removed if one cannot be written."""
        size = sum(len(put.data) for put in puts)
        if size + RESERVE_BYTES > self._blobs.free_bytes():
            raise disk_full(self._blobs.directory.parent, size)
        stored: list[StoredObject] = []
        try:
            for put in puts:
                name = self._blobs.write(put.data)
                etag = md5(put.data, usedforsecurity=False).hexdigest()
                stored.append(StoredObject(name, len(put.data), etag, datetime.now(UTC), put.headers))
        except OSError:
            self._blobs.remove([each.blob for each in stored])
            raise
        return stored

    async def _settle(self) -> None:
        """Have the files on disk that were written before; the table needs their bytes no more."""
        last = await self._on_tables(self._index.last_fresh)
        await self._on_files(sync_all, self._blobs.directory)
        await self._on_tables(self._index.forget_fresh, last)
        self._kept = self._kept_bytes = 0


def sync_all(directory: Path) -> None:
    """Have everything on disk that was written to the file system of a directory.

    Raises:
        OSError: it cannot be.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "syncfs"):  # of Linux
            os.sync()
        elif libc.syncfs(descriptor):
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
    finally:
        os.close(descriptor)


def restore(blobs: Blobs, index: Index) -> None:
    """Make the files again whose bytes are in the table; blocks. The store is being opened."""
    last = index.last_fresh()
    names = index.blobs() if last else set()
    for name, data in index.fresh():
        if name in names:
            blobs.write(data, name)
    if last:
        sync_all(blobs.directory)
        index.forget_fresh(last)
