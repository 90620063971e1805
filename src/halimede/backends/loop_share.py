"""Where the batches of one instance of the server's process run: on a thread of its own, or on the event loop.

Handing a batch to a thread and back costs tens of microseconds, more than a tiny model computes. So an instance that
never blocks runs its small batches on the event loop itself once their cost has been measured to be below that
hand-over, and goes back to its thread as soon as one was slow.

While requests come one by one, each after the answer to the one before, a longer batch runs there too: nobody is kept
waiting by it. Whether they do is seen on the thread, to which the instance returns for it again and again.
"""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

from halimede.backends.batch import Batch

INLINE_COST_NS = 60_000
"""An instance whose batches take less moves to the loop."""

THREAD_COST_NS = 2 * INLINE_COST_NS
"""An instance whose batches take more moves back to its thread. Between the two it stays where it is."""

INLINE_BYTES = 65_536
"""A batch of larger inputs never does: how long it takes says little of the small ones."""

MEASURED_RUNS = 3
"""The first runs on a thread only warm it up."""

ALONE_COST_NS = 500_000
"""An instance whose batches take more never runs them on the loop."""

MIN_WATCHED, MAX_WATCHED = 16, 2048
"""After so many runs on the thread, during which nothing else was to be run, the instance moves to the loop: twice as
many each time that something was, and as few as at first when nothing was."""

ALONE_RUNS = 256
"""Then so many runs are there, and the next again on the thread."""


class _LoopActivity:
    """What runs for an event loop beside a batch.

    Attributes:
        under_way: batches on threads.
        held_up: so many batches run on the loop that wait for what they have called; what those run goes there, too.
        handing_on: a batch has ended, and what waited for it is being run.
        met: how often a batch was run while another was under way, or after it had waited for one.
    """

    __slots__ = ("handing_on", "held_up", "met", "under_way")

    def __init__(self) -> None:
        self.held_up = 0
        self.under_way = 0
        self.handing_on = False
        self.met = 0


_ACTIVITIES: "WeakKeyDictionary[AbstractEventLoop, _LoopActivity]" = WeakKeyDictionary()
"""By the loop."""


class LoopShare:
    """Says which batches of an instance run on the loop. Lives on it."""

    __slots__ = ("_activity", "_alone", "_cost_ns", "_inline", "_met", "_to_watch", "_unmeasured", "_watched")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._cost_ns = THREAD_COST_NS
        self._inline = False
        self._unmeasured = MEASURED_RUNS
        self._alone = 0  # so many runs are on the loop, as requests come one by one
        self._watched = self._to_watch = MIN_WATCHED
        self._met = 0
        self._activity = _ACTIVITIES.setdefault(loop, _LoopActivity())

    def take(self, batch: Batch, sent: int) -> bool:
        """Whether the batch, which is about to run, is to run on the loop.

        Args:
            batch: the batch.
            sent: how many of the instance are on its thread.
        """
        if self._activity.held_up and not sent:
            return True
        if self._activity.under_way or self._activity.handing_on or len(batch.requests) > 1:
            self._activity.met += 1
            self._alone = 0
        if (self._inline or self._alone > 0) and not sent and batch.byte_size <= INLINE_BYTES:
            self._alone -= 1
            return True
        return False

    @property
    def is_here(self) -> bool:
        """Whether batches run on the loop."""
        return self._inline or self._alone > 0

    @contextmanager
    def holding_up(self) -> Iterator[None]:
        """While a batch runs on the loop that may call others."""
        self._activity.held_up += 1
        try:
            yield
        finally:
            self._activity.held_up -= 1

    def measure(self, cost: int) -> None:
        """A batch took so many nanoseconds; it ran on the loop, or may run there the next time.

        A moving average: a run that is slow by itself outweighs many fast ones, but not for long.
        """
        self._cost_ns += (cost - self._cost_ns) >> 3
        self._inline = self._cost_ns < (THREAD_COST_NS if self._inline else INLINE_COST_NS)
        if self._cost_ns >= ALONE_COST_NS:
            self._alone = 0

    def begin_on_thread(self) -> None:
        """A batch goes to the thread."""
        self._activity.under_way += 1

    def take_back(self) -> None:
        """A batch has gone to the thread, and will not run there."""
        self._activity.under_way -= 1

    def end_on_thread(self, batch: Batch, cost: int, *, may_move: bool) -> None:
        """A batch has run on the thread, and took so many nanoseconds; `may_move`: it may be the loop next time."""
        self._activity.under_way -= 1
        if self._unmeasured > 0:
            self._unmeasured -= 1
        elif may_move and batch.byte_size <= INLINE_BYTES:
            self.measure(cost)
            self._watch()

    def hand_on(self, done: Callable[..., None], *args: object) -> None:
        """Tell that a batch has ended on the thread, whereupon what waited for it is run."""
        self._activity.handing_on = True
        try:
            done(*args)
        finally:
            self._activity.handing_on = False

    def _watch(self) -> None:
        """A batch has run on the thread: move to the loop if nothing else was to be run for a while."""
        if self._met != self._activity.met:
            self._met = self._activity.met
            self._to_watch = self._watched = min(2 * self._to_watch, MAX_WATCHED)
            return
        self._watched -= 1
        if self._watched <= 0 and self._cost_ns < ALONE_COST_NS:
            self._alone = ALONE_RUNS
            self._to_watch = self._watched = MIN_WATCHED
