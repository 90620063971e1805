"""Making an archive of models: the same bytes for the same files, whoever packs them, when and where.

Entries are sorted; times, owners and what modes say beyond "executable" are left out. Symbolic links to what is packed
too are kept; what others lead to is packed in their place, so that nothing is missing where the archive is extracted.
"""

import gzip
import os
import stat
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from io import FileIO
from pathlib import Path
from typing import IO, cast

from halimede.core.errors import InvalidArgumentError
from halimede.repository.archives import file_state

LEFT_OUT = (
    "__pycache__", ".git", ".ipynb_checkpoints", ".DS_Store", "._*", "*~", "#*#", ".#*", ".*.sw?",
)  # fmt: skip
"""Names of what is never packed: what programs leave behind, and backups of editors."""


@dataclass(frozen=True, slots=True)
class PackedEntry:
    """What is packed.

    Attributes:
        name: its name in the archive.
        path: where it lies.
        kind: `tarfile.DIRTYPE`, `REGTYPE` or `SYMTYPE`.
        target: where it leads, if it is a link.
        size: its bytes, if it is a file.
    """

    name: str
    path: Path
    kind: bytes
    target: str = ""
    size: int = 0


def list_entries(directory: Path, prefix: str = "", only: Collection[str] | None = None) -> list[PackedEntry]:
    """What is packed of a directory, parents before what is in them.

    Args:
        directory: the directory.
        prefix: the directory of the archive in which its contents come to lie; "" for its root.
        only: names of those of its contents that are packed; None for all.

    Raises:
        InvalidArgumentError: something cannot be read, is neither file nor directory, or is a link that leads nowhere.
    """
    try:
        root = Path(os.path.realpath(directory))
        status = root.stat()
    except OSError as error:
        raise _unreadable(directory, error) from error
    walk = _Walk(root, only)
    above = frozenset([(status.st_dev, status.st_ino)])
    own = [PackedEntry(prefix, directory, tarfile.DIRTYPE)] if prefix else []
    return own + list(walk.below(root, prefix, above, native=True))


def is_left_out(name: str) -> bool:
    """Whether a file or directory of that name is never packed."""
    return any(fnmatchcase(name, pattern) for pattern in LEFT_OUT)


class _Walk:
    """Going through a directory."""

    def __init__(self, root: Path, only: Collection[str] | None) -> None:
        self._root = root
        self._only = only

    def below(
        self, directory: Path, name: str, above: frozenset[tuple[int, int]], *, native: bool
    ) -> Iterator[PackedEntry]:
        """What is packed of a directory.

        Args:
            directory: the directory.
            name: its name in the archive.
            above: what identifies it and those that hold it.
            native: whether it lies where the archive says, and not behind a link that has been followed.
        """
        try:
            names = sorted(entry.name for entry in directory.iterdir())
        except OSError as error:
            raise _unreadable(directory, error) from error
        for each in names:
            if not is_left_out(each) and (
                self._only is None or directory != self._root or each in self._only
            ):
                yield from self._entry(directory / each, f"{name}/{each}" if name else each, above, native)

    def _entry(
        self, path: Path, name: str, above: frozenset[tuple[int, int]], native: bool
    ) -> Iterator[PackedEntry]:
        try:
            if path.is_symlink():
                target = self._packed_target(path) if native else None
                if target is not None:
                    yield PackedEntry(name, path, tarfile.SYMTYPE, target)
                    return
                native = False
            status = path.stat()
        except OSError as error:
            if path.is_symlink():
                raise InvalidArgumentError(
                    f"'{path}' links to '{path.readlink()}', which cannot be packed: {error.strerror}"
                ) from error
            raise _unreadable(path, error) from error
        if stat.S_ISDIR(status.st_mode):
            identity = (status.st_dev, status.st_ino)
            if identity in above:
                raise InvalidArgumentError(f"'{path}' links to a directory that holds it")
            yield PackedEntry(name, path, tarfile.DIRTYPE)
            yield from self.below(path, name, above | {identity}, native=native)
        elif stat.S_ISREG(status.st_mode):
            yield PackedEntry(name, path, tarfile.REGTYPE, size=status.st_size)
        else:
            raise InvalidArgumentError(f"'{path}' is neither a file nor a directory")

    def _packed_target(self, link: Path) -> str | None:
        """Where a link leads, from where it is, by no other link; None if that is not packed.

        Raises:
            OSError: it leads nowhere.
        """
        target = Path(os.path.realpath(link, strict=True))
        if not target.is_relative_to(self._root):
            return None
        parts = target.relative_to(self._root).parts
        if any(map(is_left_out, parts)) or (self._only is not None and parts and parts[0] not in self._only):
            return None
        return os.path.relpath(target, link.parent)


def _unreadable(path: Path, error: OSError) -> InvalidArgumentError:
    return InvalidArgumentError(f"cannot read '{path}': {error.strerror}")


def write_archive(entries: Iterable[PackedEntry], output: IO[bytes], on_bytes: Callable[[int], None]) -> None:
    """Write a .tar.gz.

    Args:
        entries: what to pack, in order.
        output: the file.
        on_bytes: gets how many bytes of files have been read since the last time.

    Raises:
        InvalidArgumentError: a file cannot be read, or was changed meanwhile.
        OSError: the archive cannot be written.
    """
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=output, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for entry in entries:
            info = tarfile.TarInfo(entry.name)
            info.type, info.linkname, info.mode = entry.kind, entry.target, 0o755
            if entry.kind == tarfile.REGTYPE:
                _add_file(tar, info, entry.path, on_bytes)
            else:
                tar.addfile(info)
            tar.members.clear()  # type: ignore[attr-defined]  # there may be very many


def _add_file(
    tar: tarfile.TarFile, info: tarfile.TarInfo, path: Path, on_bytes: Callable[[int], None]
) -> None:
    try:
        file = path.open("rb", buffering=0)
    except OSError as error:
        raise _unreadable(path, error) from error
    with file:
        state = file_state(file)
        status = os.fstat(file.fileno())
        info.size = status.st_size
        info.mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
        tar.addfile(info, cast(IO[bytes], _Reader(path, file, on_bytes)))
        if file_state(file) != state:
            raise _changed(path)


class _Reader:
    """A file that is being packed."""

    def __init__(self, path: Path, file: FileIO, on_bytes: Callable[[int], None]) -> None:
        self._path = path
        self._file = file
        self._on_bytes = on_bytes

    def read(self, size: int) -> bytes:
        """As many bytes, which must be there."""
        try:
            data = self._file.read(size)
        except OSError as error:
            raise _unreadable(self._path, error) from error
        if len(data) < size:
            raise _changed(self._path)
        self._on_bytes(size)
        return data


def _changed(path: Path) -> InvalidArgumentError:
    return InvalidArgumentError(f"'{path}' was changed while it was packed")
