"""Objects fetched into files, in pieces side by side, each from where an earlier attempt has ended.

Beside a file lies its journal: a byte for each of its pieces, which is 1 once the piece is there.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import ObjectStore

from halimede.core import tasks
from halimede.core.backoff import Backoff
from halimede.core.errors import OutOfMemoryError
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

    def begin(self) -> list[int]:
        """Make the file, unless an earlier attempt has: where the pieces begin that are not there."""
        begins = range(0, self.expected.size, PIECE_BYTES)
        if (
            not self.path.exists()
        ):  # an earlier one may have brought the file to its place, though not all of its model
            self.journal.unlink(missing_ok=True)
            self.path.touch()
        done = self.journal.read_bytes() if self.journal.exists() else b""
        return [begin for number, begin in enumerate(begins) if done[number : number + 1] != b"\1"]

    def length(self, begin: int) -> int:
        """The bytes of the piece that begins there."""
        return min(PIECE_BYTES, self.expected.size - begin)


class Downloads:
    """Fetches objects, for many models at once. Lives on the event loop of requests."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    async def run(
        self,
        store: ObjectStore,
        location: Location,
        files: Sequence[Download],
        progress: Callable[[int], None],
    ) -> None:
        """Fetch objects. What has been fetched when this fails is used by the next attempt.

        Args:
            store: the bucket.
            location: the repository, for texts.
            files: what to fetch.
            progress: called with how many further bytes there are.

        Raises:
            ReplacedError: an object was replaced or removed after it was listed.
            BucketError: the bucket does not give it.
            OutOfMemoryError: the disk is full.
        """
        pieces = []
        for file in files:
            pieces += [_Piece(store, location, file, begin, progress) for begin in file.begin()]
        await tasks.all_of(self._run(piece) for piece in pieces)

    async def _run(self, piece: "_Piece") -> None:
        async with self._slots:
            await piece.run()


class _Piece:
    """A piece of an object on its way into a file."""

    def __init__(
        self,
        store: ObjectStore,
        location: Location,
        file: Download,
        begin: int,
        progress: Callable[[int], None],
    ) -> None:
        self._store = store
        self._location = location
        self._file = file
        self._have = self._begin = begin
        self._end = begin + file.length(begin)
        self._progress = progress

    async def run(self) -> None:
        """Fetch it; connections that break are made again, after pauses that grow."""
        failures, backoff = 0, Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        descriptor = os.open(self._file.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while self._have < self._end:
                before = self._have
                try:
                    await self._receive(descriptor)
                except _FAILURES as error:
                    if self._have > before:
                        failures, backoff = 0, Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
                    failures += 1
                    if is_final(error) or failures == _ATTEMPTS:
                        raise failure(self._location, self._file.key, "read", error) from None
                    await backoff.pause()
        finally:
            os.close(descriptor)
        self._note()

    async def _receive(self, descriptor: int) -> None:
        """Fetch what is missing, as far as one answer brings it."""
        begin = self._have
        expected = self._file.expected
        answer = await obstore.get_async(
            self._store,
            self._file.key,
            options={"range": (begin, self._end), "if_match": f'"{expected.tag}"'},
        )
        found = BucketObject(answer.meta["size"], plain_tag(answer.meta["e_tag"]))
        if found != expected or tuple(answer.range) != (begin, self._end):
            raise ReplacedError(
                f"cannot read {self._location.url} (bucket '{self._location.bucket}', key '{self._file.key}'): "
                f"{found.size:,} bytes with ETag '{found.tag}' come where {expected.size:,} with '{expected.tag}' "
                "were listed. Try again"
            )
        async for chunk in answer.stream(min_chunk_size=_CHUNK_BYTES):
            self._write(descriptor, chunk)
        if self._have < self._end:
            raise ConnectionError(
                f"the answer ended after {self._have - begin:,} of {self._end - begin:,} bytes"
            )

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
