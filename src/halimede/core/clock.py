"""Time for schedulers: the event loop's, or a virtual one that a test moves by hand. Time for what is stored.

Times of schedulers are integers in nanoseconds on a steady clock. Times that are stored are seconds since 1970.
"""

import ctypes
import heapq
import os
import struct
import sys
import threading
import time
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000


TURN_NS = MILLISECOND
"""What is to be called soon gets so much of a turn; then sockets have theirs."""


class Timer:
    """A call that will be made; `cancel` prevents it."""

    __slots__ = ("args", "callback", "when")

    def __init__(self, when: int, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.when = when
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        """The call will not be made."""
        self.callback = None
        self.args = ()

    def __lt__(self, other: "Timer") -> bool:
        return self.when < other.when


class WallClock:
    """Seconds since 1970 for deadlines that outlive the process: setting the system's clock expires none of them.

    It starts at the system's time, runs with the steady clock, and never goes back. If the system's clock is set, it
    approaches the new time by at most a minute an hour (`_CATCH_UP`), so that waits are right within two percent.
    Times that others have made with the system's clock (clients, files, calendars) are compared with `system`.
    """

    def __init__(
        self, system: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        """A clock that shows the system's time.

        Args:
            system: seconds since 1970; may be set at any time.
            steady: seconds since some moment; nobody sets it.
        """
        self.system = system
        self._steady = steady
        self._lock = threading.Lock()
        self._read_at = steady()
        self._time = system()

    def now(self) -> float:
        """The time. Any thread may ask."""
        with self._lock:
            read_at = self._steady()
            passed = read_at - self._read_at
            self._read_at = read_at
            most = passed * _CATCH_UP
            behind = self.system() - self._time - passed
            self._time += passed + min(max(behind, -most), most)
            return self._time

    def of_system(self, moment: float) -> float:
        """What this clock shows when the system's clock shows `moment`, if nobody sets that meanwhile."""
        return moment - self.system() + self.now()

    def state(self) -> tuple[float, float]:
        """What `follow` of another process of this machine needs."""
        with self._lock:
            return self._time, self._read_at

    def follow(self, state: tuple[float, float]) -> None:
        """Show the time that the clock of another process of this machine shows."""
        with self._lock:
            self._time, self._read_at = state


_CATCH_UP = 1 / 60

WALL_CLOCK = WallClock()
"""The clock of this process."""


class Clock(Protocol):
    """What schedulers need of time."""

    def now(self) -> int:
        """The steady clock, in nanoseconds."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        """Call once this turn of the loop has read what has arrived."""

    def run_until(self, condition: Callable[[], bool]) -> bool:
        """Call now what is to be called soon, one after the other, until something is so: whether it is."""

    def aside(self) -> AbstractContextManager[None]:
        """Meanwhile `run_until` leaves alone what was to be called soon before."""

    def call_at(self, when: int, callback: Callable[..., object], *args: Any) -> Timer:
        """Call at `when`, in nanoseconds, or soon after; never before."""


class LoopClock:
    """The clock of an event loop, exact to some microseconds.

    uvloop's own timers count whole milliseconds, which is more than most queue delays. On Linux a timer of
    the kernel (timerfd) wakes the loop instead.
    """

    now = staticmethod(time.monotonic_ns)

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._soon: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_soon = False  # the loop will call what is to be called soon
        self._timers: list[Timer] = []
        self._armed = 0
        self._descriptor = -1
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._descriptor = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor >= 0:
            loop.add_reader(self._descriptor, self._wake)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Call once this turn of the loop has read what has arrived; and in the same turn what such calls ask for."""
        self._soon.append((callback, args))
        if not self._is_soon:
            self._is_soon = True
            self._loop.call_soon(self._call)

    def _call(self) -> None:
        soon = self._soon
        end = self.now() + TURN_NS
        while soon:
            callback, args = soon.popleft()
            try:
                callback(*args)
            except Exception as error:
                self._loop.call_exception_handler({"message": f"{callback!r} failed", "exception": error})
            if soon and self.now() > end:
                self._loop.call_soon(self._call)
                return
        self._is_soon = False

    def run_until(self, condition: Callable[[], bool]) -> bool:
        """Call now what is to be called soon, one after the other, until something is so: whether it is."""
        soon = self._soon
        while not condition():
            if not soon:
                return False
            callback, args = soon.popleft()
            callback(*args)
        return True

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Meanwhile `run_until` leaves alone what was to be called soon before."""
        before, self._soon = self._soon, deque()
        try:
            yield
        finally:
            before.extend(self._soon)
            self._soon = before
            if before and not self._is_soon:
                self._is_soon = True
                self._loop.call_soon(self._call)

    def call_at(self, when: int, callback: Callable[..., object], *args: Any) -> Timer:
        """Call at `when`, in nanoseconds, or soon after; never before."""
        timer = Timer(when, callback, args)
        heapq.heappush(self._timers, timer)
        self._arm()
        return timer

    def close(self) -> None:
        """Give the timer back to the kernel; nothing is called any more."""
        self._timers.clear()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _arm(self) -> None:
        timers = self._timers
        while timers and timers[0].callback is None:
            heapq.heappop(timers)
        if not timers or timers[0].when == self._armed:
            return
        self._armed = timers[0].when
        if self._descriptor < 0:
            self._loop.call_later(max(0.0, (self._armed - self.now()) / SECOND), self._run)
            return
        # struct itimerspec: interval, then the absolute time; a zero time would disarm it
        seconds, nanoseconds = divmod(max(1, self._armed), SECOND)
        absolute = 1
        self._libc.timerfd_settime(
            self._descriptor, absolute, struct.pack("@qqqq", 0, 0, seconds, nanoseconds), None
        )

    def _wake(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:  # it was armed again since
            return
        self._run()

    def _run(self) -> None:
        self._armed = 0
        now = self.now()
        timers = self._timers
        while timers and timers[0].when <= now:
            timer = heapq.heappop(timers)
            if timer.callback is not None:
                timer.callback(*timer.args)
        self._arm()


class VirtualClock:
    """A clock that stands still until a test moves it; everything due is then called in order."""

    def __init__(self) -> None:
        self._now = 0
        self._soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._timers: list[tuple[int, int, Timer]] = []
        self._count = 0

    def now(self) -> int:
        """The time that the test has reached, in nanoseconds."""
        return self._now

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Call at the next `advance` or `run`."""
        self._soon.append((callback, args))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Meanwhile `run_until` leaves alone what was to be called soon before."""
        before, self._soon = self._soon, []
        yield
        self._soon = before + self._soon

    def run_until(self, condition: Callable[[], bool]) -> bool:
        """Call now what is to be called soon, until something is so."""
        while not condition() and self._soon:
            callback, args = self._soon.pop(0)
            callback(*args)
        return condition()

    def call_at(self, when: int, callback: Callable[..., object], *args: Any) -> Timer:
        """Call when the test reaches `when`."""
        timer = Timer(when, callback, args)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer))
        return timer

    def run(self) -> None:
        """Call all that is due now, and what those calls make due now."""
        self.advance(0)

    def stall(self, nanoseconds: int) -> None:
        """Move on without calling anything, as while the loop is busy."""
        self._now += nanoseconds

    def advance(self, nanoseconds: int) -> None:
        """Move on, calling what falls due on the way, each at its own time."""
        end = self._now + nanoseconds
        while True:
            while self._soon:
                soon, self._soon = self._soon, []
                for callback, args in soon:
                    callback(*args)
            if not self._timers or self._timers[0][0] > end:
                break
            when, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            if timer.callback is not None:
                timer.callback(*timer.args)
        self._now = end
