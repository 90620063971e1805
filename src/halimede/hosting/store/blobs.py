"""Files with the bytes of objects. Each is written once, under a name of its own, and never changed."""

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable
from contextlib import suppress
from io import FileIO
from pathlib import Path

_COPY_BYTES = 64 << 20


class NewBlob:
    """A file that is being written. All of it blocks; one thread at a time.

    Attributes:
        name: its name.
        size: the bytes so far.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.size = 0
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._md5 = hashlib.md5(usedforsecurity=False)

    def write(self, data: bytes | memoryview) -> None:
        """Append."""
        self._md5.update(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self.size += len(data)

    def append(self, source: int, offset: int, size: int) -> None:
        """Append some of another file, without reading it where the file system can; the MD5 does not count it.

        Raises:
            OSError: it cannot be read or written, or is shorter than was said.
        """
        while size:
            try:
                copied = os.copy_file_range(source, self._file, min(size, _COPY_BYTES), offset)
            except OSError:  # not between these file systems
                data = os.pread(source, min(size, 1 << 20), offset)
                copied = os.write(self._file, data)
            if not copied:
                raise OSError(errno.EIO, f"a file ends {size} bytes before it should")
            offset += copied
            size -= copied
            self.size += copied

    def md5(self) -> bytes:
        """The MD5 of what was written."""
        return self._md5.digest()

    def finish(self) -> None:
        """Have it on disk, with its name."""
        os.fsync(self._file)
        os.close(self._file)
        self._file = -1
        _sync(self._path.parent)

    def discard(self) -> None:
        """Remove it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._path.unlink(missing_ok=True)


class Blobs:
    """The directory of the files. All of it blocks; any thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def prepare(self) -> None:
        """Make what has to be there."""
        for number in range(256):
            (self.directory / f"{number:02x}").mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        """Where a file is."""
        return self.directory / name[:2] / name

    def create(self) -> NewBlob:
        """A new file, empty."""
        name = secrets.token_hex(16)
        return NewBlob(name, self.path(name))

    def keep(self, data: bytes) -> str:
        """A file with these bytes, which is on disk."""
        blob = self.create()
        try:
            blob.write(data)
            blob.finish()
        except OSError:
            blob.discard()
            raise
        return blob.name

    def open(self, name: str) -> FileIO:
        """A file, which can be read even when it has been removed."""
        return FileIO(self.path(name))

    def duplicate(self, name: str) -> str:
        """The same bytes under another name: a link where the file system has them."""
        new = secrets.token_hex(16)
        try:
            os.link(self.path(name), self.path(new))
        except FileNotFoundError:
            raise
        except OSError:  # it has none, or no more for this file
            shutil.copyfile(self.path(name), self.path(new))
        _sync(self.path(new).parent)
        return new

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; what cannot be removed now is removed by `sweep`."""
        for name in names:
            with suppress(OSError):
                self.path(name).unlink()

    def sweep(self, used: set[str]) -> None:
        """Remove what nobody knows: files whose upload was cut off."""
        for path in self.directory.glob("??/*"):
            if path.name not in used:
                path.unlink()

    def free_bytes(self) -> int:
        """What the disk has room for."""
        return shutil.disk_usage(self.directory).free


def in_memory(data: bytes) -> FileIO:
    """A file with these bytes, which is nowhere on disk."""
    file = FileIO(os.memfd_create("object", os.MFD_CLOEXEC), "r+")
    file.write(data)
    file.seek(0)
    return file


def _sync(path: Path) -> None:
    """Have the names of a directory on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
