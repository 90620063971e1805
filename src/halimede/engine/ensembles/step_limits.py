"""How many requests each step of an ensemble has in flight, and which ones wait for room, of all its requests."""

from collections import OrderedDict, deque
from typing import Protocol

from halimede.engine.ensembles.iterations import Iteration
from halimede.engine.ensembles.routes import Step


class WaitingRun(Protocol):
    """A request to the ensemble, some of whose steps wait."""

    def admitted(self, waiter: "Waiter") -> None:
        """There is room: run the step, or release it if it shall not run any more."""


class Waiter:
    """A step that waits for room in one iteration."""

    __slots__ = ("iteration", "run", "step")

    def __init__(self, run: WaitingRun, iteration: Iteration, step: Step) -> None:
        self.run = run
        self.iteration = iteration
        self.step = step


class StepLimits:
    """The `max_inflight_requests` of an ensemble. Steps that wait are admitted in the order in which they began to."""

    def __init__(self, most: int) -> None:
        """No request is in flight.

        Args:
            most: requests that each step may have in flight.
        """
        self._most = most
        self._taken: dict[int, int] = {}
        self._waiting: dict[int, OrderedDict[Waiter, None]] = {}
        self._admitted: deque[Waiter] = deque()
        self._admitting = False

    def admit(self, step: Step) -> bool:
        """Whether the step may run now; if so, it has to be released."""
        number = step.planned.number
        taken = self._taken.get(number, 0)
        if taken >= self._most:
            return False
        self._taken[number] = taken + 1
        return True

    def wait(self, waiter: Waiter) -> None:
        """Admit it when there is room."""
        self._waiting.setdefault(waiter.step.planned.number, OrderedDict())[waiter] = None

    def leave(self, waiter: Waiter) -> None:
        """It waits no more."""
        self._waiting[waiter.step.planned.number].pop(waiter, None)

    def release(self, step: Step) -> None:
        """A request of the step is finished: the next one has its place.

        A step that is admitted may finish at once. Those after it are admitted by the outermost call, so that a long
        queue does not recurse.
        """
        number = step.planned.number
        waiting = self._waiting.get(number)
        if not waiting:
            self._taken[number] -= 1
            return
        self._admitted.append(waiting.popitem(last=False)[0])
        if self._admitting:
            return
        self._admitting = True
        try:
            while self._admitted:
                waiter = self._admitted.popleft()
                waiter.run.admitted(waiter)
        finally:
            self._admitting = False
