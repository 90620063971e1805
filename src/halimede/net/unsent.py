"""How much memory the answers take together that clients do not read: half of `--receive-memory-budget`.

What a connection holds counts as soon as its client does not keep up: bytes that the socket has not taken, answers that
wait for an earlier one, and large JSON while it is made.

    an answer over 256 KiB that does not fit     is not sent; the client is told to try again later
    three quarters are taken                     connections whose clients take less than 64 KiB a second are closed,
                                                 after five seconds at the earliest

Smaller answers are always sent. An answer that is larger than three quarters of the memory fits while the others take
less than a quarter.
"""

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Protocol

logger = logging.getLogger("halimede")

LARGE_ANSWER = 262_144
"""Larger answers are sent only if they fit."""

RETRY_AFTER_S = 5
"""When a client whose answer did not fit may try again; those that read nothing are closed by then."""


class Reader(Protocol):
    """A connection that answers are sent on."""

    @property
    def to_take(self) -> int:
        """Bytes that it holds for its client."""

    @property
    def waits(self) -> bool:
        """Whether it waits for the client to take some of them."""

    def give_up(self) -> None:
        """Close it, in a while at most."""


class _Entry:
    """What a connection held when it was last looked at."""

    __slots__ = ("held", "since", "taken")

    def __init__(self, since: float) -> None:
        self.held = 0
        self.taken = 0  # how much less it was, since `since`
        self.since = since


class UnsentAnswers:
    """The memory of all answers that are not sent. Used on the event loop only.

    Attributes:
        limit: bytes that they may take together.
        held: bytes that they take, as far as that is known.
    """

    def __init__(
        self, limit: int, changed: Callable[[int], None], *, turn_s: float = 5.0, turn_rate: int = 65_536
    ) -> None:
        """None yet.

        Args:
            limit: in bytes.
            changed: told how many more bytes are held, or fewer.
            turn_s: while memory is short, how often the connections are looked at, in seconds.
            turn_rate: bytes a second that their clients must take then.
        """
        self.limit = limit
        self.held = 0
        self._high = limit // 4 * 3
        self._changed = changed
        self._turn_s = turn_s
        self._turn_rate = turn_rate
        self._entries: dict[Reader, _Entry] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def refusal(self) -> str:
        """What a client is told whose answer does not fit."""
        return (
            f"answers that clients do not read take the {self.limit} bytes that they may, which is half of "
            f"--receive-memory-budget; try again later"
        )

    def fits(self, size: int) -> bool:
        """Whether an answer of so many bytes may be sent."""
        needed = min(size, self._high)
        if self.held + needed <= self.limit:
            return True
        self._look()
        return self.held + needed <= self.limit

    def update(self, reader: Reader) -> None:
        """What a connection holds has changed."""
        held = reader.to_take
        entry = self._entries.get(reader)
        if entry is None:
            if not held:
                return
            entry = self._entries[reader] = _Entry(monotonic())
        self._count(entry, held)
        if not held:
            del self._entries[reader]
        elif self._timer is None and self.held > self._high:
            self._run_short()

    def _look(self) -> None:
        """Count again what all connections hold."""
        for reader, entry in list(self._entries.items()):
            held = reader.to_take
            self._count(entry, held)
            if not held:
                del self._entries[reader]

    def forget(self, reader: Reader) -> None:
        """A connection is gone."""
        entry = self._entries.pop(reader, None)
        if entry is not None:
            self._count(entry, 0)

    def _count(self, entry: _Entry, held: int) -> None:
        more = held - entry.held
        if more:
            entry.held = held
            entry.taken -= min(0, more)
            self.held += more
            self._changed(more)

    def _run_short(self) -> None:
        now = monotonic()
        for entry in self._entries.values():
            self._begin_turn(entry, now)
        self._set_timer()

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._turn_s, self._end_turn)

    @staticmethod
    def _begin_turn(entry: _Entry, now: float) -> None:
        entry.since = now
        entry.taken = 0

    def _end_turn(self) -> None:
        """Close the connections whose clients were slow, if memory is still short."""
        self._timer = None
        self._look()
        if self.held <= self._high:
            return
        now = monotonic()
        for reader, entry in list(self._entries.items()):
            lasted = now - entry.since
            if lasted < self._turn_s / 2:
                continue
            slow = reader.waits and entry.taken < lasted * self._turn_rate
            self._begin_turn(entry, now)
            if slow:
                logger.info(
                    "A connection is closed: its client does not read %d bytes of answers, while memory for these is "
                    "short",
                    entry.held,
                )
                reader.give_up()
        self._set_timer()
