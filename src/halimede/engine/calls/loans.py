"""Executions that wait for others while they hold resources of the rate limiter: when must they lend them?

An execution that calls another model keeps what it holds. If the model that it calls cannot run for want of just that,
neither ever goes on; nor do two executions, each of which calls a model that needs what the other one holds. Then what
they hold is lent, for the very requests that they wait for. As long as anything else may still give back what is
needed, the called model waits for its turn as every other.

Only instances of Python models make calls. One that has calls under way is taken to wait for them, also if they were
made by other threads than that of `execute`: whether that waits for these is not known.
"""

from collections.abc import Callable, Iterator

from halimede.core.errors import HalimedeError
from halimede.core.requests import InferRequest
from halimede.engine.ensembles.run import steps_under_way
from halimede.engine.model import Model
from halimede.engine.scheduling.rate_limits.limiter import RateLimiter
from halimede.engine.served_model import ServedModel
from halimede.workers.host import WorkerName
from halimede.workers.instance import WorkerInstance


class Loans:
    """The calls under way, by who made them, and what is lent for their sake. Lives on the event loop."""

    def __init__(self, limiter: RateLimiter, find: Callable[[str, int], ServedModel]) -> None:
        """Lend what the limiter has granted; `find` gives the model of an ensemble's step."""
        self._limiter = limiter
        self._find = find
        self._calls: dict[InferRequest, tuple[WorkerName, ServedModel]] = {}
        limiter.on_blocked = self.look

    def add(self, caller: WorkerName, request: InferRequest, model: ServedModel) -> None:
        """An instance is about to send a model a request."""
        self._calls[request] = caller, model

    def remove(self, request: InferRequest) -> None:
        """The request has its final response."""
        del self._calls[request]
        self.look()

    def look(self) -> None:
        """Lend what is waited for in vain. To be called when a request has been sent."""
        while self._calls and self._limiter.waiting and self._lend_once():
            pass

    def _lend_once(self) -> bool:
        """Whether an instance that would never have its turn was lent what it needs."""
        limiter = self._limiter
        blocked = _Blocked(limiter, self._find, self._calls)
        lenders = [claim for claim in limiter.holders() if claim.name in blocked.callers]
        for claim in limiter.waiting:
            if claim.name in blocked.waiting:
                requests = blocked.requests_for(claim.name)
                if requests and limiter.lend(claim, lenders, requests):
                    return True
        return False


class _Blocked:
    """Who can only go on if others of them do.

    Attributes:
        callers: instances that wait for calls.
        waiting: instances that wait for the limiter.
    """

    def __init__(
        self,
        limiter: RateLimiter,
        find: Callable[[str, int], ServedModel],
        calls: dict[InferRequest, tuple[WorkerName, ServedModel]],
    ) -> None:
        """Find them: begin with all that wait, and take out those that go on, until none does."""
        self._find = find
        self._queued: list[tuple[InferRequest, WorkerName, Model]] = []  # with who waits for it
        self._executing: list[tuple[WorkerName, WorkerName]] = []  # who waits, and where the request is
        self.callers = {caller for caller, _ in calls.values()}
        self.waiting = {claim.name for claim in limiter.waiting}
        for request, (caller, model) in calls.items():
            for inner, where in self._placed(request, model):
                if where is None:
                    self.callers.discard(caller)
                elif isinstance(where, Model):
                    self._queued.append((inner, caller, where))
                else:
                    self._executing.append((caller, where))
        before = -1
        while before != len(self.callers) + len(self.waiting):
            before = len(self.callers) + len(self.waiting)
            self.waiting -= {claim.name for claim in limiter.goes_on_without(self.callers)}
            self.callers -= {caller for caller, where in self._executing if where not in self.callers}
            self.callers -= {caller for _, caller, model in self._queued if self._serves(model)}

    def requests_for(self, name: WorkerName) -> list[InferRequest]:
        """The requests that wait for an instance, and that someone waits for who is blocked."""
        return [
            request
            for request, caller, model in self._queued
            if caller in self.callers and (model.name, model.version) == (name.model, name.version)
        ]

    def _placed(
        self, request: InferRequest, model: ServedModel
    ) -> Iterator[tuple[InferRequest, Model | WorkerName | None]]:
        """Where the request is, for an ensemble each of those that it became.

        That is the model in whose queue it waits, or the instance that executes it; None if it goes on for certain.
        """
        if not isinstance(model, Model):
            steps = steps_under_way(request)
            if not steps:
                yield request, None
            for step in steps:
                try:
                    yield from self._placed(step, self._find(step.model_name, step.model_version))
                except HalimedeError:  # it is being unloaded
                    yield step, None
            return
        if request.on_cancel is None or request.cancelled:
            yield request, None  # it runs in this process, or is being answered
            return
        holder = getattr(request.on_cancel, "__self__", None)
        if not isinstance(holder, WorkerInstance):
            yield request, model
        elif request in holder.requests:
            yield request, holder.name
        else:
            yield request, None  # its execution is over, and its responses come by themselves

    def _serves(self, model: Model) -> bool:
        """Whether an instance takes requests of the model, or will."""
        for entry in model.loaded.instances:
            name = WorkerName(model.name, model.version, entry.spec.name)
            if entry.passive or name in self.waiting:
                continue
            instance = entry.instance
            if name not in self.callers or (isinstance(instance, WorkerInstance) and instance.free):
                return True
        return False
