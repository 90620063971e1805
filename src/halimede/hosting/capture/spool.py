"""Spool files: what was captured, as it was sent, until it is made into records and uploaded.

    .NAME      is being made
    NAME.open  is being written, by the process that holds its lock
    NAME.raw   is complete
    NAME.jsonl has been made of that one, and is being uploaded

A file begins with where it goes; then one frame follows the other: a fixed head, a few words of JSON, the request and
the response. Whatever a process that was killed has written last is known by its length to be whole or not.
"""

import fcntl
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import orjson

OPEN: Final = ".open"
RAW: Final = ".raw"
RECORDS: Final = ".jsonl"

_HEAD: Final = struct.Struct("<4sIQQ")
_PLACE: Final = b"hal0"
_FRAME: Final = b"hal1"
_MAX_ABOUT: Final = 1 << 20
_MAX_BUFFERS: Final = 1024
"""So many buffers Linux takes in one call (IOV_MAX)."""

_STAMP: Final = "%Y%m%dT%H%M%S"


@dataclass(frozen=True, slots=True)
class CapturePlace:
    """Of which variant records are, and where they go.

    Attributes:
        account, region, endpoint, variant: whose they are.
        destination: ``s3://BUCKET`` or ``s3://BUCKET/PREFIX``.
    """

    account: str
    region: str
    endpoint: str
    variant: str
    destination: str

    @property
    def bucket(self) -> str:
        """The bucket."""
        return self.destination.removeprefix("s3://").partition("/")[0]

    def url(self, name: str) -> str:
        """Where the records of the spool file with that name go: a key for each hour, as SageMaker has them."""
        stamp, _, rest = name.partition("-")
        begun = datetime.strptime(stamp[:-3], _STAMP)
        below = (
            f"{self.endpoint}/{self.variant}/{begun:%Y/%m/%d/%H}/{begun:%M-%S}-{stamp[-3:]}-{rest}{RECORDS}"
        )
        return f"{self.destination.rstrip('/')}/{below}"


def file_name(now: float) -> str:
    """The name of a file that is begun now (seconds since 1970); their order is that of their times."""
    begun = datetime.fromtimestamp(now, UTC)
    return f"{begun.strftime(_STAMP)}{begun.microsecond // 1000:03}-{uuid4()}"


@dataclass(frozen=True, slots=True)
class Frame:
    """One captured invocation, as a spool file has it.

    Attributes:
        about: what is known of it but for the bodies.
        asked, answered: the bodies of request and response.
        end: where it ends in the file.
    """

    about: dict[str, Any]
    asked: bytes
    answered: bytes
    end: int


class SpoolError(Exception):
    """A file is cut off or damaged where the attribute `position` says; all before that is whole."""

    def __init__(self, position: int) -> None:
        super().__init__(f"it is cut off or damaged at byte {position}")
        self.position = position


class SpoolFile:
    """A file that is being written. Blocks.

    Attributes:
        size: bytes written so far.
        begun: when it was made, in seconds since 1970.
    """

    def __init__(self, directory: Path, place: CapturePlace, now: float) -> None:
        """A new file.

        Raises:
            OSError: it cannot be written.
        """
        name = file_name(now)
        self.begun = now
        self.size = 0
        self._path = directory / f"{name}{OPEN}"
        self._complete = directory / f"{name}{RAW}"
        hidden = directory / f".{name}"
        self._descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)  # before anybody can see it
            about = orjson.dumps(asdict(place))
            self.write([_HEAD.pack(_PLACE, len(about), 0, 0), about])
            hidden.rename(self._path)
        except OSError:
            os.close(self._descriptor)
            hidden.unlink(missing_ok=True)
            raise

    def write(self, buffers: list[bytes]) -> None:
        """Append frames.

        Raises:
            OSError: not all of them could be written; the file is to be abandoned.
        """
        written = 0
        for begin in range(0, len(buffers), _MAX_BUFFERS):
            written += self._write_some(buffers[begin : begin + _MAX_BUFFERS])
        self.size += written

    def abandon(self) -> None:
        """Write no more, after a failure: `complete_abandoned` has what was written before."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, self.size)
        os.close(self._descriptor)

    def _write_some(self, buffers: list[bytes]) -> int:
        size = sum(map(len, buffers))
        written = os.writev(self._descriptor, buffers)
        if written < size:  # there was no room for all of it
            rest = memoryview(b"".join(buffers))
            while written < size:
                written += os.write(self._descriptor, rest[written:])
        return size

    def close(self) -> None:
        """It is complete.

        Raises:
            OSError: it is not there any more.
        """
        try:
            self._path.rename(self._complete)
        finally:
            os.close(self._descriptor)


def frame(about: dict[str, Any], asked: Iterable[bytes], answered: Iterable[bytes]) -> list[bytes]:
    """A frame, in parts: the bodies are not copied."""
    text = orjson.dumps(about)
    asked, answered = list(asked), list(answered)
    head = _HEAD.pack(_FRAME, len(text), sum(map(len, asked)), sum(map(len, answered)))
    return [head + text, *asked, *answered]


def read_place(path: Path) -> CapturePlace:
    """Where the records of a file go.

    Raises:
        OSError: it cannot be read.
        SpoolError: it does not say.
    """
    with path.open("rb") as file:
        return _read_place(file)


def _read_place(file: BufferedReader) -> CapturePlace:
    try:
        magic, length, *_ = _HEAD.unpack(file.read(_HEAD.size))
        if magic == _PLACE and length <= _MAX_ABOUT:
            return CapturePlace(**orjson.loads(file.read(length)))
    except (struct.error, ValueError, TypeError):
        pass
    raise SpoolError(0)


def read_frames(path: Path) -> Iterator[Frame]:
    """What a file holds, in order.

    Raises:
        OSError: it cannot be read.
        SpoolError: after all whole frames, if something else follows them.
    """
    with path.open("rb") as file:
        _read_place(file)
        size = os.fstat(file.fileno()).st_size
        while (position := file.tell()) < size:
            text, asked, answered = _lengths(file, position, size)
            try:
                about = orjson.loads(file.read(text))
            except ValueError:
                raise SpoolError(position) from None
            yield Frame(
                about, file.read(asked), file.read(answered), position + _HEAD.size + text + asked + answered
            )


def _measure(path: Path) -> tuple[int, int]:
    """How many whole frames a file holds, and where the last one ends."""
    count = position = 0
    with path.open("rb") as file, suppress(SpoolError):
        _read_place(file)
        size = os.fstat(file.fileno()).st_size
        while (position := file.tell()) < size:
            file.seek(sum(_lengths(file, position, size)), os.SEEK_CUR)
            count += 1
    return count, position


def _lengths(file: BufferedReader, position: int, size: int) -> tuple[int, int, int]:
    """The lengths in the head of the frame that begins here; `size` is the file's."""
    try:
        magic, *lengths = _HEAD.unpack(file.read(_HEAD.size))
    except struct.error:
        raise SpoolError(position) from None
    if magic != _FRAME or position + _HEAD.size + sum(lengths) > size:
        raise SpoolError(position)
    text, asked, answered = lengths
    return text, asked, answered


def complete_abandoned(path: Path) -> bool:
    """Make complete what a process that has ended was writing; True if a record that was cut off is dropped with it.

    A file that is being written is left alone.

    Raises:
        OSError: it cannot be read or written.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False  # completed a moment ago
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if not path.exists():
            return False
        count, end = _measure(path)
        is_cut = end < os.fstat(descriptor).st_size
        if count:
            os.ftruncate(descriptor, end)
            path.rename(path.with_suffix(RAW))
        else:
            path.unlink()
        return is_cut
    finally:
        os.close(descriptor)
