"""Objects fetched into files, in pieces side by side, each from where an earlier attempt has ended.

Beside a file lies its journal: a byte for each of its pieces, which is 1 once the piece is there.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import ObjectStore

from halimede.core.errors import OutOfMemoryError, UnavailableError
from halimede.repository.cloud.failures import ReplacedError, failure, is_final
from halimede.repository.cloud.listing import BucketObject, plain_tag
from halimede.repository.cloud.locations import Location

PIECE_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20
_AT_A_TIME = 16
_ATTEMPTS = 5
"""So many attempts in a row that bring nothing end a download."""

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0

_FAILURES = (BaseError, FileNotFoundError, PermissionError, ValueError, ConnectionError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Download:
    """An object to fetch.

    Attributes:
        key: its key.
        expected: its size and ETag.
        path: the file to write.
    """

    key: str
    expected: BucketObject
    path: Path

    @property
    def journal(self) -> Path:
        """Says which pieces are there."""
        return self.path.with_name(f"{self.path.name}.pieces")

    @property
    def missing(self) -> list[int]:
        """Where the pieces begin that are not there."""
        begins = range(0, self.expected.size, PIECE_BYTES)
        try:
            done = self.journal.read_bytes() if self.path.exists() else b""
        except FileNotFoundError:
            done = b""
        return [begin for number, begin in enumerate(begins) if done[number : number + 1] != b"\1"]

    def length(self, begin: int) -> int:
        """The bytes of the piece that begins there."""
        return min(PIECE_BYTES, self.expected.size - begin)


class Downloads:
    """Fetches objects, for many models at once. Any thread may use it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_AT_A_TIME, "halimede-fetch")
        self._stop = threading.Event()

    def stop(self) -> None:
        """Have what is under way end soon, with an error."""
        self._stop.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def run(
        self,
        store: ObjectStore,
        location: Location,
        files: Sequence[Download],
        progress: Callable[[int], None],
    ) -> None:
        """Fetch objects. Blocks. What has been fetched when this fails is used by the next attempt.

        Args:
            store: the bucket.
            location: the repository, for texts.
            files: what to fetch.
            progress: called on any thread with how many further bytes there are.

        Raises:
            ReplacedError: an object was replaced or removed after it was listed.
            BucketError: the bucket does not give it.
            OutOfMemoryError: the disk is full.
            UnavailableError: the server is stopping.
        """
        failed = threading.Event()
        under_way: list[Future[None]] = []
        try:
            for file in files:
                file.path.touch()
                for begin in file.missing:
                    piece = _Piece(store, location, file, begin, progress, (self._stop, failed))
                    under_way.append(self._threads.submit(piece.run))
        except RuntimeError:  # the threads have ended
            raise _stopping() from None
        wait(under_way, return_when=FIRST_EXCEPTION)
        failed.set()
        for future in under_way:
            future.cancel()
        wait(under_way)
        errors = [future.exception() for future in under_way if not future.cancelled()]
        for error in errors:
            if error is not None and not isinstance(error, _AbandonedError):
                raise error
        if len(errors) < len(under_way) or any(errors):
            raise _stopping()


class _AbandonedError(Exception):
    """Another piece has failed, or the server is stopping."""


class _Piece:
    """A piece of an object on its way into a file."""

    def __init__(
        self,
        store: ObjectStore,
        location: Location,
        file: Download,
        begin: int,
        progress: Callable[[int], None],
        stops: tuple[threading.Event, ...],
    ) -> None:
        self._store = store
        self._location = location
        self._file = file
        self._have = self._begin = begin
        self._end = begin + file.length(begin)
        self._progress = progress
        self._stops = stops

    def run(self) -> None:
        """Fetch it; connections that break are made again, after pauses that grow."""
        failures = 0
        descriptor = os.open(self._file.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            while self._have < self._end:
                before = self._have
                try:
                    for chunk in self._answer():
                        self._check()
                        self._write(descriptor, chunk)
                    if self._have < self._end:
                        raise ConnectionError(
                            f"the answer ended after {self._have - before:,} of {self._end - before:,} bytes"
                        )
                except _FAILURES as error:
                    failures = 1 if self._have > before else failures + 1
                    if is_final(error) or failures == _ATTEMPTS:
                        raise failure(self._location, self._file.key, "read", error) from None
                    self._pause(min(_FIRST_PAUSE_S * 2 ** (failures - 1), _LONGEST_PAUSE_S))
        finally:
            os.close(descriptor)
        self._note()

    def _answer(self) -> Iterator[bytes]:
        self._check()
        expected = self._file.expected
        answer = obstore.get(
            self._store,
            self._file.key,
            options={"range": (self._have, self._end), "if_match": f'"{expected.tag}"'},
        )
        found = BucketObject(answer.meta["size"], plain_tag(answer.meta["e_tag"]))
        if found != expected or tuple(answer.range) != (self._have, self._end):
            raise ReplacedError(
                f"cannot read {self._location.url} (bucket '{self._location.bucket}', key '{self._file.key}'): "
                f"{found.size:,} bytes with ETag '{found.tag}' come where {expected.size:,} with '{expected.tag}' "
                "were listed. Try again"
            )
        return iter(answer.stream(min_chunk_size=_CHUNK_BYTES))

    def _check(self) -> None:
        if any(stop.is_set() for stop in self._stops):
            raise _AbandonedError

    def _pause(self, seconds: float) -> None:
        self._stops[0].wait(seconds)
        self._check()

    def _write(self, descriptor: int, chunk: bytes) -> None:
        rest = memoryview(chunk)[: self._end - self._have]
        while rest:
            try:
                count = os.pwrite(descriptor, rest, self._have)
            except OSError as error:
                raise disk_full(self._file.path, error) from error
            rest = rest[count:]
            self._have += count
            self._progress(count)

    def _note(self) -> None:
        descriptor = os.open(self._file.journal, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.pwrite(descriptor, b"\1", self._begin // PIECE_BYTES)
        finally:
            os.close(descriptor)


def disk_full(path: Path, error: OSError) -> OutOfMemoryError:
    """The disk does not take what is fetched."""
    return OutOfMemoryError(
        f"models cannot be kept in {path.parent}: {error.strerror or error}; free some of the disk, or name another "
        "directory with --cloud-cache-directory"
    )


def _stopping() -> UnavailableError:
    return UnavailableError("Server is stopping, models are no longer fetched")
