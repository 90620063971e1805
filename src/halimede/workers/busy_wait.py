"""Whether a server and its workers may wait for each other with the processor busy, and what that has cost.

Waking up from sleep takes tens of microseconds on an idle core: most of the time of a small request. Whoever looks
again and again instead sees the message at once, but takes the core from others. So that is done only while requests
come one by one, for a short moment, while cores are idle, and within a bound.
"""

from time import monotonic_ns
from typing import Final, Protocol

from halimede.core.clock import MILLISECOND
from halimede.workers.progress import Progress

LONGEST_NS: Final = 300_000
"""Longest time of one wait."""

NEEDED_CORES: Final = 0.75
"""So many cores are to be idle, beside those that are busy with waiting."""

PERIOD_NS: Final = 100 * MILLISECOND
"""How often it is looked at."""

MIN_REST_NS: Final = 200 * MILLISECOND
MAX_REST_NS: Final = 60_000 * MILLISECOND
"""How long there is no more of it once it has been in the way of others; twice as long each time."""

MOST_QUEUED: Final = 0.05
"""It is in the way when the event loop's thread waits for a core for a larger share of the time."""

MOST_VAIN: Final = 0.25
"""Or when a larger share of waits for workers ran out: they do not get a core in time."""


class Cores(Protocol):
    """What tells of idle cores."""

    def measure(self) -> tuple[float, float]:
        """Idle cores since the last call, and the share of it in which the calling thread waited for a core."""


class BusyWait:
    """Grants it. Lives on the event loop.

    Attributes:
        limit_ns: how long a wait may be as of the last `review`; 0 while there is to be none.
        server_ns: how long the server has waited in this way.
        workers_ns: how long its workers have.
    """

    def __init__(self, percent: int, cpus: int, cores: Cores) -> None:
        """None is granted yet.

        Args:
            percent: how much of one core it may take on average; 0 for none.
            cpus: how many the process may use. With one there is never any.
            cores: what tells of idle ones.
        """
        self.limit_ns = 0
        self.server_ns = 0
        self.workers_ns = 0
        self._enabled = percent > 0 and cpus > 1
        self._bound = percent / 100
        self._cores = cores
        self._reviewed_ns = 0
        self._due_ns = 0
        self._spent_ns = 0
        self._rest_ns = MIN_REST_NS
        self._waits = 0
        self._vain = 0

    def grant(self, progress: Progress, *, alone: bool) -> int:
        """A batch is about to be sent: how long its result may be waited for, and the worker for its next batch.

        Args:
            progress: what is shared with the worker.
            alone: there is no other batch.
        """
        if not self._enabled:
            return 0
        granted = self.review(monotonic_ns()) if alone else 0
        self.workers_ns += progress.allow_looking(granted)
        return granted

    def review(self, now: int) -> int:
        """How long a wait may be, at this time in monotonic ns; to be asked for each batch that is the only one."""
        if self._enabled and now >= self._due_ns:
            self._review(now)
        return self.limit_ns

    def waited(self, took_ns: int, *, in_vain: bool) -> None:
        """The server has waited for a worker."""
        self.server_ns += took_ns
        self._waits += 1
        self._vain += in_vain

    def _review(self, now: int) -> None:
        elapsed, self._reviewed_ns = now - self._reviewed_ns, now
        spent, self._spent_ns = (
            self.server_ns + self.workers_ns - self._spent_ns,
            self.server_ns + self.workers_ns,
        )
        waits, self._waits = self._waits, 0
        vain, self._vain = self._vain, 0
        idle, queued = self._cores.measure()
        in_the_way = self.limit_ns > 0 and (queued > MOST_QUEUED or vain > MOST_VAIN * waits)
        self._due_ns = now + PERIOD_NS
        if in_the_way:
            self.limit_ns = 0
            self._due_ns = now + self._rest_ns
            self._rest_ns = min(2 * self._rest_ns, MAX_REST_NS)
        elif idle + spent / elapsed < NEEDED_CORES or queued > MOST_QUEUED:
            self.limit_ns = 0
        elif spent > self._bound * elapsed:
            self.limit_ns = 0
            self._due_ns = now + int(spent / self._bound) - elapsed
        else:
            if self.limit_ns:
                self._rest_ns = max(MIN_REST_NS, self._rest_ns - PERIOD_NS)
            self.limit_ns = LONGEST_NS
