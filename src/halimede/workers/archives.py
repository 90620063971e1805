"""Extracting an archive of a Python environment, safely, whoever made it.

This file is run as a program, `python archives.py DIRECTORY < ARCHIVE`, so that unpacking tens of thousands of files
does not slow down what the server serves. Thus it needs nothing but the standard library.

Nothing is ever written through a link: the directories on the way to a file are known to be directories.
"""

import importlib
import os
import platform
import shutil
import stat
import sys
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar, cast

Made = TypeVar("Made")

_CHUNK_BYTES = 1 << 20

_MAGIC_BYTES = 6
_COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "lzma",
    b"\x28\xb5\x2f\xfd": "compression.zstd",  # from Python 3.14 on
}
"""How a compressed file begins, and the module that reads it."""


class ArchiveError(Exception):
    """The archive cannot be extracted; the text says why."""


def extract(archive: IO[bytes], directory: Path) -> None:
    """Extract a tar archive, compressed or not, into an empty directory.

    Args:
        archive: the file, at its beginning.
        directory: where to. Its contents are undefined after an error.

    Raises:
        ArchiveError: an entry lies or leads outside the directory, the archive is damaged, or it cannot be written.
    """
    try:
        _extract(_decompressed(archive), _Extraction(directory))
    except (tarfile.TarError, ValueError) as error:
        raise ArchiveError(f"it is truncated or damaged: {error}") from error
    except OSError as error:
        where = f": '{error.filename}'" if error.filename else ""
        raise ArchiveError(f"{error.strerror}{where}") from error


def _extract(stream: IO[bytes], extraction: "_Extraction") -> None:
    forward = _Forward(stream)
    try:
        tar = tarfile.open(fileobj=cast(IO[bytes], forward), mode="r:")  # noqa: SIM115 - nothing to close
    except tarfile.ReadError as error:
        raise ArchiveError(f"it is no tar archive: {error}") from error
    while (member := tar.next()) is not None:
        extraction.add(tar, member)
        tar.members.clear()  # type: ignore[attr-defined]  # environments have very many
    # `tarfile` takes whatever it does not understand for the end; a real one is a block of zeros
    if forward.last != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("it has no end")
    while forward.read(_CHUNK_BYTES):
        pass  # at its end the stream's checksum is held against what was read


def _decompressed(archive: IO[bytes]) -> IO[bytes]:
    magic = archive.read(_MAGIC_BYTES)
    archive.seek(0)
    for begin, module in _COMPRESSIONS.items():
        if magic.startswith(begin):
            try:
                return cast(IO[bytes], importlib.import_module(module).open(archive))
            except ModuleNotFoundError:
                kind = module.rpartition(".")[2]
                raise ArchiveError(
                    f"it is compressed with {kind}, which the server's Python {platform.python_version()} cannot read; "
                    "pack it as .tar.gz"
                ) from None
    return archive


class _Forward:
    """A stream that is only read forwards, so that no decompressor has to begin anew.

    Attributes:
        last: what was read last.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self.last = b""
        self._stream = stream
        self._position = 0

    def read(self, size: int) -> bytes:
        """As many bytes, or fewer at the end."""
        try:
            self.last = self._stream.read(size)
        except Exception as error:  # each kind of compression has errors of its own
            raise tarfile.ReadError(str(error)) from error
        self._position += len(self.last)
        return self.last

    def tell(self) -> int:
        """How many bytes have been read."""
        return self._position

    def seek(self, position: int) -> None:
        """Go on to a later position."""
        if position < self._position:
            raise tarfile.ReadError("its entries overlap")
        while self._position < position:
            if not self.read(min(position - self._position, _CHUNK_BYTES)):
                raise tarfile.ReadError("unexpected end of data")


class _Extraction:
    """What has been extracted into a directory so far."""

    def __init__(self, directory: Path) -> None:
        self._root = directory
        self._directories = {PurePosixPath()}

    def add(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Extract the member at which the archive has arrived."""
        place = _inside(member.name)
        if member.isdir():
            self._enter(place, member.name)
            return
        self._enter(place.parent, member.name)
        path = self._root / place
        if member.isfile():
            self._write(tar, member, path)
        elif member.issym():
            _check_target(place, member)
            _make(path, lambda: path.symlink_to(member.linkname))
        elif member.islnk():
            target = _inside(member.linkname)
            self._enter(target.parent, member.linkname)
            _make(path, lambda: os.link(self._root / target, path, follow_symlinks=False))
        else:
            raise ArchiveError(f"'{member.name}' is a device or another special file")

    def _enter(self, place: PurePosixPath, name: str) -> None:
        """See to it that it is a directory, and so are those above it."""
        if place in self._directories:
            return
        for each in (*reversed(place.parents), place):
            if each not in self._directories:
                path = self._root / each
                with suppress(FileExistsError):
                    path.mkdir()
                if not stat.S_ISDIR(path.lstat().st_mode):
                    raise ArchiveError(f"'{name}' leads through '{each}', which is a link or a file")
                self._directories.add(each)

    def _write(self, tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = _make(path, lambda: os.open(path, flags, 0o600))
        with os.fdopen(descriptor, "wb") as file:
            data = tar.extractfile(member)
            assert data is not None
            with data:
                shutil.copyfileobj(data, file, _CHUNK_BYTES)
            file.flush()
            # no setuid; and conda-unpack writes to some
            os.fchmod(descriptor, member.mode & 0o777 | 0o600)
            # compiled modules are held against the times of their sources
            with suppress(OverflowError, ValueError):
                os.utime(descriptor, (member.mtime, member.mtime))


def _make(path: Path, make: Callable[[], Made]) -> Made:
    """Make a file or a link; a later entry of that name takes the place of an earlier one."""
    try:
        return make()
    except FileExistsError:
        path.unlink()
        return make()


def _inside(name: str) -> PurePosixPath:
    """The place of a name, below the directory."""
    place = PurePosixPath(name)
    if place.is_absolute():
        raise ArchiveError(f"Path is absolute: '{name}'")
    if ".." in place.parts:
        raise ArchiveError(f"Path contains '..': '{name}'")
    return place


def _check_target(place: PurePosixPath, member: tarfile.TarInfo) -> None:
    """Refuse a link out of the directory, unless it is a virtual environment's to its interpreter."""
    if place.parent == PurePosixPath("bin") and place.name.startswith("python"):
        return
    if member.linkname.startswith("/"):
        raise ArchiveError(f"Path is absolute: '{member.linkname}', to which '{member.name}' links")
    if os.path.normpath(place.parent / member.linkname).split("/")[0] == "..":
        raise ArchiveError(
            f"Path contains '..' and leaves the environment: '{member.linkname}', to which '{member.name}' links"
        )


def main() -> None:
    """Extract standard input into the directory that the command line names."""
    try:
        extract(sys.stdin.buffer, Path(sys.argv[1]))
    except ArchiveError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
