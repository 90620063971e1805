"""How fast a model works off its queue, as measured: for requests that have to be answered in their time.

Nothing is measured for a model whose requests have no timeouts. The averages are cautious: they follow short
executions sooner than long ones, and a single long one hardly moves them, so that a request is never refused for an
execution that was slow by chance, such as the first one.
"""

from halimede.backends.batch import Batch
from halimede.core.clock import SECOND

MEASURED_RUNS = 4
"""Nothing is known before so many executions; the shortest of them counts."""

_OUTLIER = 4
"""An execution that takes longer than so many times the average counts as that."""


class Pace:
    """How long a batch takes, how many rows it has when more wait, and how many are under way. Times in nanoseconds.

    Attributes:
        measuring: requests with timeouts have come.
        execution_ns: what a batch takes, from its sending to its end; 0 while nothing is known.
    """

    __slots__ = ("_rows", "_runs", "_shortest", "_under_way", "execution_ns", "measuring")

    def __init__(self) -> None:
        self.measuring = False
        self.execution_ns = 0
        self._shortest = 0
        self._runs = 0
        self._rows = 0.0
        self._under_way: dict[Batch, int] = {}  # since when, the oldest first

    def began(self, batch: Batch, now: int, more: bool) -> None:
        """A batch is sent to an instance; `more` requests wait than it could take."""
        self._under_way[batch] = now
        if more:
            rows = batch.size or 1
            self._rows += (rows - self._rows) / 8 if self._rows else rows

    def ended(self, batch: Batch, now: int) -> None:
        """The batch has run."""
        began = self._under_way.pop(batch, None)
        if began is None or batch.failed:
            return
        took = max(1, now - began)
        if self._runs < MEASURED_RUNS:
            self._runs += 1
            self._shortest = min(took, self._shortest or took)
            if self._runs == MEASURED_RUNS:
                self.execution_ns = self._shortest
            return
        more = min(took, _OUTLIER * self.execution_ns) - self.execution_ns
        self.execution_ns = max(1, self.execution_ns + (more >> 3 if more > 0 else more >> 2))

    def returned(self, batch: Batch) -> None:
        """The batch will not run."""
        self._under_way.pop(batch, None)

    def wait_ns(self, rows: int, now: int) -> int:
        """How long a request waits that comes now, while all instances are busy; 0 if that is not known.

        Args:
            rows: those that wait before it.
            now: the time.
        """
        if not self.execution_ns or not self._under_way:
            return 0
        oldest = next(iter(self._under_way.values()))
        first = max(0, self.execution_ns - (now - oldest))
        batches = int(rows / self._rows) if self._rows else 0
        return first + batches * self.execution_ns // len(self._under_way)


def seconds_to_wait(wait_ns: int) -> int:
    """When a client may try again, in whole seconds, at least 1."""
    return max(1, -(-wait_ns // SECOND))
