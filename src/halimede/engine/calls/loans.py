"""Executions that wait for others while they hold resources of the rate limiter: when must they lend them?

An execution that calls another model keeps what it holds. If the model that it calls cannot run for want of just that,
neither ever goes on; nor do two executions, each of which calls a model that needs what the other one holds. Then what
they hold is lent, for the very requests that they wait for. As long as anything else may still give back what is
needed, the called model waits for its turn as every other.

Only instances of Python models make calls. One that has calls under way is taken to wait for them, also if they were
made by other threads than that of `execute`: whether that waits for these is not known.
"""

from collections.abc import Callable, Container, Iterator, Mapping
from typing import NamedTuple

from halimede.core.errors import HalimedeError
from halimede.core.requests import InferRequest
from halimede.engine.ensembles.run import steps_under_way
from halimede.engine.model import Model
from halimede.engine.scheduling.rate_limits.limiter import Claim, RateLimiter
from halimede.engine.served_model import ServedModel
from halimede.workers.call_server import ModelCall
from halimede.workers.host import WorkerName
from halimede.workers.instance import WorkerInstance


class _Call(NamedTuple):
    """A call under way: who made it, and which model it was sent to."""

    caller: WorkerName
    call: ModelCall
    model: ServedModel


class Loans:
    """The calls under way, by who made them, and what is lent for their sake. Lives on the event loop."""

    def __init__(self, limiter: RateLimiter, find: Callable[[str, int], ServedModel]) -> None:
        """Lend what the limiter has granted; `find` gives the model of an ensemble's step."""
        self._limiter = limiter
        self._find = find
        self._calls: dict[InferRequest, _Call] = {}
        limiter.on_blocked = self.look

    def add(self, caller: WorkerName, call: ModelCall, request: InferRequest, model: ServedModel) -> None:
        """An instance is about to send a model a request, and waits for it until the call has ended."""
        self._calls[request] = _Call(caller, call, model)

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
        waiting = [claim for claim in limiter.waiting if claim.name in blocked.waiting]
        # What was lent last is to come back first, so that no lender goes on before it has everything back.
        ranks = blocked.ranks({claim.name: claim.loan for claim in limiter.holders()})
        alone = [
            (ranks.get(caller, 0), claim, [request])
            for claim in waiting
            for request, caller in blocked.requests_for(claim.name)
        ]
        alone.sort(key=lambda entry: -entry[0])
        for _, claim, requests in alone:
            if limiter.lend(claim, blocked.dependent_on(requests), requests):
                return True
        # Any of several requests would let the lenders go on: see to one of them.
        for claim in waiting:
            requests = [request for request, _ in blocked.requests_for(claim.name)]
            if requests and limiter.lend(claim, blocked.holders(), requests):
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
        calls: Mapping[InferRequest, _Call],
    ) -> None:
        """Find them: begin with all that wait, and take out those that go on, until none does."""
        self._limiter = limiter
        self._find = find
        self._queued: list[tuple[InferRequest, WorkerName, Model]] = []  # with who waits for it
        self._executing: list[tuple[WorkerName, WorkerName]] = []  # who waits, and where the request is
        calls = {request: each for request, each in calls.items() if not each.call.ended}
        self.callers = {each.caller for each in calls.values()}
        self.waiting = {claim.name for claim in limiter.waiting}
        for request, (caller, _, model) in calls.items():
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
            self.waiting -= {claim.name for claim in limiter.going_on_without(self.callers, in_turn=True)}
            self.callers -= {caller for caller, where in self._executing if where not in self.callers}
            self.callers -= {
                caller for _, caller, model in self._queued if _serves(model, self.callers, self.waiting)
            }

    def holders(self) -> list[Claim]:
        """Those that hold something."""
        return [claim for claim in self._limiter.holders() if claim.name in self.callers]

    def requests_for(self, name: WorkerName) -> list[tuple[InferRequest, WorkerName]]:
        """The requests that wait for an instance, each with who waits for it and is blocked."""
        return [
            (request, caller)
            for request, caller, model in self._queued
            if caller in self.callers and (model.identifier, model.version) == (name.model, name.version)
        ]

    def ranks(self, loans: Mapping[WorkerName, int]) -> dict[WorkerName, int]:
        """By the numbers of the loans that instances run on: the newest that cannot end before an instance goes on."""
        ranks = dict(loans)
        edges = list(self._executing)
        for _, caller, model in self._queued:
            for entry in model.loaded.instances:
                edges.append((caller, WorkerName(model.identifier, model.version, entry.spec.name)))
        changed = True
        while changed:
            changed = False
            for caller, where in edges:
                if ranks.get(caller, 0) > ranks.get(where, 0):
                    ranks[where] = ranks[caller]
                    changed = True
        return ranks

    def dependent_on(self, requests: list[InferRequest]) -> list[Claim]:
        """Those that hold something and can't go on before one of the requests is answered."""
        callers: set[WorkerName] = {caller for request, caller, _ in self._queued if request in requests}
        waiting: set[WorkerName] = set()
        before = -1
        while before != len(callers) + len(waiting):
            before = len(callers) + len(waiting)
            going_on = {claim.name for claim in self._limiter.going_on_without(callers, in_turn=False)}
            waiting = self.waiting - going_on
            callers |= {caller for caller, where in self._executing if where in callers}
            callers |= {caller for _, caller, model in self._queued if not _serves(model, callers, waiting)}
        return [claim for claim in self._limiter.holders() if claim.name in callers]

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
        if request.on_cancel is None:
            yield request, None  # it runs in this process, or is being answered
            return
        holder = getattr(request.on_cancel, "__self__", None)
        if not isinstance(holder, WorkerInstance):
            yield request, model
        elif request in holder.requests:
            yield request, holder.name
        else:
            yield request, None  # its execution is over, and its responses come by themselves


def _serves(model: Model, callers: Container[WorkerName], waiting: Container[WorkerName]) -> bool:
    """Whether an instance takes requests of the model some day, but for these that wait for calls or the limiter."""
    for entry in model.loaded.instances:
        name = WorkerName(model.identifier, model.version, entry.spec.name)
        if entry.passive or name in waiting:
            continue
        instance = entry.instance
        if name not in callers or (isinstance(instance, WorkerInstance) and instance.free):
            return True
    return False
