"""A sequence batcher on a virtual clock, instances whose batches end when the test says so, and a record of it all."""

from collections.abc import Callable

from halimede.backends.batch import DEFERRED, Batch, fail
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.parse import parse_text
from halimede.config.signature import Signature
from halimede.core.clock import MICROSECOND, VirtualClock
from halimede.core.datatypes import FP32
from halimede.core.errors import HalimedeError, InternalError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.scheduling.rate_limits.limiter import RateLimiter
from halimede.engine.scheduling.sequences.iterative import sequence_batcher
from halimede.engine.statistics import FailureReason
from halimede.workers.host import WorkerName
from tests.engine.scheduling.rate_limits.declarations import needing

CONTROLS = """
control_input [
  { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
  { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } ] },
  { name: "END" control [ { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] } ] },
  { name: "ID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }
]
"""


def configuration(
    batching: str = "direct { }", rows: int = 4, dims: str = "1", further: str = ""
) -> ModelConfig:
    """A model with the controls above."""
    return parse_text(
        f'name: "m" max_batch_size: {rows} '
        f'input {{ name: "IN" data_type: TYPE_FP32 dims: [ {dims} ] }} '
        f'output {{ name: "OUT" data_type: TYPE_FP32 dims: [ {dims} ] }} '
        f"sequence_batching {{ {batching} max_sequence_idle_microseconds: 1000 {CONTROLS} }} {further}",
        "a test",
    )


class Runner:
    """An instance.

    Attributes:
        batches: the rows of each batch: ids of requests, "-" for null requests.
        running: those that have not ended.
        ended: key, correlation id and reason of each sequence that it was told to forget.
    """

    only_full = False

    def __init__(self, at_once: bool = False) -> None:
        self.free = self.healthy = True
        self.batches: list[list[str]] = []
        self.running: list[Batch] = []
        self.ended: list[tuple[int, int | str, str]] = []
        self.inputs: list[dict[str, list[object]]] = []
        self.on_run: Callable[[], None] = lambda: None
        self._at_once = at_once

    def run(self, batch: Batch) -> bool:
        self.batches.append(["-" if request.is_null else request.id for request in batch.requests])
        gathered = batch.gather()
        self.inputs.append({name: array.reshape(-1).tolist() for name, array in gathered.items()})
        self.on_run()
        if self._at_once:
            answer(batch)
            return True
        self.running.append(batch)
        self.free = False
        return False

    def end_sequence(self, key: int, correlation_id: int | str, reason: str) -> None:
        self.ended.append((key, correlation_id, reason))


def answer(batch: Batch) -> None:
    """Let a batch have run."""
    batch.started_ns = batch.ended_ns = 1
    if not batch.signature.decoupled:
        again = batch.rescheduled
        batch.responses = [DEFERRED if each in again else InferResponse() for each in batch.requests]


class Bench:
    """The batcher and what became of requests.

    Attributes:
        answers: ids in the order of their answers.
        errors: id → text of the error.
        codes: id → class of the error.
    """

    def __init__(
        self,
        config: ModelConfig,
        instances: int = 1,
        at_once: bool = False,
        clock: VirtualClock | None = None,
        limiter: RateLimiter | None = None,
    ) -> None:
        """With a limiter, each instance needs 1 of the global resource R."""
        self.clock = clock or VirtualClock()
        self.signature = Signature.from_config(config)
        self.batcher = sequence_batcher("m", self.signature, config.sequence_batching, self.clock, self)
        self.runners = [Runner(at_once) for _ in range(instances)]
        self.runner = self.runners[0]
        if limiter is not None:
            self.batcher.limiter = limiter
            for runner in self.runners:
                limiter.add(runner, WorkerName("m", 1, "i"), needing("R:1:global"), 0)
        self.batcher.start(self.runners)
        self.requests: dict[str, InferRequest] = {}
        self.answers: list[str] = []
        self.errors: dict[str, str] = {}
        self.codes: dict[str, type[HalimedeError]] = {}
        self.reasons: dict[str, FailureReason] = {}
        self.over = 0
        self.batcher.when_over = self._count_over
        self.numbers: dict[int | str, int] = {}

    def _count_over(self) -> None:
        self.over += 1

    # As a client

    def send(
        self,
        correlation_id: int | str,
        flags: str = "",
        *,
        rows: int = 1,
        shape: tuple[int, ...] = (1,),
        timeout_us: int = 0,
        value: float = 0.0,
        settle: bool = True,
    ) -> str:
        """A request with the flags S and E; its name: the correlation id and its number in the sequence."""
        number = self.numbers[correlation_id] = self.numbers.get(correlation_id, 0) + 1
        name = f"{correlation_id}.{number}"

        def respond(response: InferResponse | None, final: bool) -> None:
            if response is not None and response.error is not None:
                self._failed(name, response.error)
            elif final:
                self.answers.append(name)

        size = rows
        for dim in shape:
            size *= dim
        data = Tensor(FP32, (rows, *shape) if self.signature.max_batch_size else shape, bytes(4 * size))
        request = InferRequest(
            "m",
            {"IN": data},
            respond,
            id=name,
            sequence_id=correlation_id,
            sequence_start="S" in flags,
            sequence_end="E" in flags,
            timeout_us=timeout_us,
        )
        request.batch_size = rows
        request.queued_ns = request.received_ns = self.clock.now()
        self.requests[name] = request
        try:
            self.batcher.enqueue(request)
        except HalimedeError as error:
            self._failed(name, error)
        if settle:
            self.clock.run()
        return name

    def cancel(self, name: str) -> None:
        self.requests[name].cancel()
        self.clock.run()

    def wait(self, microseconds: float) -> None:
        self.clock.advance(int(microseconds * MICROSECOND))

    # As instances

    def finish(self, instance: int = 0, *, again: str = "", failed: bool = False) -> list[str]:
        """End the oldest batch of an instance; requests named in `again` are to come again. Its rows."""
        runner = self.runners[instance]
        batch = runner.running.pop(0)
        rows = ["-" if request.is_null else request.id for request in batch.requests]
        batch.rescheduled = [
            request for request in batch.requests if request.id and request.id in again.split()
        ]
        answer(batch)
        if failed:
            fail(batch, InternalError("it raised"))
        runner.free = runner.healthy
        self.batcher.finished(runner, batch)
        self.clock.run()
        return rows

    def crash(self, instance: int = 0, *, begun: int = 1) -> None:
        """End an instance's process: so many of its batches had begun."""
        runner = self.runners[instance]
        runner.free = runner.healthy = False
        batches, runner.running = runner.running, []
        for batch in reversed(batches[begun:]):
            self.batcher.returned(batch)
        self.batcher.changed(runner)
        for batch in batches[:begun]:
            fail(batch, InternalError("the process ended"))
            self.batcher.finished(runner, batch)
        self.clock.run()

    def revive(self, instance: int = 0) -> None:
        runner = self.runners[instance]
        runner.free = runner.healthy = True
        self.batcher.changed(runner)
        self.clock.run()

    # As the model

    def starting(self, batch: Batch) -> None:
        """Decoupled."""

    def completed(self, batch: Batch) -> None:
        if not batch.signature.decoupled:
            for request, response in zip(batch.requests, batch.responses, strict=True):
                assert not request.is_null
                if response is not DEFERRED:
                    request.respond(response, True)
        elif batch.failed:
            for request in batch.requests:
                request.respond(batch.responses[0], True)

    def refused(self, request: InferRequest, error: HalimedeError, reason: FailureReason) -> None:
        self.reasons[request.id] = reason
        request.respond(InferResponse(error=error), True)

    def _failed(self, name: str, error: HalimedeError) -> None:
        assert name not in self.errors, f"{name} was answered twice"
        self.errors[name] = error.message
        self.codes[name] = type(error)

    def idle(self) -> bool:
        """Whether nothing is left of any sequence."""
        batcher = self.batcher
        return not (batcher.open or batcher.pending or batcher._taken or batcher._live)  # noqa: SLF001 - what is left is seen only inside
