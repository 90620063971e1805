"""A version's cache on a virtual clock, in front of a model that answers when the test says so."""

from collections.abc import Callable

import numpy as np

from halimede.core.clock import VirtualClock
from halimede.core.datatypes import FP32
from halimede.core.errors import CancelledError, HalimedeError, InternalError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.cache.entries import Entry
from halimede.engine.cache.local import LocalCache
from halimede.engine.cache.store import Cache, CacheCounts, Found
from halimede.engine.cache.version_cache import VersionCache
from halimede.engine.statistics import FailureReason, ModelStatistics


class SlowCache:
    """A cache outside of the server, which answers look-ups when the test says so.

    Attributes:
        lookups: key → who waits.
        entries: what was inserted.
    """

    largest = 1 << 20
    outlives = True

    def __init__(self) -> None:
        self.counts = CacheCounts()
        self.lookups: dict[bytes, Found] = {}
        self.entries: dict[bytes, Entry] = {}

    async def begin(self) -> None:
        """It can always be used."""

    def get(self, key: bytes) -> Entry | None:
        return None

    def find(self, key: bytes, found: Found) -> None:
        assert key not in self.lookups
        self.lookups[key] = found

    def insert(self, key: bytes, entry: Entry) -> None:
        self.entries[key] = entry

    def forget(self, keys: set[bytes]) -> None:
        """It keeps them."""

    async def close(self) -> None:
        """It holds nothing."""

    def answer(self) -> None:
        """Answer all look-ups."""
        lookups, self.lookups = self.lookups, {}
        for key, found in lookups.items():
            found(self.entries.get(key))


class Bench:
    """The cache, the model, and what became of requests.

    Attributes:
        computing: requests that the model has, by id.
        computed: ids of all requests that it ever had, in order.
        answers: id → the response's values, or the error's class.
        full: the model's queue takes no more.
    """

    def __init__(self, cache: Cache | None = None, size: int = 100_000) -> None:
        self.clock = VirtualClock()
        self.clock.advance(1_000)
        self.cache: Cache = LocalCache(size, self.clock) if cache is None else cache
        self.statistics = ModelStatistics()
        self.version = self.open()
        self.computing: dict[str, InferRequest] = {}
        self.computed: list[str] = []
        self.answers: dict[str, list[float] | type[HalimedeError]] = {}
        self.responses: dict[str, InferResponse] = {}
        self.full = False
        self.inflight = 0
        self.on_answer: Callable[[str], None] | None = None

    def open(self, identity: bytes = bytes(32)) -> VersionCache:
        """The cache for a version."""
        return VersionCache(self.cache, identity, self.statistics, self.clock, self._schedule, self)

    def send(
        self, identifier: str, value: float = 1, outputs: tuple[str, ...] = (), sequence_id: int = 0
    ) -> InferRequest:
        """Send a request."""

        def respond(response: InferResponse | None, final: bool) -> None:
            assert final
            assert response is not None
            assert identifier not in self.answers, "a response after the final one"
            error = response.error
            self.answers[identifier] = (
                type(error) if error is not None else response.outputs["OUT"].array.tolist()
            )
            self.responses[identifier] = response
            if self.on_answer is not None:
                self.on_answer(identifier)

        now = self.clock.now()
        request = InferRequest(
            "m",
            {"IN": tensor(value)},
            respond,
            id=identifier,
            outputs=outputs,
            sequence_id=sequence_id,
            received_ns=now,
        )
        self.inflight += 1
        self.version.enqueue(request)
        return request

    def finish(self, identifier: str, *values: float, parameters: dict[str, str] | None = None) -> None:
        """The model answers a request."""
        request = self.computing.pop(identifier)
        self.inflight -= 1
        response = InferResponse({"OUT": tensor(*values)})
        if parameters:
            response.parameters = dict(parameters)
        request.respond(response, True)

    def fail(self, identifier: str) -> None:
        """The model fails to answer a request."""
        self.inflight -= 1
        self.computing.pop(identifier).respond(InferResponse(error=InternalError("no")), True)

    def _schedule(self, request: InferRequest) -> None:
        self.computed.append(request.id)
        if self.full:
            raise UnavailableError("Exceeds maximum queue size")
        self.computing[request.id] = request
        request.on_cancel = self._cancelled

    def _cancelled(self, request: InferRequest) -> None:
        del self.computing[request.id]
        self.refused(request, CancelledError("cancelled in the queue"), FailureReason.CANCELED)

    def answered_by_cache(self) -> None:
        """The cache has answered a request."""
        self.inflight -= 1

    def refused(self, request: InferRequest, error: HalimedeError, reason: FailureReason) -> None:
        """A request will not run."""
        self.inflight -= 1
        self.statistics.count_failure(request, request.received_ns, reason)
        request.respond(InferResponse(error=error), True)


def tensor(*values: float) -> Tensor:
    """An FP32 tensor."""
    return Tensor.from_array(FP32, np.array(values, np.float32))
