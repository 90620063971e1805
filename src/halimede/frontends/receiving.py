"""How much memory unfinished request bodies take together (`--receive-memory-budget`), whatever protocol they come by.

A body that arrives in one read is never counted. The others are of two kinds, each with a share of the budget:

    small (up to 256 KiB)   counted whole from the beginning. When they need more than an eighth of the budget, those
                            that have been coming for longest are refused, so that new ones always get through.
    large                   counted as far as they have arrived. When they hold three quarters of the rest, only the
                            oldest are read on, which must then keep up a rate; the others wait in the network.
                            When they hold all of it, the newest of the larger ones is refused.

The oldest always goes on or is refused, so that bodies that fill the budget do not wait for each other.

Decompressed messages that are in use, and answers that clients do not read, are kept: they leave so much less for large
bodies. Such answers may take half of the budget (`unsent`).

A large body that comes too slowly is refused, also while there is memory.
"""

import asyncio
from typing import Protocol

from halimede.core.buffers import POOL
from halimede.frontends.unsent import UnsentAnswers

SMALL_BYTES = 262_144
"""Bodies up to this size are small."""

_SMALL_SHARE = 8
"""One part in so many of the budget is for small bodies."""

_READERS = 4
"""While memory is short, so many of the large bodies are read, or one in `_READ_SHARE` if that is more."""

_READ_SHARE = 8

UNLIMITED = 1 << 62

STALL_S = 60.0
LEAST_RATE = 1024
"""A large body may not receive less than so many bytes a second in two successive periods of so many seconds."""


class ReceiveError(Exception):
    """The body cannot be received; the text says why."""


class BodyTooLargeError(ReceiveError):
    """It could not be received even if there were no other."""


class NoRoomError(ReceiveError):
    """Others take the memory that there is for it; it may be sent again later."""


class StalledError(ReceiveError):
    """It comes too slowly."""


class Receiver(Protocol):
    """Who receives a body, as a budget sees it."""

    @property
    def may_send(self) -> bool:
        """Whether it is the client for whom the rest of the body is waited, as it is read."""

    def hold_back(self) -> None:
        """Read no more of the body until `go_on`."""

    def go_on(self) -> None:
        """Read on."""

    def refuse_body(self, error: ReceiveError) -> None:
        """Give up the body, and tell the client why."""


class Reception:
    """One body that is being received. Its memory counts until `close`.

    Attributes:
        held: bytes that count for it.
        closed: it counts no more.
    """

    __slots__ = (
        "_budget",
        "closed",
        "held",
        "held_back",
        "known",
        "large",
        "receiver",
        "since",
        "slow",
        "turn_began",
        "watched_held",
        "watched_since",
    )

    def __init__(
        self, budget: "ReceiveBudget", receiver: Receiver, held: int, *, large: bool, known: bool
    ) -> None:
        self._budget = budget
        self.receiver = receiver
        self.held = held
        self.large = large
        self.known = known  # a small one whose size was counted at the beginning
        self.closed = False
        self.held_back = False
        self.turn_began = 0  # what it held when its turn began
        self.since = 0.0  # since when it has its turn, or is held back
        self.watched_held = 0  # what it held when its rate was looked at
        self.watched_since = 0.0  # when that was
        self.slow = False  # it was too slow then

    def add(self, size: int) -> None:
        """So many more bytes have arrived."""
        if not (self.known or self.closed):
            self.held += size
            self._budget.added(self, size)

    def close(self) -> None:
        """The body is complete, or given up."""
        if not self.closed:
            self.closed = True
            self._budget.closed(self)


class ReceiveBudget:
    """The memory of all bodies that are being received. Used on the event loop only.

    Attributes:
        limit: bytes that they may take together.
        large_limit: bytes of it that large ones may take.
        unsent: the answers that clients do not read.
    """

    def __init__(
        self,
        limit: int = UNLIMITED,
        *,
        turn_s: float = 5.0,
        turn_rate: int = 65_536,
        wait_s: float = 60.0,
        stall_s: float = STALL_S,
        least_rate: int = LEAST_RATE,
    ) -> None:
        """A budget.

        Args:
            limit: in bytes.
            turn_s: while memory is short, how often the bodies that are read are looked at, in seconds.
            turn_rate: bytes a second that such a body must receive.
            wait_s: how long a body may be held back.
            stall_s: how often the rate of large bodies is looked at, in seconds.
            least_rate: bytes a second that a large body must receive then, also while there is memory.
        """
        self.limit = limit
        self._small_limit = limit // _SMALL_SHARE
        self.large_limit = limit - self._small_limit
        self._high = self.large_limit // 4 * 3
        self._low = self.large_limit // 2
        self._small_bytes = min(SMALL_BYTES, self._small_limit // _SMALL_SHARE)
        self._small: dict[Reception, None] = {}
        self._small_held = 0
        self._large: dict[Reception, None] = {}
        self._large_held = 0
        self._turn_s = turn_s
        self._turn_rate = turn_rate
        self._wait_s = wait_s
        self._stall_s = stall_s
        self._least_rate = least_rate
        self._watch: asyncio.TimerHandle | None = None
        self._kept = 0
        self.unsent = UnsentAnswers(limit // 2, self.keep, turn_s=turn_s, turn_rate=turn_rate)
        self._short = False
        self._timer: asyncio.TimerHandle | None = None
        self._due: asyncio.Handle | None = None

    @property
    def held(self) -> int:
        """Bytes that unfinished bodies take."""
        return self._small_held + self._large_held

    @property
    def kept(self) -> int:
        """Bytes that are kept: decompressed messages and unsent answers."""
        return self._kept

    def keep(self, size: int) -> None:
        """So many more bytes are kept, or fewer."""
        self._kept += size
        if size > 0 and self._large_taken > self._high:
            self._run_short()
        elif size < 0 and self._short:
            self._relieve_soon()

    def release(self, size: int) -> None:
        """So many bytes are kept no longer."""
        self.keep(-size)

    @property
    def _large_taken(self) -> int:
        """What there is no more room for large bodies in."""
        return self._large_held + self._kept

    def open(self, receiver: Receiver, length: int) -> Reception:
        """A body begins.

        Args:
            receiver: told to wait, to go on, or to give up. `refuse_body` and `go_on` are called in a turn of the loop
                of their own, `hold_back` at once.
            length: its bytes; -1 if nobody knows yet.

        Raises:
            BodyTooLargeError: it could never be received.
        """
        if length > self.large_limit:
            raise self._too_large(f"{length} bytes")
        if length > self._small_bytes:
            reception = Reception(self, receiver, 0, large=True, known=False)
            self._add_large(reception)
            return reception
        size = max(0, length)
        reception = Reception(self, receiver, size, large=False, known=length >= 0)
        self._small[reception] = None
        self._small_held += size
        if self._small_held > self._small_limit:
            self._relieve_soon()
        return reception

    # what receptions tell

    def added(self, reception: Reception, size: int) -> None:
        """The reception has received `size` more bytes."""
        if reception.large:
            self._large_held += size
            if self._large_taken > self._high:
                self._run_short()
        else:
            self._small_held += size
            if reception.held > self._small_bytes:
                del self._small[reception]
                self._small_held -= reception.held
                reception.large = True
                self._large_held += reception.held
                self._add_large(reception)
            elif self._small_held > self._small_limit:
                self._relieve_soon()

    def closed(self, reception: Reception) -> None:
        """The reception is over."""
        if not reception.large:
            del self._small[reception]
            self._small_held -= reception.held
            return
        del self._large[reception]
        self._large_held -= reception.held
        if self._short:
            self._relieve_soon()

    # shortage

    def _add_large(self, reception: Reception) -> None:
        self._large[reception] = None
        if self.limit == UNLIMITED:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._watch_from(reception, now)
        if self._watch is None:
            self._watch = loop.call_later(self._stall_s, self._look_at_rates)
        if self._short:
            self._hold_back(reception, now)
        elif self._large_taken > self._high:
            self._run_short()

    def _look_at_rates(self) -> None:
        """Refuse large bodies that have come too slowly for a while."""
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(self._stall_s, self._look_at_rates) if self._large else None
        now = loop.time()
        for reception in list(self._large):
            waited = now - reception.watched_since
            if reception.closed or waited < self._stall_s / 2:
                continue
            least = reception.watched_held + waited * self._least_rate
            slow = reception.held < least and reception.receiver.may_send and not reception.held_back
            if slow and reception.slow:  # twice, as the client may not have been read in a part of the time
                self._refuse(
                    reception, StalledError(f"the body is slower than {self._least_rate} bytes a second")
                )
            self._watch_from(reception, now)
            reception.slow = slow

    @staticmethod
    def _watch_from(reception: Reception, now: float) -> None:
        reception.watched_since = now
        reception.watched_held = reception.held
        reception.slow = False

    def _run_short(self) -> None:
        if not self._short:
            self._short = True
            now, readers = asyncio.get_running_loop().time(), self._readers
            for place, reception in enumerate(self._large):
                self._begin_turn(reception, now)
                if place >= readers:
                    self._hold_back(reception, now)
            self._set_timer()
            self._relieve_soon()
        if self._large_taken > self.large_limit:
            self._relieve_soon()

    @property
    def _readers(self) -> int:
        """How many large bodies may be read while memory is short."""
        return max(_READERS, len(self._large) // _READ_SHARE)

    def _hold_back(self, reception: Reception, now: float) -> None:
        reception.held_back = True
        reception.since = now
        reception.receiver.hold_back()

    def _begin_turn(self, reception: Reception, now: float) -> None:
        if reception.held_back:
            self._watch_from(reception, now)
        reception.held_back = False
        reception.since = now
        reception.turn_began = reception.held

    def _relieve_soon(self) -> None:
        if self._due is None:
            self._due = asyncio.get_running_loop().call_soon(self._relieve)

    def _relieve(self) -> None:
        """Refuse what does not fit, and let go on what does."""
        self._due = None
        while self._small_held > self._small_limit and self._small:
            self._refuse(next(iter(self._small)))
        while self._large_taken > self.large_limit and self._large:
            self._refuse(self._newest())
        POOL.release()
        if self._short and self._large_taken <= self._low:
            self._short = False
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        self._let_go_on()

    def _let_go_on(self) -> None:
        now, readers = asyncio.get_running_loop().time(), self._readers if self._short else len(self._large)
        for place, reception in enumerate(list(self._large)):
            if place >= readers:
                break
            if reception.held_back and not reception.closed:
                self._begin_turn(reception, now)
                reception.receiver.go_on()

    def _newest(self) -> Reception:
        """The newest large body that holds its share or more; but not the oldest, unless there is no other."""
        share = self._large_held // len(self._large)
        bodies = list(self._large)[::-1]
        return next((body for body in bodies[:-1] if body.held >= share), bodies[0])

    def _refuse(self, reception: Reception, error: ReceiveError | None = None) -> None:
        if error is not None:
            pass
        elif reception.held > self.large_limit:
            error = self._too_large(f"{reception.held} bytes or more")
        else:
            error = NoRoomError(
                f"unfinished request bodies{' and unsent answers' if self._kept else ''} take all of the {self.limit} "
                f"bytes that they may (--receive-memory-budget); try again later"
            )
        reception.close()
        reception.receiver.refuse_body(error)

    def _too_large(self, size: str) -> BodyTooLargeError:
        return BodyTooLargeError(
            f"the body of {size} is larger than the {self.large_limit} bytes that bodies may take together while they "
            f"are received; --receive-memory-budget sets how much they may"
        )

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._turn_s, self._end_turn)

    def _end_turn(self) -> None:
        """Refuse those that were slow though it was their turn, and those that have waited too long."""
        self._timer = None
        if not self._short:
            return
        now = asyncio.get_running_loop().time()
        for reception in list(self._large):
            if reception.closed:
                continue
            if reception.held_back:
                slow = now - reception.since > self._wait_s
            elif now - reception.since >= self._turn_s / 2:
                slow = reception.held - reception.turn_began < (now - reception.since) * self._turn_rate
                self._begin_turn(reception, now)
            else:
                slow = False
            if slow:
                self._refuse(reception)
        self._set_timer()
        self._relieve_soon()
