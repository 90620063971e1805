"""Extracting a tar archive safely, whoever made it.

This is run as a program of its own, which `command` names: unpacking tens of thousands of files does not slow down what
the server serves, and what an archive makes the decompressors ask for does not take the server's memory. Thus it needs
nothing but the standard library.

Nothing is ever written through a link: the directories on the way to a file are known to be directories.
"""

import errno
import json
import os
import resource
import shutil
import stat
import sys
import tarfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar

from halimede.repository.archive_links import Links, shown
from halimede.repository.archive_stream import CHUNK_BYTES, DAMAGES, ArchiveError, read_members

Made = TypeVar("Made")

REFUSED, NO_ROOM = 2, 3
"""How the program exits if the archive cannot be extracted, and if the disk has no room for it."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of the errors that say that a disk is full."""

_MAX_MEMORY = 1 << 30
"""Bytes of address space of the program; only xz and zstd with their largest windows ask for more."""

_DEEPEST = 100
"""Directories above a file; whoever removes them, or looks for a change in them, goes down step by step."""

_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from halimede.repository.archives import main; main()"
)


class NoRoomError(ArchiveError):
    """The disk has no room for what is in the archive."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What an archive may hold.

    Attributes:
        entries: how many files, directories and links there may be; None for any number.
        ratio: how many bytes there may be for each byte of the archive; None for any number.
        ratio_from: bytes from which on the ratio counts. Few bytes are no danger, and may well be all zeros.
        reserve: bytes of the disk that must stay free.
        interpreter_links: whether `bin/python*` may be links to where they like, as in a virtual environment.
    """

    entries: int | None = None
    ratio: int | None = None
    ratio_from: int = 0
    reserve: int = 0
    interpreter_links: bool = False


ENVIRONMENT = Rules(interpreter_links=True)
"""Rules for an archive of a Python environment. Whoever made it runs programs here anyway."""


def command(directory: Path, rules: Rules) -> list[str]:
    """The program that extracts standard input, which must be a file, into an empty directory.

    It says on standard error why it cannot, and exits with `REFUSED` or `NO_ROOM`.
    """
    place = str(Path(__file__).parents[2])
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, place, str(directory), json.dumps(asdict(rules))]


def file_state(file: FileIO) -> tuple[int, ...]:
    """What changes when a file's content does."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def extract(archive: IO[bytes], directory: Path, rules: Rules) -> None:
    """Extract a tar archive, compressed or not, into an empty directory.

    Files keep their times and their modes, but nobody else may write to them, and their owner may read and write.

    Args:
        archive: the file, at its beginning.
        directory: where to. Its contents are undefined after an error.
        rules: what it may hold.

    Raises:
        NoRoomError: the disk is full.
        ArchiveError: an entry lies or leads outside the directory, there is more in it than it may hold, it is
            damaged, or it cannot be written.
    """
    size = archive.seek(0, os.SEEK_END)
    archive.seek(0)
    most_bytes = None if rules.ratio is None else max(rules.ratio_from, rules.ratio * size)
    extraction = _Extraction(directory, rules, most_bytes)
    try:
        for member, data in read_members(archive, most_bytes):
            extraction.add(member, data)
        extraction.finish()
    except DAMAGES as error:
        raise ArchiveError(f"it is truncated or damaged: {shown(str(error))}") from error
    except MemoryError:
        raise ArchiveError(
            f"it takes more than {_MAX_MEMORY:,} bytes of memory to be extracted; pack it as .tar.gz"
        ) from None


class _Extraction:
    """What has been extracted into a directory so far."""

    def __init__(self, directory: Path, rules: Rules, most_bytes: int | None) -> None:
        self._root = directory
        self._rules = rules
        self._most_bytes = most_bytes
        self._entries = 0
        self._bytes = 0
        self._directories = {PurePosixPath()}
        self._links = Links(_is_interpreter if rules.interpreter_links else lambda _: False)

    def add(self, member: tarfile.TarInfo, data: IO[bytes] | None) -> None:
        """Extract the member at which the archive has arrived."""
        try:
            self._add(member, data)
        except OSError as error:
            name = shown(member.name)
            if error.errno in FULL:
                raise NoRoomError(f"{error.strerror}: {self._needed(member)}") from error
            raise ArchiveError(f"'{name}': {error.strerror}") from error

    def finish(self) -> None:
        """Nothing, if all that has been extracted may be used.

        Raises:
            ArchiveError: a link leads out of the directory.
        """
        self._links.check()

    def _add(self, member: tarfile.TarInfo, data: IO[bytes] | None) -> None:
        place = _inside(member.name)
        if member.isdir():
            self._count(member, max(1, self._enter(place, member.name)))
            return
        self._count(member, 1 + self._enter(place.parent, member.name))
        path = self._root / place
        if data is not None:
            self._write(member, data, path)
            self._links.drop(place)
        elif member.issym():
            _make(path, lambda: path.symlink_to(member.linkname))
            self._links.put(place, member.linkname)
        elif member.islnk():
            self._link(place, _inside(member.linkname), member)
        else:
            raise ArchiveError(f"'{shown(member.name)}' is a device or another special file")

    def _count(self, member: tarfile.TarInfo, made: int) -> None:
        self._entries += made
        if self._rules.entries is not None and self._entries > self._rules.entries:
            raise ArchiveError(
                f"it holds more than {self._rules.entries:,} files, directories and links: '{shown(member.name)}' "
                "is one too many"
            )

    def _enter(self, place: PurePosixPath, name: str) -> int:
        """See to it that it is a directory, and so are those above it; how many had to be made."""
        if place in self._directories:
            return 0
        made = 0
        for each in (*reversed(place.parents), place):
            if each not in self._directories:
                path = self._root / each
                with suppress(FileExistsError):
                    path.mkdir()
                    made += 1
                if not stat.S_ISDIR(path.lstat().st_mode):
                    raise ArchiveError(
                        f"'{shown(name)}' leads through '{shown(str(each))}', which is a link or a file"
                    )
                self._directories.add(each)
        return made

    def _link(self, place: PurePosixPath, target: PurePosixPath, member: tarfile.TarInfo) -> None:
        """Make another name of a file, or of a link, which may lead elsewhere from there."""
        self._enter(target.parent, member.linkname)
        path = self._root / place
        _make(path, lambda: os.link(self._root / target, path, follow_symlinks=False))
        leads_to = self._links.target(target)
        if leads_to is None:
            self._links.drop(place)
        else:
            self._links.put(place, leads_to)

    def _write(self, member: tarfile.TarInfo, data: IO[bytes], path: Path) -> None:
        self._check_size(member)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = _make(path, lambda: os.open(path, flags, 0o600))
        with os.fdopen(descriptor, "wb") as file:
            with data:
                shutil.copyfileobj(data, file, CHUNK_BYTES)
            file.flush()
            # no setuid; and conda-unpack writes to some
            os.fchmod(descriptor, member.mode & 0o755 | 0o600)
            # compiled modules are held against the times of their sources
            with suppress(OverflowError, ValueError):
                os.utime(descriptor, (member.mtime, member.mtime))
        self._bytes += member.size

    def _check_size(self, member: tarfile.TarInfo) -> None:
        """Refuse a file that is too large before it is written. A sparse one is as large as what it becomes."""
        if self._most_bytes is not None and self._bytes + member.size > self._most_bytes:
            raise ArchiveError(
                f"'{shown(member.name)}' takes what is in it to more than {self._most_bytes:,} bytes, the most for an "
                "archive of its size"
            )
        found = os.statvfs(self._root)
        free = found.f_bavail * found.f_frsize
        # some file systems don't tell
        if found.f_blocks and member.size + self._rules.reserve > free:
            raise NoRoomError(f"the disk has no room: {self._needed(member)}")

    def _needed(self, member: tarfile.TarInfo) -> str:
        found = os.statvfs(self._root)
        free = found.f_bavail * found.f_frsize
        reserve = f", of which {self._rules.reserve:,} are to stay free" if self._rules.reserve else ""
        return (
            f"'{shown(member.name)}' needs {member.size:,} bytes after the {self._bytes:,} that came before it, and "
            f"{free:,} bytes are free{reserve}"
        )


def _is_interpreter(place: PurePosixPath) -> bool:
    return place.parent == PurePosixPath("bin") and place.name.startswith("python")


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
        raise ArchiveError(f"Path is absolute: '{shown(name)}'")
    if ".." in place.parts:
        raise ArchiveError(f"Path contains '..': '{shown(name)}'")
    if len(place.parts) > _DEEPEST:
        raise ArchiveError(f"'{shown(name)}' lies in more than {_DEEPEST} directories")
    return place


def main() -> None:
    """Extract standard input as the command line says."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _MAX_MEMORY if soft == resource.RLIM_INFINITY else min(soft, _MAX_MEMORY)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        extract(sys.stdin.buffer, Path(sys.argv[1]), Rules(**json.loads(sys.argv[2])))
    except ArchiveError as error:
        print(error, file=sys.stderr)  # noqa: T201 - whoever started it reads this
        sys.exit(NO_ROOM if isinstance(error, NoRoomError) else REFUSED)
