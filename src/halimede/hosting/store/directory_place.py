"""Objects that are files of a directory."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path

from halimede.hosting.errors import ApiError
from halimede.hosting.store.places import Location, failed
from halimede.hosting.store.records import StoredObject
from halimede.hosting.store.source import ObjectInfo, OnProgress


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
        return await asyncio.to_thread(self._open, location)

    def _open(self, location: Location) -> tuple[StoredObject, FileIO]:
        path, _ = self._find(location)
        try:
            file = FileIO(path)
        except OSError as error:
            raise _unreadable(location, str(error.strerror)) from None
        found = os.fstat(file.fileno())
        modified = datetime.fromtimestamp(found.st_mtime, UTC)
        return StoredObject("", found.st_size, _etag(found), modified, {}), file

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
