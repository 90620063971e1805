"""Objects that are files of a directory."""

import asyncio
import os
import secrets
import shutil
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from halimede.core import tasks
from halimede.hosting.errors import ApiError
from halimede.hosting.store.places import ListedObject, Location, failed
from halimede.hosting.store.records import StoredObject
from halimede.hosting.store.source import ObjectInfo, OnProgress

_PREFIX = ".halimede-writing-"
"""Names of files that are being written begin with it."""


class DirectoryPlace:
    """A directory whose files are objects; their keys are their paths below it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()

    async def describe(self, location: Location) -> ObjectInfo:
        """What is known of an object.

        Raises:
            ApiError: there is no such file below the directory, or it cannot be read.
        """
        _, info = await asyncio.to_thread(self._find, location)
        return info

    @asynccontextmanager
    async def archive(
        self, location: Location, directory: Path, on_progress: OnProgress
    ) -> AsyncIterator[Path]:
        """The file itself.

        Raises:
            ApiError: there is no such file below the directory, or it cannot be read.
        """
        del directory
        path, info = await asyncio.to_thread(self._find, location)
        on_progress(info.size, info.size)
        yield path

    async def open(self, location: Location) -> tuple[StoredObject, FileIO]:
        """An object and its file.

        Raises:
            ApiError: there is no such file below the directory, or it cannot be read.
        """
        return await tasks.opened(self._open, location, close=lambda found: found[1].close())

    def _open(self, location: Location) -> tuple[StoredObject, FileIO]:
        path, _ = self._find(location)
        try:
            file = FileIO(path)
        except OSError as error:
            raise _unreadable(location, str(error.strerror)) from None
        found = os.fstat(file.fileno())
        modified = datetime.fromtimestamp(found.st_mtime, UTC)
        return StoredObject("", found.st_size, _etag(found), modified, {}), file

    async def write(self, location: Location, content: bytes | Path, content_type: str) -> None:
        """Put an object: write a file, which takes its place when it is whole. Files have no content type.

        Raises:
            ApiError: it would be outside of the directory, or cannot be written.
        """
        del content_type
        await asyncio.to_thread(self._write, location, content)

    def _write(self, location: Location, content: bytes | Path) -> None:
        advice = f"Objects of this bucket are files below {self._directory}"
        temporary: Path | None = None
        try:
            path = (self._directory / location.key.lstrip("/")).resolve()
            if not path.is_relative_to(self._directory) or path == self._directory:
                raise failed(location, f"it is outside of {self._directory}", advice)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f"{_PREFIX}{secrets.token_hex(8)}")
            if isinstance(content, bytes):
                temporary.write_bytes(content)
            else:
                shutil.copyfile(content, temporary)
            temporary.replace(path)
        except (OSError, ValueError) as error:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise failed(location, str(reason), advice) from None

    async def below(self, prefix: Location) -> list[ListedObject]:
        """The files whose paths below the directory begin with a prefix."""
        return await asyncio.to_thread(self._below, prefix)

    def _below(self, prefix: Location) -> list[ListedObject]:
        found = []
        for parent, _, names in os.walk(self._directory):
            for name in names:
                path = Path(parent, name)
                key = path.relative_to(self._directory).as_posix()
                if not key.startswith(prefix.key) or name.startswith(_PREFIX):
                    continue
                try:
                    stat_ = path.stat()
                except OSError:  # it has just gone, or leads nowhere
                    continue
                modified = datetime.fromtimestamp(stat_.st_mtime, UTC)
                found.append(
                    ListedObject(f"s3://{prefix.bucket}/{key}", stat_.st_size, _etag(stat_), modified)
                )
        return sorted(found, key=lambda each: each.url.encode())

    def _find(self, location: Location) -> tuple[Path, ObjectInfo]:
        advice = f"Objects of this bucket are files below {self._directory}; put one there"
        try:
            path = (self._directory / location.key.lstrip("/")).resolve()
            if not path.is_relative_to(self._directory):
                raise failed(location, f"it is outside of {self._directory}", advice)
            found = path.stat()
            readable = os.access(path, os.R_OK)
        except FileNotFoundError:
            raise failed(location, f"there is no file {path}", advice) from None
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise _unreadable(location, str(reason)) from None
        if stat.S_ISDIR(found.st_mode):
            raise failed(
                location, f"{path} is a directory", f"Pack it with: tar -czf model.tar.gz -C {path} ."
            )
        if not readable:
            raise _unreadable(location, "Permission denied")
        return path, ObjectInfo(found.st_size, _etag(found))


def _etag(found: os.stat_result) -> str:
    return f"{found.st_mtime_ns:x}-{found.st_size:x}-{found.st_ino:x}"


def _unreadable(location: Location, reason: str) -> ApiError:
    return failed(location, reason, "Check the file's name and its permissions")
