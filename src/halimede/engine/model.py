"""One version of a model, loaded: its scheduler, its instances, its counts, and what is in flight."""

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable

from halimede.backends.base import Instance
from halimede.backends.batch import DEFERRED, Batch
from halimede.backends.execution import niceness_of
from halimede.backends.text_counts import TextCounts
from halimede.config.model_config_pb2 import ModelConfig, ModelRateLimiter
from halimede.config.signature import Signature
from halimede.core import tasks
from halimede.core.clock import Clock
from halimede.core.errors import CancelledError, HalimedeError, UnavailableError
from halimede.core.regions import RegionTensor
from halimede.core.requests import InferRequest, InferResponse
from halimede.engine.cache.access import CacheAccess
from halimede.engine.cache.ordering import ResponseOrder
from halimede.engine.loaded_version import LoadedInstance, LoadedVersion
from halimede.engine.scheduling.batching import BatchRunner, DefaultScheduler, DynamicBatcher, Scheduler
from halimede.engine.scheduling.flow import Flow
from halimede.engine.scheduling.instances import Runner
from halimede.engine.scheduling.rate_limits.limiter import RateLimiter
from halimede.engine.scheduling.sequences.batcher import STOPPING, SequenceBatcher
from halimede.engine.scheduling.sequences.iterative import sequence_batcher
from halimede.engine.scheduling.token_batching import TokenBatcher
from halimede.engine.served_model import InstanceActivity, ServedModel
from halimede.engine.statistics import FailureReason
from halimede.engine.tracing.recording import record_execution, record_queued
from halimede.engine.validation import validate
from halimede.workers.host import WorkerName
from halimede.workers.in_server.instance import ServerInstance
from halimede.workers.instance import WorkerInstance
from halimede_worker.messages.memory import Outgoing

logger = logging.getLogger("halimede")


class Model:
    """A loaded version. Lives on the event loop.

    Attributes:
        name: the model's name.
        version: the version.
        directory: where its files are.
        config: the final configuration.
        signature: what it takes and gives.
        labels: output → class labels.
        statistics: what is counted of it.
        inflight: requests that were accepted and have no final response yet.
        loaded: what it runs on.
        takes_device_tensors: each instance takes inputs, and leaves outputs, in the memory of its device.
    """

    def __init__(
        self,
        loaded: LoadedVersion,
        clock: Clock,
        loop: AbstractEventLoop,
        on_health: Callable[[], None] | None = None,
        cache: CacheAccess | None = None,
        limiter: RateLimiter | None = None,
    ) -> None:
        """Serve a version that is loaded.

        Args:
            loaded: the version.
            clock: the time its scheduler goes by.
            loop: the event loop.
            on_health: told when `healthy` may have changed.
            cache: the response cache as the model uses it; None if it does not.
            limiter: says when instances may run batches; None if they always may.

        Raises:
            InvalidArgumentError: the limiter can never let an instance run.
        """
        self.loaded = loaded
        self.name = loaded.source.client_name
        self.identifier = loaded.source.name
        self.version = loaded.source.version
        self.directory = loaded.source.directory
        self.config: ModelConfig = loaded.source.config
        self.signature: Signature = loaded.signature
        self.labels = loaded.labels
        self.statistics = loaded.statistics
        self.inflight = 0
        active = [entry.instance for entry in loaded.instances if not entry.passive]
        self.takes_device_tensors = (
            cache is None and bool(active) and all(each.device is not None for each in active)
        )
        # instances that were taken away, each with whether its sequences are over
        self._ending: dict[asyncio.Task[None], asyncio.Event] = {}
        self._loop = loop
        self._clock = clock
        self._stopping = False
        self._open: dict[InferRequest, _Responses] = {}  # decoupled
        self._flow = Flow()  # of instances in this process
        self._drained: asyncio.Future[None] | None = None
        self._trouble: HalimedeError | None = None  # no instance runs, or will soon
        self._on_health = on_health
        self._scheduler: Scheduler | SequenceBatcher
        self._sequences: SequenceBatcher | None = None
        self._predecessors: list[ServedModel] = []  # in which sequences were under way
        if self.config.HasField("sequence_batching"):
            self._scheduler = self._sequences = sequence_batcher(
                self.name, self.signature, self.config.sequence_batching, clock, self
            )
            self._sequences.when_over = self._look_drained
        elif self.config.HasField("dynamic_batching"):
            queueing, tokens = self.config.dynamic_batching, self.signature.tokens
            if tokens is None:
                self._scheduler = DynamicBatcher(self.signature, queueing, clock, self)
            else:
                self._scheduler = TokenBatcher(self.signature, tokens, queueing, clock, self)
        else:
            self._scheduler = DefaultScheduler(self.signature, clock, self)
        self._limiter = limiter
        self._runners: dict[Instance, Runner] = {}  # of instances in this process
        self._workers: list[WorkerInstance] = []
        self._workers_read_regions = False
        self._passive: set[WorkerInstance] = set()
        try:
            started = [self._start(entry) for entry in loaded.instances]
        except HalimedeError:
            self.leave_limiter()
            raise
        self._load = self._workers[0].load if self._workers else None
        self._scheduler.start([runner for runner in started if runner is not None])
        self._cache = None if cache is None else cache.open(self.statistics, clock, self._schedule, self)
        self._enqueue = self._scheduler.enqueue if self._cache is None else self._cache.enqueue
        if self._cache is not None and self.config.dynamic_batching.preserve_ordering:
            self._enqueue = ResponseOrder(self._cache.enqueue).enqueue

    def _start(self, entry: LoadedInstance) -> BatchRunner | None:
        """What runs batches on the instance; None if it gets none."""
        if isinstance(entry.instance, WorkerInstance):
            self._workers.append(entry.instance)
            self._workers_read_regions = not entry.instance.in_server
            entry.instance.attach(self)
            if entry.passive:
                self._passive.add(entry.instance)
                return None
            if self._limit(entry, entry.instance):
                entry.instance.run_one_by_one()
            return entry.instance
        if entry.passive:
            return None
        runner = Runner(
            entry.spec.name,
            entry.instance,
            self._loop,
            self._scheduler.finished,
            niceness_of(self.config),
            policy=entry.spec.policy,
        )
        self._runners[entry.instance] = runner
        limited = self._limit(entry, runner)
        runner.take_ahead(self._takes_ahead and not limited)
        return runner

    def _limit(self, entry: LoadedInstance, runner: BatchRunner) -> bool:
        """Let the limiter say when the instance may run a batch, if it needs anything for that."""
        if self._limiter is None:
            return False
        declared = ModelRateLimiter.FromString(entry.limits)
        name = WorkerName(self.identifier, self.version, entry.spec.name)
        if not self._limiter.add(runner, name, declared, entry.spec.device):
            return False
        self._scheduler.limiter = self._limiter
        return True

    def leave_limiter(self) -> None:
        """Need nothing of the limiter any more: no instance will run a batch."""
        if self._limiter is not None:
            for runner in (*self._workers, *self._runners.values()):
                self._limiter.remove(runner)

    @property
    def _takes_ahead(self) -> bool:
        """Whether an instance may take a batch while one is under way, as no other could run it."""
        active = sum(not entry.passive for entry in self.loaded.instances)
        return active == 1 and not self.signature.decoupled and self._sequences is None

    def change_instances(self, instances: tuple[LoadedInstance, ...]) -> None:
        """Run batches on these instances from now on.

        Those that were there go on. Those that are not among them end what they have under way, sequences too, and are
        closed.
        """
        before = self.loaded.instances
        self.loaded.instances = instances
        for runner in self._runners.values():
            runner.take_ahead(self._takes_ahead and self._scheduler.limiter is None)
        for entry in instances:
            if entry not in before and (started := self._start(entry)) is not None:
                self._scheduler.join(started)
        for entry in before:
            if entry not in instances:
                self._end(entry)

    async def instances_ended(self) -> None:
        """Return when every instance that was taken away is closed, unless it has sequences, which may take long."""
        if ending := [task for task, sequences_over in self._ending.items() if sequences_over.is_set()]:
            await asyncio.wait(ending)

    def _end(self, entry: LoadedInstance) -> None:
        """Let no sequences begin on the instance, and close it when what it has under way is over. Returns at once."""
        instance = entry.instance
        runner = instance if isinstance(instance, WorkerInstance) else self._runners.get(instance)
        sequences_over = asyncio.Event()
        if self._sequences is not None and runner is not None and not entry.passive:
            self._sequences.leave(runner, sequences_over.set)
        else:
            sequences_over.set()
        what = f"ending an instance of '{self.name}' version {self.version}"
        task = tasks.start(what, self._close_instance(entry.instance, runner, sequences_over))
        self._ending[task] = sequences_over
        task.add_done_callback(self._ending.pop)

    async def _close_instance(
        self, instance: Instance | WorkerInstance, runner: BatchRunner | None, sequences_over: asyncio.Event
    ) -> None:
        await sequences_over.wait()
        if isinstance(instance, WorkerInstance):
            self._workers.remove(instance)
            instance.free = False
            self._scheduler.changed(instance)
            await instance.leave()
        elif isinstance(runner, Runner):
            del self._runners[instance]
            runner.leave()
            self._scheduler.changed(runner)
            await self._loop.run_in_executor(None, runner.close)
        if runner is not None:
            self._scheduler.forget(runner)
            if self._limiter is not None:
                self._limiter.remove(runner)
        try:
            await self._loop.run_in_executor(None, instance.close)
        except Exception:  # a framework's; the instance is gone all the same
            logger.exception("closing an instance of '%s' version %d", self.name, self.version)

    @property
    def answers_here(self) -> bool:
        """Whether a request is answered on the loop, in this very turn, once its scheduler has looked for it."""
        if self._cache is not None or self._limiter is not None or self.signature.decoupled:
            return False
        runner = self._scheduler.prompt_runner if isinstance(self._scheduler, Scheduler) else None
        return isinstance(runner, Runner | ServerInstance) and runner.answers_here

    @property
    def pending(self) -> int:
        """Requests that wait for an execution, in the queue or in a worker that was sent them ahead."""
        return self._scheduler.pending + sum(worker.waiting for worker in self._workers)

    def activity(self) -> list[InstanceActivity]:
        """What each of its instances is doing."""
        return [self._activity_of(entry) for entry in self.loaded.instances]

    def _activity_of(self, entry: LoadedInstance) -> InstanceActivity:
        spec, instance, slow_s = entry.spec, entry.instance, 0.0
        device = f"gpu:{spec.device}" if spec.kind == "KIND_GPU" else "cpu"
        if isinstance(instance, WorkerInstance):
            running = len(instance.requests) - instance.waiting
            place = "server process" if instance.in_server else "process"
            place = " ".join([place, *map(str, instance.processes)])
            state = "running" if running else "idle"
            if not instance.healthy:
                state = "restarting" if instance.trouble is None else "failed"
            reason = "" if instance.trouble is None else instance.trouble.message
            slow_s = instance.slow_s
            if slow_s:
                reason = f"an execution has been running for {slow_s:.0f} s"
        else:
            runner = self._runners.get(instance)
            running = 0 if runner is None else runner.under_way
            place = "event loop" if runner is not None and runner.runs_here else "thread"
            state, reason = "running" if running else "idle", ""
        if entry.passive:
            state = "passive"
        return InstanceActivity(spec.name, device, place, state, running, reason, slow_s)

    def infer(self, request: InferRequest) -> None:
        """Answer the request through its `respond`: with responses, or with the error that stopped it."""
        if self._predecessors and self._hand_on(request):
            return
        if self._stopping and not self.continues(request):
            request.respond(InferResponse(error=UnavailableError(request.prefix + STOPPING)), True)
            return
        try:
            validate(request, self.signature)
            if request.targets is not None:
                self._reach_regions(request)
        except HalimedeError as error:
            request.respond(InferResponse(error=error), True)
            return
        request.queued_ns = self._clock.now()
        if not request.received_ns:
            request.received_ns = request.queued_ns
        if request.trace is not None:
            record_queued(request)
        self.inflight += 1
        if request.nested:
            self.statistics.nested.begun += 1
        if self._load is not None:
            self._load.inflight += 1
        if request.cancelled:
            cancelled = CancelledError(request.prefix + "the request was cancelled before it was queued")
            self.refused(request, cancelled, FailureReason.CANCELED)
            return
        try:
            if self._trouble is not None:
                raise UnavailableError(self._trouble.message)
            self._enqueue(request)
        except UnavailableError as error:
            self.refused(request, error, FailureReason.REJECTED)
        except HalimedeError as error:  # it is not as its scheduler needs it
            if request.nested:
                self.statistics.nested.begun -= 1
            self._finish(1)
            request.respond(InferResponse(error=error), True)

    def _reach_regions(self, request: InferRequest) -> None:
        """Read the inputs that are in regions of clients, unless worker processes will.

        Raises:
            HalimedeError: a region does not hold them any more.
        """
        workers_only = self._workers_read_regions and not self._runners and self._cache is None
        if not workers_only:
            request.targets = {}
        for tensor in request.inputs.values():
            if isinstance(tensor, RegionTensor):
                if workers_only and tensor.byte_size > Outgoing.INLINE_BYTES:
                    tensor.piece.check()
                else:
                    tensor.data  # noqa: B018 - which reads it

    def continues(self, request: InferRequest) -> bool:
        """Whether the request goes on with a sequence that is under way, here or in a version before this one."""
        if self._sequences is None or request.sequence_start:
            return False
        held = self._sequences.holds(request.sequence_id)
        return held or any(each.continues(request) for each in self._predecessors)

    @property
    def sequences(self) -> int:
        """Sequences that are under way, here or in versions before this one."""
        own = 0 if self._sequences is None else self._sequences.open
        return own + sum(each.sequences for each in self._predecessors)

    def succeed(self, predecessor: ServedModel) -> None:
        """Take the place of another version, which still gets the requests of sequences that are under way there."""
        if self._sequences is not None and predecessor.sequences:
            self._predecessors.append(predecessor)

    def _hand_on(self, request: InferRequest) -> bool:
        """Let a version that this one replaced go on with a sequence; whether one does."""
        for each in self._predecessors:
            if each.continues(request):
                each.infer(request)
                return True
        self._predecessors = [each for each in self._predecessors if each.sequences]
        return False

    def _schedule(self, request: InferRequest) -> None:
        """Run a request whose response is not in the cache.

        Raises:
            UnavailableError: it cannot be run.
        """
        if self._trouble is not None:
            raise UnavailableError(self._trouble.message)
        self._scheduler.enqueue(request)

    def answered_by_cache(self) -> None:
        """A request has its response, and did not run."""
        self._finish(1)

    def refused(self, request: InferRequest, error: HalimedeError, reason: FailureReason) -> None:
        """The scheduler will not run the request, or not again: tell its client."""
        if self._open.pop(request, None) is not None and not self._workers:
            self._flow.taken(request, True)
        self.statistics.count_failure(request, self._clock.now(), reason)
        self._finish(1)
        request.respond(InferResponse(error=error), True)

    def starting(self, batch: Batch) -> None:
        """An execution begins: let a decoupled model send its responses."""
        if self.signature.decoupled:
            for request in batch.requests:
                if request.trace is not None:
                    request.trace.hold()  # its last response may be sent before the execution is over
                if request.is_null:
                    continue
                if request in self._open:  # it runs again
                    self._open[request].batch = batch
                    continue
                self._open[request] = _Responses(batch)
                if not self._workers:
                    self._flow.open(request)
            if not self._workers:
                batch.send = self._send

    def completed(self, batch: Batch) -> None:
        """An execution is over: count it and send its responses."""
        statistics = self.statistics
        requests, responses = batch.requests, batch.responses
        if self.signature.decoupled:
            for request in requests:
                if request.trace is not None:
                    record_execution(request, batch)
                    request.trace.end()
            if batch.failed:
                self._count_failed(batch)
                for request in requests:
                    self._deliver(request, responses[0], True)
            else:  # its responses come one by one
                statistics.count_execution(batch)
                for request in requests:
                    _tell_times(batch, request)
            return
        now = self._clock.now()
        if DEFERRED in responses:
            self._completed_partly(batch, now)
            return
        failed = False
        for request, response in zip(requests, responses, strict=True):
            if request.on_compute is not None:
                _tell_times(batch, request)
            if request.trace is not None:
                self._record(request, batch, response, now)
            request.respond(response, True)  # first of all: clients wait for it
            if response.error is not None:
                failed = True
                statistics.count_failure(request, now, FailureReason.BACKEND)
        if not batch.failed:
            statistics.count_execution(batch)
        else:
            self._count_failed(batch)
        if failed:
            requests = [r for r, response in zip(requests, responses, strict=True) if response.error is None]
        statistics.count_answered(requests, batch.started_ns, now)
        self._finish(len(responses))

    def _record(self, request: InferRequest, batch: Batch, response: InferResponse, now: int) -> None:
        """A traced request has run, and is about to be answered."""
        record_execution(request, batch)
        if response.error is None:
            self._exemplify(request, batch, now)

    def _exemplify(self, request: InferRequest, batch: Batch, now: int) -> None:
        whole_ns, queue_ns = now - request.received_ns, batch.started_ns - request.queued_ns
        compute_ns = max(0, batch.ended_ns - batch.started_ns)
        self.statistics.exemplify(request, whole_ns, queue_ns, whole_ns, compute_ns)

    def _completed_partly(self, batch: Batch, now: int) -> None:
        """An execution is over of which some requests were answered before, or will be later."""
        for request, response in zip(batch.requests, batch.responses, strict=True):
            _tell_times(batch, request)
            if request.trace is not None:
                record_execution(request, batch)
            if response is not DEFERRED:
                self._answer(batch, request, response, now)
        if not batch.failed:
            self.statistics.count_execution(batch)
        else:
            self._count_failed(batch)

    def _count_failed(self, batch: Batch) -> None:
        """Count an execution that failed, unless it never began."""
        if batch.ended_ns:
            self.statistics.count_failed_execution(batch)

    def _answer(self, batch: Batch, request: InferRequest, response: InferResponse, now: int) -> None:
        """Send the only response to a request by itself, and count it."""
        request.respond(response, True)
        if response.error is not None:
            self.statistics.count_failure(request, now, FailureReason.BACKEND)
        else:
            self.statistics.count_answered([request], batch.started_ns, now)
            if request.trace is not None:
                self._exemplify(request, batch, now)
        self._finish(1)

    # What instances in worker processes tell

    def ran(self, instance: WorkerInstance, batch: Batch) -> None:
        """A worker has run a batch."""
        self._scheduler.finished(instance, batch)

    def sent(self, batch: Batch, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """A worker has sent a response by itself."""
        if self.signature.decoupled:
            self._deliver(request, response, final)
        else:
            assert response is not None, "only decoupled models end a request without a response"
            self._answer(batch, request, response, self._clock.now())

    def returned(self, instance: WorkerInstance, batch: Batch) -> None:
        """A worker will not run a batch that it was sent."""
        if self._limiter is not None:
            self._limiter.release(instance, executed=False)
        for request in batch.requests:
            self._open.pop(request, None)
            if request.trace is not None and self.signature.decoupled:
                request.trace.end()
        self._scheduler.returned(batch)

    def counted(self, instance: WorkerInstance, counts: TextCounts) -> None:
        """A worker of a language model told what it has counted."""
        if self.statistics.texts is not None:
            self.statistics.texts.add(instance.name.instance, counts)

    def called(self) -> None:
        """A worker has called the server. So its executions may wait for others, and must not keep any waiting."""
        if self._load is not None:
            self._load.inflight -= self.inflight
            self._load = None
        for worker in self._workers:
            worker.recall()

    def changed(self, instance: WorkerInstance) -> None:
        """A worker's process ended, could not be started again, or runs again."""
        if self.statistics.texts is not None and not instance.healthy:
            self.statistics.texts.forget(instance.name.instance)
        if instance not in self._passive:
            self._scheduler.changed(instance)
        self._trouble = None
        if all(worker.trouble is not None for worker in self._workers):
            self._trouble = self._workers[0].trouble
        if self._trouble is not None:
            self._scheduler.refuse_all(self._trouble)
        if self._on_health is not None:
            self._on_health()

    @property
    def healthy(self) -> bool:
        """Whether every instance that lives in a worker process has one."""
        return all(worker.healthy for worker in self._workers)

    async def ready(self) -> tuple[bool, str]:
        """Whether the instances say that they are ready, and if not, why."""
        for worker in tuple(self._workers):
            ready, why = await worker.ready()
            if not ready:
                return False, why
        return True, ""

    def _send(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """What a decoupled backend calls, from any thread."""
        self._flow.wait(request)
        self._loop.call_soon_threadsafe(self._deliver, request, response, final)

    def _deliver(self, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """Send one response of a decoupled model on; its request counts when its last response is sent."""
        if not self._workers:
            self._flow.taken(request, final)
        responses = self._open.get(request)
        if responses is None:
            return  # the batch failed, and the client was told
        started_ns = responses.batch.started_ns
        now = self._clock.now()
        infer_ns = now - (responses.last_ns or started_ns)
        if not responses.first_ns:
            responses.first_ns = now
        if final:
            del self._open[request]
            request.started_ns = started_ns
            request_ns = now - request.received_ns
            if response is not None and response.error is not None:
                self.statistics.count_failure(request, now, FailureReason.BACKEND)
            else:
                queue_ns = started_ns - request.queued_ns
                first_ns = responses.first_ns - request.received_ns
                self.statistics.count_streamed(request, request_ns, queue_ns, first_ns)
                if request.trace is not None:
                    self.statistics.exemplify(request, request_ns, queue_ns, first_ns, 0)
            self._finish(1)
        request.respond(response, final)
        responses.last_ns = self._clock.now()
        self.statistics.count_response(responses.count, response, infer_ns, responses.last_ns - now)
        responses.count += 1

    def stop(self) -> None:
        """Accept no more requests but those of sequences that are under way."""
        self._stopping = True
        if self._sequences is not None:
            self._sequences.stop()
        if self._cache is not None:
            self._cache.close()

    def end_sequences(self) -> None:
        """Let the sequences end with the requests that they have, as no more can come."""
        if self._sequences is not None:
            self._sequences.end_sequences()

    @property
    def _is_busy(self) -> bool:
        return self.inflight > 0 or (self._sequences is not None and self._sequences.open > 0)

    async def drained(self) -> None:
        """Return when every accepted request has its final response, and every sequence is over."""
        if self._is_busy:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    async def close(self) -> None:
        """End the instances' threads and give everything back, off the loop. Nothing may be in flight."""
        if self._ending:
            await asyncio.wait(self._ending)
        await self._loop.run_in_executor(None, self._close)
        self.leave_limiter()

    def _close(self) -> None:
        self._flow.close()
        for runner in self._runners.values():
            runner.close()
        self.loaded.close()

    def _finish(self, requests: int) -> None:
        """So many requests have, or will have in this turn of the loop, their final response."""
        self.inflight -= requests
        if self._load is not None:
            self._load.inflight -= requests
        if not self.inflight and self._drained is not None:
            self._look_drained()

    def _look_drained(self) -> None:
        """Tell whoever waits for it that nothing is under way any more, if that is so."""
        if self._drained is not None and not self._is_busy:
            self._drained.set_result(None)
            self._drained = None


class _Responses:
    """What a request of a decoupled model has had so far: how many responses, when the first, and the last.

    Attributes:
        batch: the batch that it runs in, or ran in last.
    """

    __slots__ = ("batch", "count", "first_ns", "last_ns")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.count = 0
        self.first_ns = 0
        self.last_ns = 0


def _tell_times(batch: Batch, request: InferRequest) -> None:
    """Tell whoever wants to know how long the request's execution took."""
    if request.on_compute is not None:
        inputs_ns = batch.inputs_ns or batch.started_ns
        outputs_ns = batch.outputs_ns or batch.ended_ns
        request.started_ns = batch.started_ns
        request.on_compute(inputs_ns - batch.started_ns, outputs_ns - inputs_ns, batch.ended_ns - outputs_ns)
