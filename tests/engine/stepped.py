"""Models whose executions go on when the test says so, in the server or in workers, on a virtual clock."""

# ruff: noqa: SLF001 - it looks inside for what is left of requests

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast
from weakref import ReferenceType, ref

import numpy as np

from halimede.backends.base import BackendModel, Instance, InstanceSpec, ModelSource
from halimede.backends.batch import DEFERRED, Batch, fail
from halimede.config.model_config_pb2 import ModelConfig, ModelRateLimiter
from halimede.config.signature import Signature
from halimede.core.clock import MICROSECOND, VirtualClock
from halimede.core.datatypes import FP32
from halimede.core.errors import HalimedeError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Array, Tensor
from halimede.engine.cache.access import CacheAccess
from halimede.engine.cache.local import LocalCache
from halimede.engine.calls.bls import ModelCalls
from halimede.engine.ensembles.model import EnsembleModel
from halimede.engine.ensembles.plan import EnsemblePlan
from halimede.engine.loaded_version import LoadedInstance, LoadedVersion
from halimede.engine.model import Model
from halimede.engine.scheduling.rate_limits.limiter import RateLimiter, State
from halimede.engine.scheduling.sequences.batcher import SequenceBatcher
from halimede.engine.served_model import ServedModel
from halimede.engine.statistics import ModelStatistics
from halimede.workers.call_server import CallServer, ModelCall, _Inference
from halimede.workers.host import Load, WorkerName
from halimede.workers.instance import WorkerInstance
from halimede.workers.memory import PeerMemory
from halimede.workers.owner import Owner
from tests.engine.ensembles.fakes import parse, ports, step
from tests.support.waiting import wait_until

Do = Callable[[Batch], None]


class Execution:
    """A batch that runs until the test ends it.

    Attributes:
        batch: the batch.
        told: its requests that the instance was told to be cancelled; only worker processes are told.
    """

    def __init__(self, batch: Batch, do: Callable[[Do], None], end: Callable[[], None]) -> None:
        self.batch = batch
        self.told: list[InferRequest] = []
        self._do = do
        self._end = end

    def send(self, *, final: bool = False) -> None:
        """(decoupled) Send a response to each request, or tell it that there are no more."""

        def send(batch: Batch) -> None:
            assert batch.send is not None
            for request in batch.requests:
                batch.send(request, None if final else output(batch), final)

        self._do(send)

    def end(self, error: HalimedeError | None = None, *, again: bool = False) -> None:
        """Answer each request, fail, or (iterative) have them come again."""
        decoupled = self.batch.signature.decoupled
        if decoupled and error is None and not again:
            self.send(final=True)

        def answer(batch: Batch) -> None:
            batch.inputs_ns = batch.outputs_ns = batch.ended_ns = batch.started_ns
            if error is not None:
                fail(batch, error)
            elif not decoupled:
                batch.responses = [DEFERRED if again else output(batch) for _ in batch.requests]
            if again:
                batch.rescheduled = [request for request in batch.requests if not request.is_null]

        self._do(answer)
        self._end()


def output(batch: Batch) -> InferResponse:
    """A response to a request of the batch."""
    shape = (1, 1) if batch.signature.max_batch_size else (1,)
    return InferResponse({"OUT": Tensor.from_array(FP32, np.ones(shape, np.float32))})


class Threaded(Instance):
    """An instance in the server's process, on a thread that does what the test says."""

    def __init__(self, bench: "Bench") -> None:
        self._bench = bench
        self._orders: SimpleQueue[Do | None] = SimpleQueue()
        self._done: SimpleQueue[None] = SimpleQueue()

    def execute(self, batch: Batch) -> None:
        self._bench.begun.put(Execution(batch, self._do, self._end))
        while (order := self._orders.get()) is not None:
            order(batch)
            self._done.put(None)
        if batch.failed:
            error = batch.responses[0].error
            assert error is not None
            raise error

    def _do(self, order: Do) -> None:
        self._orders.put(order)
        self._done.get(timeout=60)
        self._bench.settle()

    def abort(self) -> None:
        """End what is run, if anything is."""
        self._orders.put(None)

    def _end(self) -> None:
        finished = self._bench.finished
        self._orders.put(None)
        self._bench.until(lambda: self._bench.finished > finished)


class Worker(WorkerInstance):
    """An instance in a worker process, without the process."""

    def __init__(self, bench: "Bench", name: WorkerName) -> None:
        self.free = self.healthy = True
        self.trouble = None
        self.name = name
        self._bench = bench
        self._execution: Execution | None = None

    def attach(self, owner: Owner[WorkerInstance]) -> None:
        self._owner = owner

    def run_one_by_one(self) -> None:
        """It does nothing else."""

    @property
    def load(self) -> Load:
        return self._bench.load

    @property
    def waiting(self) -> int:
        return 0  # it is sent nothing ahead

    @property
    def requests(self) -> Collection[InferRequest]:
        return ()

    def run(self, batch: Batch) -> bool:
        self.free = False
        batch.started_ns = self._bench.clock.now()
        if batch.signature.decoupled:
            batch.send = lambda request, response, final: self._owner.sent(batch, request, response, final)
        self._execution = Execution(batch, self._do, self._end)
        for request in batch.requests:
            request.on_cancel = self._cancel
        self._bench.begun.put(self._execution)
        return False

    def end_sequence(self, key: int, correlation_id: int | str, reason: str) -> None:
        """It keeps nothing of sequences."""

    def _cancel(self, request: InferRequest) -> None:
        assert self._execution is not None
        self._execution.told.append(request)

    def _do(self, order: Do) -> None:
        assert self._execution is not None
        order(self._execution.batch)
        self._bench.settle()

    def _end(self) -> None:
        assert self._execution is not None
        batch, self._execution = self._execution.batch, None
        batch.send = None
        self.free = True
        self._owner.ran(self, batch)
        self._bench.settle()


class Sent:
    """A client's request, and what came of it.

    Attributes:
        request: the request; None when the client has forgotten it.
        array: what it was sent with.
        responses: how many it had.
        error: what went wrong.
        over: it has its final response.
    """

    def __init__(self, array: Array) -> None:
        self.request: InferRequest | None = None
        self.array: ReferenceType[Array] = ref(array)
        self.responses = 0
        self.error: HalimedeError | None = None
        self.over = False

    def respond(self, response: InferResponse | None, final: bool) -> None:
        assert not self.over, "it was answered twice"
        self.over = final
        if response is not None:
            self.responses += 1
            self.error = response.error

    def cancel(self) -> None:
        """The client gives up."""
        assert self.request is not None
        self.request.cancel()


class Bench:
    """The models, each with one instance, and what they execute.

    Attributes:
        begun: executions in the order in which they began, until `execution` takes them.
        finished: executions in the server's process that have ended.
        workers: executions are in worker processes.
    """

    def __init__(self, *, workers: bool) -> None:
        self.clock = VirtualClock()
        self.clock.advance(1_000_000)
        self.loop = asyncio.new_event_loop()
        self.load = Load()
        self.limiter = RateLimiter([], self.clock.call_soon)
        self.cache = LocalCache(1 << 20, self.clock)
        self.models: dict[str, ServedModel] = {}
        self.calls = ModelCalls(lambda name, version: self.models[name], self.clock.now)
        self.threads: list[Threaded] = []
        self.begun: SimpleQueue[Execution] = SimpleQueue()
        self.finished = 0
        self.workers = workers

    def model(
        self, name: str, scheduling: str, *, rows: int, decoupled: bool, needs: ModelRateLimiter | None = None
    ) -> None:
        """Load a model IN → OUT, both FP32[1]."""
        config = parse(
            f'name: "{name}" backend: "stepped" max_batch_size: {rows} {ports("input", "IN", "1")} '
            f"{ports('output', 'OUT', '1')} {scheduling} "
            f"model_transaction_policy {{ decoupled: {str(decoupled).lower()} }}"
        )
        instance: Instance
        if self.workers:
            instance = Worker(self, WorkerName(name, 1, "i"))
        else:
            instance = Threaded(self)
            self.threads.append(instance)
        limits = b"" if needs is None else needs.SerializeToString()
        loaded = LoadedVersion(
            _source(config),
            Signature.from_config(config),
            cast(BackendModel, None),
            (LoadedInstance(InstanceSpec("i"), False, instance, limits),),
            {},
            ModelStatistics(),
        )
        cache = CacheAccess(self.cache, bytes(32)) if config.response_cache.enable else None
        limiter = None if needs is None else self.limiter
        self.models[name] = model = Model(loaded, self.clock, self.loop, cache=cache, limiter=limiter)
        for runner in model._runners.values():
            runner._done = self._count(runner._done)

    def ensemble(self, name: str, *steps: str) -> None:
        """Load an ensemble that runs the models one after the other."""
        tensors = ["IN", *(f"t{number}" for number in range(1, len(steps))), "OUT"]
        links = [
            step(each, f"IN={tensors[number]}", f"OUT={tensors[number + 1]}")
            for number, each in enumerate(steps)
        ]
        config = parse(
            f'name: "{name}" platform: "ensemble" {ports("input", "IN", "1")} {ports("output", "OUT", "1")} '
            f"ensemble_scheduling {{ {' '.join(links)} }}"
        )
        plan = EnsemblePlan.from_config(config, lambda each, version: self.models[each].config)
        self.models[name] = EnsembleModel(
            _source(config),
            plan,
            lambda each, version: self.models[each],
            self.clock,
            self.loop,
            {},
            ModelStatistics(),
        )

    def _count(self, done: Callable[..., None]) -> Callable[..., None]:
        def counted(*args: Any) -> None:
            self.finished += 1
            done(*args)

        return counted

    def send(
        self, name: str, value: float, *, timeout_us: int = 0, sequence: int = 0, flags: str = "SE"
    ) -> Sent:
        """A client's request; if it belongs to a sequence, S and E say that it is the first and the last one."""
        model = self.models[name]
        array = _array(model, value)
        sent = Sent(array)
        sent.request = InferRequest(
            name, {"IN": Tensor.from_array(FP32, array)}, sent.respond, timeout_us=timeout_us
        )
        sent.request.sequence_id = sequence
        sent.request.sequence_start, sent.request.sequence_end = "S" in flags, "E" in flags
        model.infer(sent.request)
        self.settle()
        return sent

    def call(self, name: str, value: float, *, timeout_us: int = 0) -> Sent:
        """A request of a model that calls another one."""
        model = self.models[name]
        array = _array(model, value)
        sent = Sent(array)
        server = cast(CallServer, _Answers(sent))
        inference = _Inference(server, 1)
        encoded = (name, -1, "", 0, 0, timeout_us, "", (), (), None)
        decoupled = model.signature.decoupled
        call = inference.call = ModelCall(encoded, PeerMemory(), inference.respond, decoupled=decoupled)
        call.inputs = {"IN": Tensor.from_array(FP32, array)}
        sent.request = inference.request = self.calls.infer(call)
        self.settle()
        return sent

    def execution(self) -> Execution:
        """The next execution, which has begun or is about to."""
        self.clock.run()
        return self.begun.get(timeout=60)

    def finish(self, again: int = 0) -> None:
        """End every execution, the first ones so that their requests come again."""
        while any(model.inflight for model in self.models.values()):
            self.execution().end(again=again > 0)
            again -= 1

    def wait(self, microseconds: int) -> None:
        """Let time pass."""
        self.clock.advance(microseconds * MICROSECOND)
        self.settle()

    def settle(self) -> None:
        """Do what is to be done now."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
        self.clock.run()

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a thread."""

        def holds() -> bool:
            self.settle()
            return condition()

        wait_until(holds)
        self.settle()

    def left(self) -> list[str]:
        """What models, schedulers and limiter still have of requests."""
        found = [
            f"{name}: {what}" for name, model in self.models.items() for what, count in _parts(model) if count
        ]
        if self.limiter._pools.used:
            found.append(f"resources: {self.limiter._pools.used}")
        found += [
            f"limiter: {claim}" for claim in self.limiter._claims.values() if claim.state is not State.IDLE
        ]
        return found if self.load.inflight == 0 else [*found, "load"]

    def close(self) -> None:
        """End the threads, and what they run."""
        for instance in self.threads:
            instance.abort()
        for model in self.models.values():
            if isinstance(model, Model):
                for runner in model._runners.values():
                    runner.close()
        self.loop.close()


class _Answers:
    """Takes the responses to a call in the place of a socket."""

    def __init__(self, sent: Sent) -> None:
        self._sent = sent

    def answer(self, inference: _Inference, response: InferResponse | None, final: bool) -> None:
        self._sent.respond(response, final)


def _array(model: ServedModel, value: float) -> Array:
    return np.full((1, 1) if model.signature.max_batch_size else (1,), value, np.float32)


def _source(config: ModelConfig) -> ModelSource:
    return ModelSource(config.name, 1, Path("/nonexistent"), config)


def _parts(model: ServedModel) -> list[tuple[str, int]]:
    """What a model has of requests, each with how much."""
    assert isinstance(model, Model | EnsembleModel)
    parts = [("in flight", model.inflight), ("pending", model.pending)]
    if isinstance(model, EnsembleModel):
        return parts
    parts += [("open", len(model._open)), ("gates", len(model._flow._gates))]
    if model._cache is not None:
        parts.append(("flights", len(model._cache._flights)))
    scheduler = model._scheduler
    if isinstance(scheduler, SequenceBatcher):
        lanes = list(scheduler._lanes.values())
        slots = [slot for lane in lanes for slot in lane.slots]
        return [
            *parts,
            ("sequences", scheduler.open),
            ("live", len(scheduler._live)),
            ("taken", len(scheduler._taken)),
            ("backlog", sum(bool(sequence.waiting) for sequence in scheduler._backlog)),
            ("slots", sum(slot.sequence is not None or slot.request is not None for slot in slots)),
            ("slots that are not free", len(slots) - len(scheduler._free._free)),
        ]
    queue = scheduler.queue
    return [
        *parts,
        ("rows", queue.size),
        ("waiting", len(queue)),
        ("deadlines", len(queue._deadlines)),
        ("measured", len(queue.pace._under_way)),
        ("in order", len(getattr(scheduler, "_in_order", None) or ())),
        ("answered", len(getattr(scheduler, "_answered", ()))),
    ]
