"""Models in workers that call each other and share a rate limiter, on a virtual clock: each step is the test's."""

from collections.abc import Collection
from typing import Any, cast

from halimede.backends.base import BackendModel, InstanceSpec, ModelSource
from halimede.backends.batch import Batch, fail
from halimede.config.model_config_pb2 import (
    ModelConfig,
    ModelDynamicBatching,
    ModelInstanceGroup,
    ModelRateLimiter,
)
from halimede.config.signature import Signature
from halimede.core.clock import VirtualClock
from halimede.core.errors import InternalError, NotFoundError
from halimede.core.requests import InferRequest, InferResponse
from halimede.engine.calls.bls import ModelCalls
from halimede.engine.calls.loans import Loans
from halimede.engine.loaded_version import LoadedInstance, LoadedVersion
from halimede.engine.model import Model
from halimede.engine.scheduling.rate_limits.limiter import Claim, RateLimiter, State
from halimede.engine.statistics import ModelStatistics
from halimede.workers.call_server import ModelCall
from halimede.workers.host import Load, WorkerName
from halimede.workers.instance import WorkerInstance
from halimede.workers.memory import PeerMemory
from halimede.workers.owner import Owner

Script = list[list[str]]
"""What an execution does: it calls these models at once, waits for all of them, then calls the next."""


class Worker(WorkerInstance):
    """An instance whose executions go on when the test says so.

    Attributes:
        batch: what it executes.
        calls: what it waits for, each with what it became.
    """

    def __init__(self, world: "World", name: WorkerName, script: Script) -> None:
        self.free = self.healthy = True
        self.trouble = None
        self.name = self.identifier = name
        self.batch: Batch | None = None
        self.calls: dict[ModelCall, InferRequest | None] = {}
        self._world = world
        self._script = script
        self._to_come: Script = []

    def attach(self, owner: Owner[WorkerInstance]) -> None:
        self._owner = owner

    def run_one_by_one(self) -> None:
        """It does nothing else."""

    @property
    def load(self) -> Load:
        return self._world.load

    @property
    def waiting(self) -> int:
        return 0  # it is sent nothing ahead

    @property
    def requests(self) -> Collection[InferRequest]:
        return () if self.batch is None else self.batch.requests

    def run(self, batch: Batch) -> bool:
        assert self.batch is None
        self.batch = batch
        self.free = False
        self._to_come = list(self._script)
        for request in batch.requests:
            request.on_cancel = self._cancel
        return False

    def _cancel(self, request: InferRequest) -> None:
        """The model does not look whether it is."""

    @property
    def computes(self) -> bool:
        """Whether it executes, and waits for nothing."""
        return self.batch is not None and not self.calls

    def go_on(self) -> None:
        """Make the next calls, or end the execution."""
        assert self.batch is not None
        if self._to_come:
            for name in self._to_come.pop(0):
                self._world.call(self, name)
            return
        self.batch.responses = [InferResponse({}) for _ in self.batch.requests]
        self.free = True
        self._end(self.batch)

    def crash(self) -> None:
        """Lose the execution, and start again."""
        batch, calls = self.batch, self.calls
        self.calls = {}
        self.free = self.healthy = False
        for call, request in calls.items():
            call.ended = True
            if request is not None:
                request.cancel()
        self._owner.changed(self)
        if batch is not None:
            fail(batch, InternalError("crashed"))
            self._end(batch)
        self.free = self.healthy = True
        self._owner.changed(self)

    def _end(self, batch: Batch) -> None:
        self.batch = None
        batch.ended_ns = batch.started_ns + 1
        self._owner.ran(self, batch)


class World:
    """The models, their workers, and the limiter.

    Attributes:
        answered: clients' requests that have their response, by their number; whether it was none of an error.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.limiter = RateLimiter([], self.clock.call_soon)
        self.loans = Loans(self.limiter, self.find)
        self.calls = ModelCalls(self.find, self.clock.now, loans=self.loans)
        self.load = Load()
        self.models: dict[str, Model] = {}
        self.workers: list[Worker] = []
        self.answered: dict[int, bool] = {}
        self.sent = 0

    def find(self, name: str, version: int) -> Model:
        """The model of that name."""
        if name not in self.models:
            raise NotFoundError(name)
        return self.models[name]

    def model(
        self, name: str, limits: ModelRateLimiter, script: Script, instances: int = 1, batching: int = 0
    ) -> list[Worker]:
        """A model: its workers."""
        config = ModelConfig(name=name, max_batch_size=batching)
        if batching:
            config.dynamic_batching.CopyFrom(ModelDynamicBatching())
        config.instance_group.append(
            ModelInstanceGroup(name=f"{name}_0", count=instances, rate_limiter=limits)
        )
        specs = [InstanceSpec(f"{name}_0_{number}", number) for number in range(instances)]
        workers = [Worker(self, WorkerName(name, 1, spec.name), script) for spec in specs]
        loaded = LoadedVersion(
            ModelSource(name, 1, cast(Any, None), config),
            Signature(batching, {}, {}, decoupled=False),
            cast(BackendModel, None),
            tuple(
                LoadedInstance(spec, False, worker, limits.SerializeToString())
                for spec, worker in zip(specs, workers, strict=True)
            ),
            {},
            ModelStatistics(()),
        )
        self.models[name] = Model(loaded, self.clock, cast(Any, None), limiter=self.limiter)
        self.workers += workers
        return workers

    def send(self, name: str) -> InferRequest:
        """A client's request."""
        number = self.sent
        self.sent += 1

        def respond(response: InferResponse | None, final: bool) -> None:
            assert final
            assert response is not None
            self.answered[number] = response.error is None

        request = InferRequest(name, {}, respond)
        self.models[name].infer(request)
        return request

    def call(self, caller: Worker, name: str) -> None:
        """A worker calls a model, and waits for it."""

        def respond(response: InferResponse | None, final: bool) -> None:
            call.ended |= final
            caller.calls.pop(call, None)

        encoded = (name, -1, "", 0, 0, 0, "", (), (), None)
        call = ModelCall(encoded, PeerMemory(), respond, blocks=False)
        caller.calls[call] = None
        request = self.calls.infer(call, caller.name)
        if call in caller.calls:
            caller.calls[call] = request

    def claims(self) -> list[Claim]:
        """What the limiter knows of the workers."""
        return list(self.limiter._claims.values())  # noqa: SLF001 - what is left is seen only inside

    def check_accounts(self) -> None:
        """Whether what is in use is what the executions have, each of which has what it needs."""
        used: dict[Any, int] = {}
        for claim in self.claims():
            has = dict.fromkeys(claim.needs, 0)
            for resource, count in claim.own.items():
                assert count >= 0
                used[resource] = used.get(resource, 0) + count
                has[resource] += count
            for loan in claim.borrowed:
                assert loan.borrower is claim
                assert loan in loan.lender.lent
                assert loan.count > 0
                has[loan.resource] += loan.count
            assert all(loan in loan.borrower.borrowed for loan in claim.lent)
            if claim.state in (State.HELD, State.GRANTED):
                assert has == claim.needs
                assert all(claim.lendable(resource) >= 0 for resource in claim.needs)
            else:
                assert not any(has.values())
                assert not claim.lent
            assert (claim in self.limiter.waiting) == (claim.state is State.WAITING)
            executes = claim.runner.batch is not None
            assert not claim.needs or executes == (claim.state is State.HELD)
        pools = self.limiter._pools  # noqa: SLF001 - what is left is seen only inside
        assert pools.used == {resource: count for resource, count in used.items() if count}
        assert all(count <= pools.size(resource) for resource, count in used.items())
