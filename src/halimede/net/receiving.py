"""How much memory requests take together before they run, and answers that are not sent (`--receive-memory-budget`).

A body that arrives in one read is never counted. The others are of two kinds, each with a share of the budget:

    small (up to 256 KiB)   counted whole from the beginning. When they need more than an eighth of the budget, those
                            that have been coming for longest are refused, so that new ones always get through.
    large                   counted as far as they have arrived. When they hold three quarters of the rest, only the
                            oldest are read on, which must then keep up a rate; the others wait in the network.
                            When they hold all of it, the newest of the larger ones is refused.

The oldest always goes on or is refused, so that bodies that fill the budget do not wait for each other. But while
memory is short and half of that for large bodies is kept, they all wait, as it becomes free without them.

What is kept leaves so much less for large bodies: decompressed bodies and messages in use, JSON and messages that wait
to be decoded, what they are decoded to (a `Claim`), and answers that clients do not read, which may take half of the
budget (`unsent`). A claim waits for its memory; the oldest has it, whatever else is counted, when no other has any.

A large body that comes too slowly is refused, also while there is memory.
"""

import asyncio
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from halimede.core.buffers import POOL
from halimede.core.errors import HalimedeError, InvalidArgumentError, UnavailableError
from halimede.net.line import Line
from halimede.net.unsent import RETRY_AFTER_S, UnsentAnswers

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


_INFLATED_AT_ONCE: Final = min(4, os.cpu_count() or 1)
"""So many large bodies and messages are decompressed at a time; the others wait, compressed."""


class ReceiveError(Exception):
    """The body cannot be received; the text says why."""


class BodyTooLargeError(ReceiveError):
    """It could not be received even if there were no other."""


class NoRoomError(ReceiveError):
    """Others take the memory that there is for it; it may be sent again later."""


class StalledError(ReceiveError):
    """It comes too slowly."""


def as_answer(error: ReceiveError) -> HalimedeError:
    """The error for a request that was received, but for whose content there is no memory."""
    if isinstance(error, BodyTooLargeError):
        return InvalidArgumentError(str(error))
    return UnavailableError(str(error), retry_after_s=RETRY_AFTER_S)


def when_freed(owner: Any, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Have the loop call something once an object is freed, on whatever thread that is."""

    def freed() -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(call)

    weakref.finalize(owner, freed).atexit = False


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


class Claim:
    """Memory for what a request is decoded to: waited for, had, or given back."""

    __slots__ = ("_answer", "_budget", "_timer", "granted", "size")

    def __init__(
        self, budget: "ReceiveBudget", size: int, answer: Callable[[ReceiveError | None], None]
    ) -> None:
        self._budget = budget
        self._answer = answer
        self._timer: asyncio.TimerHandle | None = None
        self.size = size
        self.granted = False

    def wait(self, seconds: float, late: Callable[["Claim"], None]) -> None:
        """Have `late` called if it is still not answered then."""
        self._timer = asyncio.get_running_loop().call_later(seconds, late, self)

    def answer(self, error: ReceiveError | None) -> None:
        """It has its memory, or there is none for it."""
        self.granted = error is None
        self._stop()
        self._answer(error)

    def give_back(self) -> None:
        """The memory is free, or not wanted any more. May be called again."""
        self._stop()
        self._budget.given_back(self)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class ReceiveBudget:
    """The memory of bodies that are being received, and of what is kept. Used on the event loop only.

    Attributes:
        limit: bytes that they may take together.
        large_limit: bytes of it that large ones may take.
        unsent: the answers that clients do not read.
        inflating: the large bodies and messages that are decompressed.
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
        self._owners: set[int] = set()
        self._claims: dict[Claim, None] = {}  # those that wait
        self._claimed: set[Claim] = set()
        self._beyond: Claim | None = None  # the oldest, which did not fit
        self.unsent = UnsentAnswers(limit // 2, self.keep, turn_s=turn_s, turn_rate=turn_rate)
        self.inflating = Line(_INFLATED_AT_ONCE, wait_s)
        self._short = False
        self._timer: asyncio.TimerHandle | None = None
        self._due: asyncio.Handle | None = None

    @property
    def held(self) -> int:
        """Bytes that unfinished bodies take."""
        return self._small_held + self._large_held

    @property
    def kept(self) -> int:
        """Bytes that are kept: see above."""
        return self._kept

    @property
    def waiting(self) -> int:
        """How many claims wait for memory."""
        return len(self._claims)

    def keep(self, size: int) -> None:
        """So many more bytes are kept, or fewer."""
        self._kept += size
        if size > 0 and self._large_taken > self._high:
            self._run_short()
        elif size < 0 and (self._short or self._claims):
            self._relieve_soon()

    def release(self, size: int) -> None:
        """So many bytes are kept no longer."""
        self.keep(-size)

    def keep_while(self, owner: Any, size: int) -> None:
        """So many more bytes are kept, which an array owns, until it is freed."""
        identity = id(owner)
        self._owners.add(identity)
        self.keep(size)

        def freed() -> None:
            self._owners.discard(identity)
            self.release(size)

        when_freed(owner, asyncio.get_running_loop(), freed)

    def keeps(self, content: memoryview) -> bool:
        """Whether these bytes count, as they are kept while they are used."""
        return id(content.obj) in self._owners

    def claim(self, size: int, answer: Callable[[ReceiveError | None], None]) -> Claim:
        """Ask for memory.

        Args:
            size: in bytes.
            answer: called once, with an error if there is no such memory; perhaps at once.
        """
        claim = Claim(self, size, answer)
        if size > self.large_limit:
            claim.answer(
                BodyTooLargeError(
                    f"what the request is decoded to, {size} bytes, is larger than the {self.large_limit} bytes that "
                    f"large requests may take together; --receive-memory-budget sets how much they may"
                )
            )
            return claim
        self._claims[claim] = None
        self._grant()
        if claim in self._claims:
            claim.wait(self._wait_s, self._late)
        return claim

    def _grant(self) -> None:
        """Give the oldest claims their memory."""
        while self._claims:
            claim = next(iter(self._claims))
            if self._large_taken + claim.size > self.large_limit:
                if self._claimed:
                    return
                self._beyond = claim
            del self._claims[claim]
            self._claimed.add(claim)
            self.keep(claim.size)
            claim.answer(None)

    def _late(self, claim: Claim) -> None:
        if claim in self._claims:
            del self._claims[claim]
            claim.answer(self.no_room())
            self._grant()

    def given_back(self, claim: Claim) -> None:
        """The claim's memory is free, or it waits no more."""
        if claim in self._claimed:
            self._claimed.remove(claim)
            if claim is self._beyond:
                self._beyond = None
            self.release(claim.size)
        elif claim in self._claims:
            del self._claims[claim]
            self._relieve_soon()

    def no_room(self) -> NoRoomError:
        """What a client is told for whose request there is no memory now."""
        kept = ", decoded requests and unsent answers" if self._kept else ""
        return NoRoomError(
            f"unfinished request bodies{kept} take all of the {self.limit} bytes that they may "
            f"(--receive-memory-budget); try again later"
        )

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
        if self._short or self._claims:
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
        if self._waits or self._large_taken > self.large_limit:
            self._relieve_soon()

    @property
    def _waits(self) -> bool:
        """Whether bodies wait for what is kept, of which much will be free without them."""
        return self._kept - self.unsent.held >= self._low

    @property
    def _readers(self) -> int:
        """How many large bodies may be read while memory is short."""
        if self._waits:
            return 0
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
        beyond = 0 if self._beyond is None else self._beyond.size  # for which no body is refused
        while self._large_taken - beyond > self.large_limit and self._large_held:
            self._refuse(self._newest())
        POOL.release()
        self._grant()
        if self._short and self._large_taken <= self._low:
            self._short = False
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        self._let_go_on()

    def _let_go_on(self) -> None:
        """Have those read whose turn it is, and no others."""
        now, readers = asyncio.get_running_loop().time(), self._readers if self._short else len(self._large)
        for place, reception in enumerate(list(self._large)):
            if place >= readers:
                if not readers and not reception.held_back:
                    self._hold_back(reception, now)
            elif reception.held_back and not reception.closed:
                self._begin_turn(reception, now)
                reception.receiver.go_on()

    def _newest(self) -> Reception:
        """The newest large body that holds its share or more; but not the oldest, unless no other holds anything."""
        bodies = [body for body in self._large if body.held][::-1]
        share = self._large_held // len(bodies)
        return next((body for body in bodies[:-1] if body.held >= share), bodies[0])

    def _refuse(self, reception: Reception, error: ReceiveError | None = None) -> None:
        if error is not None:
            pass
        elif reception.held > self.large_limit:
            error = self._too_large(f"{reception.held} bytes or more")
        else:
            error = self.no_room()
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
