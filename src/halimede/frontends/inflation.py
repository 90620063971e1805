"""Compressed bodies and messages: at once if little is in them, else piece by piece, counted against a budget."""

import asyncio
import zlib
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from halimede.core.tensors import Buffer
from halimede.net.line import Place
from halimede.net.receiving import SMALL_BYTES, ReceiveBudget, ReceiveError, Reception

GZIP: Final = zlib.MAX_WBITS | 16
DEFLATE: Final = zlib.MAX_WBITS
EITHER: Final = zlib.MAX_WBITS | 32
"""What zlib reads: a stream of this format, or of whichever of the two comes."""

PIECE_SIZE: Final = 4 * 2**20
_PIECE_READ: Final = 64 * 2**10
"""What is decompressed, and read, in one step: some milliseconds of work."""


class Fault(Enum):
    """What is wrong with compressed data."""

    DAMAGED = auto()
    CUT_OFF = auto()
    FOLLOWED = auto()  # by other data
    TOO_LONG = auto()  # its content is
    NO_MEMORY = auto()


class InflateError(Exception):
    """Data cannot be decompressed.

    Attributes:
        fault: what is wrong.
        detail: what zlib says of it, "" for nothing.
        size: bytes of its content as far as they are known.
    """

    def __init__(self, fault: Fault, detail: str = "", size: int = 0) -> None:
        super().__init__(f"{fault.name} {detail}")
        self.fault = fault
        self.detail = detail
        self.size = size


def inflate(data: Buffer, wbits: int, limit: int) -> bytes:
    """The content of compressed data, of which no more than `limit` bytes are held, and one.

    Args:
        data: one whole stream.
        wbits: its format, as zlib numbers them.
        limit: the most bytes that it may hold.

    Raises:
        InflateError: it is damaged or longer.
    """
    decompressor = zlib.decompressobj(wbits)
    try:
        content = decompressor.decompress(data, limit + 1)
    except zlib.error as error:
        raise InflateError(Fault.DAMAGED, str(error)) from None
    if len(content) > limit:
        raise InflateError(Fault.TOO_LONG, size=len(content))
    if not decompressor.eof:
        raise InflateError(Fault.CUT_OFF)
    if decompressor.unused_data:
        raise InflateError(Fault.FOLLOWED)
    return content


def inflate_little(data: Buffer, wbits: int, limit: int) -> bytes | None:
    """As `inflate`; None if the data hold more than a little, which takes long and should be counted."""
    few = min(SMALL_BYTES, limit)
    try:
        return inflate(data, wbits, few)
    except InflateError as error:
        if error.fault is Fault.TOO_LONG and error.size <= limit:
            return None
        raise


class Inflater:
    """Compressed data that is decompressed piece by piece.

    Attributes:
        data: what is compressed.
        wbits: its format.
        limit: the most bytes that it may hold.
        complete: all of it is decompressed.
    """

    def __init__(self, data: Buffer, wbits: int, limit: int) -> None:
        """Nothing is decompressed yet.

        Args:
            data: one whole stream.
            wbits: its format, as zlib numbers them.
            limit: the most bytes that it may hold.
        """
        self.data = memoryview(data)
        self.wbits = wbits
        self.limit = limit
        self._decompressor = zlib.decompressobj(wbits)
        self._read = 0
        self._room: npt.NDArray[np.uint8] | None = None
        self._size = 0
        self.complete = False

    def step(self) -> int:
        """Decompress a piece: how many bytes it has.

        Raises:
            InflateError: the data is damaged or holds more than it may.
        """
        decompressor = self._decompressor
        data: Buffer = decompressor.unconsumed_tail
        if not data:
            data = self.data[self._read : self._read + _PIECE_READ]
            self._read += len(data)
        most = min(PIECE_SIZE, self.limit + 1 - self._size)
        try:
            piece = decompressor.decompress(data, most)
        except zlib.error as error:
            raise InflateError(Fault.DAMAGED, str(error)) from None
        size = self._size + len(piece)
        if size > self.limit:
            raise InflateError(Fault.TOO_LONG, size=size)
        self._keep(piece)
        all_read = self._read >= len(self.data)
        if decompressor.eof:
            if decompressor.unused_data or not all_read:
                raise InflateError(Fault.FOLLOWED)
            self.complete = True
        elif not piece and not decompressor.unconsumed_tail and all_read:
            raise InflateError(Fault.CUT_OFF)
        return len(piece)

    def take(self) -> memoryview:
        """The content, once it is `complete`, in memory of an array; it is forgotten here."""
        room, self._room = self._room, None
        return memoryview(b"") if room is None else room[: self._size].data

    def _keep(self, piece: bytes) -> None:
        size = self._size + len(piece)
        if self._room is None:
            try:
                self._room = np.empty(self.limit, np.uint8)  # of which the system gives what is used
            except MemoryError:
                raise InflateError(Fault.NO_MEMORY) from None
        self._room[self._size : size] = np.frombuffer(piece, np.uint8)
        self._size = size


class Client(Protocol):
    """For whom something is decompressed."""

    @property
    def closed(self) -> bool:
        """It is not there any more."""


class Inflation:
    """Data that is decompressed off the loop.

    What holds little never waits. Of other data a few are decompressed at a time, the rest waits compressed; what it
    has become counts for as long as anybody uses it.
    """

    def __init__(
        self,
        budget: ReceiveBudget,
        inflater: Inflater,
        client: Client,
        done: Callable[[memoryview], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Begin.

        Args:
            budget: counts the memory.
            inflater: decompresses the data.
            client: once it is closed, nothing more is decompressed.
            done: gets the content.
            failed: gets the error if there is none: the inflater's, or the budget's.
        """
        self._budget = budget
        self._inflater = inflater
        self._client = client
        self._done = done
        self._failed = failed
        self._place: Place | None = None
        self._reception: Reception | None = None
        self._waits = False
        self._working = False
        self._cancelled = False
        self._refused: ReceiveError | None = None
        arguments = inflater.data, inflater.wbits, inflater.limit
        work = asyncio.get_running_loop().run_in_executor(None, inflate_little, *arguments)
        work.add_done_callback(self._tried)

    def _tried(self, work: asyncio.Future[bytes | None]) -> None:
        """It was decompressed as if it held little."""
        error = work.exception()
        if self._cancelled or self._client.closed:
            return
        if isinstance(error, Exception):
            self._fail(error)
            return
        content = work.result()
        if content is None:
            self._place = self._budget.inflating.join(self._begin, self._give_up)
        else:
            self._done(memoryview(content))

    def _begin(self) -> None:
        if self._client.closed:
            asyncio.get_running_loop().call_soon(self.cancel)
            return
        try:
            self._reception = self._budget.open(self, SMALL_BYTES + 1)
        except ReceiveError as error:
            asyncio.get_running_loop().call_soon(self._fail, error)
            return
        if not self._waits:
            self._go_on()

    def _give_up(self) -> None:
        self._fail(self._budget.no_room())

    def _fail(self, error: Exception) -> None:
        if not self._cancelled:
            self.cancel()
            self._failed(error)

    def _go_on(self) -> None:
        self._working = True
        work = asyncio.get_running_loop().run_in_executor(None, self._inflater.step)
        work.add_done_callback(self._stepped)

    def _stepped(self, work: asyncio.Future[int]) -> None:
        self._working = False
        error = work.exception() or self._refused
        if self._reception is None or self._client.closed:
            self.cancel()
            return
        if isinstance(error, Exception):
            self._fail(error)
            return
        self._reception.add(work.result())
        if self._inflater.complete:
            content = self._inflater.take()
            self._budget.keep_while(content.obj, len(content))
            self.cancel()
            self._done(content)
        elif not self._waits:
            self._go_on()

    def cancel(self) -> None:
        """Decompress nothing more."""
        self._cancelled = True
        place, self._place = self._place, None
        if place is not None:
            place.leave()
        reception, self._reception = self._reception, None  # which refers to this
        if reception is not None:
            reception.close()

    # the budget calls

    @property
    def may_send(self) -> bool:
        """No client is waited for."""
        return False

    def hold_back(self) -> None:
        """Decompress no more until `go_on`."""
        self._waits = True

    def go_on(self) -> None:
        """Decompress the next piece."""
        self._waits = False
        if not self._working and self._reception is not None:
            self._go_on()

    def refuse_body(self, error: ReceiveError) -> None:
        """Give the data up."""
        self._refused = error
        if not self._working and self._reception is not None:
            self._fail(error)
