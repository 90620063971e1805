"""When requests have waited for as long as they may: the earliest deadline first, on one timer."""

import heapq
from collections.abc import Callable

from halimede.core.clock import Clock, Timer
from halimede.core.requests import InferRequest

_FEW = 32
"""So many entries of requests that are gone are left where they are."""


class Deadline:
    """When a request has waited for as long as it may.

    Attributes:
        when: the time, in nanoseconds.
        timeout_ns: how long the request might wait at first.
        request: the request; None when it does not wait any more, so that its tensors are let go.
    """

    __slots__ = ("_number", "request", "timeout_ns", "when")

    def __init__(self, when: int, timeout_ns: int, number: int, request: InferRequest) -> None:
        self.when = when
        self.timeout_ns = timeout_ns
        self._number = number
        self.request: InferRequest | None = request

    def __lt__(self, other: "Deadline") -> bool:
        return (self.when, self._number) < (other.when, other._number)


class Deadlines:
    """The deadlines of the requests of a queue. Lives on the event loop."""

    def __init__(self, clock: Clock, due: Callable[[], None]) -> None:
        """None so far; `due` is called when the first one has come."""
        self._clock = clock
        self._due = due
        self._heap: list[Deadline] = []
        self._entries: dict[InferRequest, Deadline] = {}
        self._added = 0
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, request: InferRequest, timeout_ns: int) -> None:
        """Let the request wait for so long."""
        self._added += 1
        entry = Deadline(self._clock.now() + timeout_ns, timeout_ns, self._added, request)
        self._entries[request] = entry
        heapq.heappush(self._heap, entry)
        if self._timer is None or entry.when < self._timer.when:
            self._arm()

    def discard(self, request: InferRequest) -> None:
        """The request, if it is one of these, waits no more."""
        entry = self._entries.pop(request, None)
        if entry is not None:
            entry.request = None
            if len(self._heap) > 2 * len(self._entries) + _FEW:
                self._heap = list(self._entries.values())
                heapq.heapify(self._heap)

    @property
    def first(self) -> Deadline | None:
        """The earliest; None if there is none."""
        heap = self._heap
        while heap and heap[0].request is None:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        first = self.first
        self._timer = None if first is None else self._clock.call_at(first.when, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._due()
        if self._timer is None:
            self._arm()
