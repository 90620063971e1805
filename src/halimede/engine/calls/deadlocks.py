"""Models that call each other in a circle: would a call wait for ever?

An instance whose `execute` waits for another model's response takes no request meanwhile. If every instance of a
model waits so, and each, through the calls of others, for a request to that very model, none of them ever goes on.
Such a circle closes with a call, which is refused. Only what is certain counts: a call from a thread beside
`execute`, or from a coroutine, may be one that `execute` does not wait for.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from halimede.core.requests import InferRequest
from halimede.workers.call_server import ModelCall
from halimede.workers.host import WorkerName


class Instances(Protocol):
    """The instances of a model that is called.

    Attributes:
        name: the model's.
        decoupled: it sends any number of responses, perhaps when its execution is over.
    """

    name: str
    decoupled: bool

    def requests(self) -> Mapping[WorkerName, Iterable[InferRequest]]:
        """Each instance, and the requests whose execution there is not over."""


class Waits:
    """Which instances wait for which calls. Lives on the event loop."""

    def __init__(self) -> None:
        self._waits: dict[WorkerName, tuple[ModelCall, InferRequest, Instances]] = {}

    def add(self, caller: WorkerName, call: ModelCall, request: InferRequest, target: Instances) -> bool:
        """The instance is about to wait for a call: False if that would never end, and it is not to be made.

        Args:
            caller: the instance.
            call: what it waits for until the call has ended or no longer blocks.
            request: what the call becomes.
            target: the instances of the model that is called.
        """
        self._waits[caller] = call, request, target
        concerned = any(name.model == target.name for name in self._waits)  # else spare the rest
        if concerned and self._is_stuck(caller):
            del self._waits[caller]
            return False
        return True

    def remove(self, caller: WorkerName, call: ModelCall) -> None:
        """The instance waits for the call no more."""
        if caller in self._waits and self._waits[caller][0] is call:
            del self._waits[caller]

    def _is_stuck(self, newest: WorkerName) -> bool:
        """Whether the instance is one of a set that wait for nothing but each other."""
        waits = {name: wait for name, wait in self._waits.items() if not wait[0].ended}
        stuck = set(waits)
        while newest in stuck:
            moving = {
                name for name in stuck if not _waits_for(stuck, *waits[name][1:], queued=name == newest)
            }
            if not moving:
                return True
            stuck -= moving
        return False


def _waits_for(stuck: set[WorkerName], request: InferRequest, target: Instances, *, queued: bool) -> bool:
    """Whether the request can only be run, or finished, by an instance that is stuck."""
    instances = target.requests()
    for name, requests in instances.items():
        if request in requests:
            return name in stuck
    if target.decoupled and not queued:
        return False  # it may have left the instance, whose threads send its responses
    return all(name in stuck for name in instances)
