"""What the tests of the schedulers share: requests, and instances whose batches end when the test says so."""

from halimede.backends.batch import Batch
from halimede.config.model_config_pb2 import ModelDynamicBatching
from halimede.config.signature import Signature, TensorSpec
from halimede.core.clock import MICROSECOND, VirtualClock
from halimede.core.datatypes import FP32
from halimede.core.errors import HalimedeError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.scheduling.batching import DefaultScheduler, DynamicBatcher, Scheduler
from halimede.engine.scheduling.token_batching import TokenBatcher
from halimede.engine.statistics import FailureReason


def spec(
    name: str, dims: tuple[int, ...] = (4,), *, optional: bool = False, ragged: bool = False
) -> TensorSpec:
    """An FP32 tensor."""
    return TensorSpec(name, FP32, dims, dims, optional=optional, ragged=ragged)


def signature(*inputs: TensorSpec, max_batch_size: int = 8) -> Signature:
    """A model that gives OUT for its inputs."""
    return Signature(
        max_batch_size, {item.name: item for item in inputs}, {"OUT": spec("OUT")}, decoupled=False
    )


class Bench:
    """A scheduler on a virtual clock, and a record of what it did.

    Attributes:
        batches: ids of the requests of each batch, in the order in which batches began.
        done: ids in the order of their answers.
        refused: id → error of requests that did not run.
    """

    def __init__(
        self,
        config: ModelDynamicBatching | None = None,
        model: Signature | None = None,
        instances: int = 1,
        clock: VirtualClock | None = None,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.model = model or signature(spec("IN"))
        self.scheduler: Scheduler
        if config is None:
            self.scheduler = DefaultScheduler(self.model, self.clock, self)
        elif self.model.tokens is not None:
            self.scheduler = TokenBatcher(self.model, self.model.tokens, config, self.clock, self)
        else:
            self.scheduler = DynamicBatcher(self.model, config, self.clock, self)
        self.runners = [_Runner(self) for _ in range(instances)]
        self.scheduler.start(self.runners)
        self.batches: list[str] = []
        self.done: list[str] = []
        self.refused_requests: dict[str, HalimedeError] = {}
        self.reasons: dict[str, FailureReason] = {}
        self.running: list[tuple[_Runner, Batch]] = []

    def send(
        self,
        ids: str,
        rows: int = 1,
        *,
        priority: int = 0,
        timeout_us: int = 0,
        shape: tuple[int, ...] = (4,),
        inputs: tuple[str, ...] = ("IN",),
    ) -> list[InferRequest]:
        """One request a letter of `ids`, all in one turn of the loop."""
        requests = []
        for name in ids:
            tensors = {item: Tensor(FP32, (rows, *shape), b"") for item in inputs}
            request = InferRequest("m", tensors, _ignore, id=name, priority=priority, timeout_us=timeout_us)
            request.batch_size = rows
            request.queued_ns = request.received_ns = self.clock.now()
            try:
                self.scheduler.enqueue(request)
            except HalimedeError as error:
                self.refused_requests[name] = error
            requests.append(request)
        self.clock.run()
        return requests

    def wait(self, microseconds: int) -> None:
        """Let time pass."""
        self.clock.advance(microseconds * MICROSECOND)

    def finish(self, index: int = 0) -> None:
        """End one of the running batches, the oldest unless said otherwise."""
        runner, batch = self.running.pop(index)
        runner.free = True
        runner.only_full = any(each is runner for each, _ in self.running)
        self.scheduler.finished(runner, batch)
        self.clock.run()

    def starting(self, batch: Batch) -> None:
        """Only of interest to decoupled models."""

    def completed(self, batch: Batch) -> None:
        """The scheduler says that a batch is to be answered."""
        self.done.extend(request.id for request in batch.requests)

    def refused(self, request: InferRequest, error: HalimedeError, reason: FailureReason) -> None:
        """The scheduler says that a request will not run."""
        self.refused_requests[request.id] = error
        self.reasons[request.id] = reason


class _Runner:
    only_full = False
    healthy = True
    ahead = False

    def __init__(self, bench: Bench) -> None:
        self.free = True
        self._bench = bench

    def run(self, batch: Batch) -> bool:
        self.free = self.ahead and not self.only_full
        self.only_full = self.ahead
        self._bench.batches.append("".join(request.id for request in batch.requests))
        self._bench.running.append((self, batch))
        return False

    def end_sequence(self, key: int, correlation_id: int | str, reason: str) -> None:
        """Only sequences end."""
        raise AssertionError


def _ignore(response: InferResponse | None, final: bool) -> None:
    """Answers are recorded by the bench."""
