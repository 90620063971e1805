"""One version of an ensemble, loaded: its plan, its counts, and what is in flight."""

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Mapping
from time import time_ns

from halimede.backends.base import ModelSource
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.clock import Clock
from halimede.core.errors import CancelledError, HalimedeError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse
from halimede.engine.cache.access import CacheAccess
from halimede.engine.ensembles.plan import EnsemblePlan
from halimede.engine.ensembles.run import EnsembleRun
from halimede.engine.ensembles.step_limits import StepLimits
from halimede.engine.served_model import Find, InstanceActivity, ServedModel
from halimede.engine.statistics import BatchStatistics, FailureReason, ModelStatistics
from halimede.engine.tracing.recording import record_queued
from halimede.engine.validation import validate


class EnsembleModel:
    """A loaded version of an ensemble. Lives on the event loop.

    Attributes:
        name: the model's name.
        version: the version.
        directory: where its files are.
        config: the final configuration; its transaction policy says whether the ensemble is decoupled.
        plan: what runs when.
        signature: what it takes and gives.
        statistics: what is counted of it.
        inflight: requests that were accepted and have no final response yet.
        pending: requests that wait for an execution: none, they wait in the queues of the steps' models.
        takes_device_tensors: what passes between an ensemble and its clients does so on the host.
    """

    pending = 0
    takes_device_tensors = False

    def __init__(
        self,
        source: ModelSource,
        plan: EnsemblePlan,
        find: Find,
        clock: Clock,
        loop: AbstractEventLoop,
        labels: Mapping[str, list[str]],
        statistics: ModelStatistics,
        cache: CacheAccess | None = None,
    ) -> None:
        """An ensemble that takes requests from now on.

        Args:
            source: where it comes from.
            plan: made of its configuration.
            find: gives the models of its steps, request by request.
            clock: the time.
            loop: the event loop.
            labels: output → class labels, of the outputs for which the ensemble itself names a file.
            statistics: where it is counted.
            cache: where its responses are kept, if they are.
        """
        self.name = source.client_name
        self.identifier = source.name
        self.version = source.version
        self.directory = source.directory
        self.config = ModelConfig()
        self.config.CopyFrom(source.config)
        for step in self.config.ensemble_scheduling.step:
            step.model_name = step.model_name.removeprefix(f"{step.model_namespace}::")
        self.config.model_transaction_policy.decoupled = plan.signature.decoupled
        self.plan = plan
        self.signature = plan.signature
        self.statistics = statistics
        self.inflight = 0
        self._find = find
        self._clock = clock
        self._loop = loop
        self._labels = labels
        self._limits = StepLimits(plan.max_inflight) if plan.max_inflight else None
        self._stopping = False
        self._drained: asyncio.Future[None] | None = None
        self._cache = None if cache is None else cache.open(statistics, clock, self._start, self)

    @property
    def labels(self) -> Mapping[str, list[str]]:
        """Output → class labels: the ensemble's own, or else those of the model that writes the output."""
        labels = dict(self._labels)
        for output in self.signature.outputs:
            producer = self.plan.producer(output)
            if output in labels or producer is None:
                continue
            step, name = producer
            try:
                model = self._find(step.model_name, step.model_version)
            except HalimedeError:  # gone since it answered
                continue
            if name in model.labels:
                labels[output] = model.labels[name]
        return labels

    def activity(self) -> tuple[InstanceActivity, ...]:
        """Nothing: the steps run on instances of other models."""
        return ()

    @property
    def healthy(self) -> bool:
        """An ensemble runs on nothing of its own; its models tell for themselves."""
        return True

    async def ready(self) -> tuple[bool, str]:
        """It is, as long as it is loaded."""
        return True, ""

    def infer(self, request: InferRequest) -> None:
        """Answer the request through its `respond`: with responses, or with the error that stopped it."""
        if self._stopping:
            msg = "Server is stopping, scheduler for model has stopped accepting new inference requests"
            request.respond(InferResponse(error=UnavailableError(request.prefix + msg)), True)
            return
        try:
            validate(request, self.signature)
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
        if self._cache is not None and not request.cancelled:
            self._cache.enqueue(request)
        else:
            self._start(request)

    def _start(self, request: InferRequest) -> None:
        """Run a request whose response is not in the cache."""
        run = EnsembleRun(self.plan, request, self._find, self._clock.now, self, self._limits)
        if request.cancelled:
            run.error = CancelledError(request.prefix + "the request was cancelled before it was queued")
        run.start()

    def finished(self, run: EnsembleRun) -> None:
        """Count a request whose final response is sent."""
        request, statistics = run.request, self.statistics
        self._finish()
        request_ns = run.finished_ns - request.received_ns
        if run.error is not None:
            cancelled = isinstance(run.error, CancelledError)
            reason = FailureReason.CANCELED if cancelled else FailureReason.OTHER
            statistics.count_failure(request, run.finished_ns, reason)
            return
        size = request.batch_size
        statistics.last_inference_ms = time_ns() // 1_000_000
        statistics.inference_count += size
        statistics.execution_count += 1
        statistics.batch_size.observe(size)
        first_ns = (run.first_ns or run.finished_ns) - request.received_ns
        compute_ns = run.input_ns + run.infer_ns + run.output_ns
        statistics.count_streamed(request, request_ns, 0, first_ns)
        statistics.compute_us.observe(compute_ns // 1_000)
        if request.trace is not None:
            statistics.exemplify(request, request_ns, 0, first_ns, compute_ns)
        if statistics.summaries is not None:
            statistics.summaries.compute_input.observe(run.input_ns // 1_000)
            statistics.summaries.compute_infer.observe(run.infer_ns // 1_000)
            statistics.summaries.compute_output.observe(run.output_ns // 1_000)
        self._count_compute(size, run.input_ns, run.infer_ns, run.output_ns, 1)

    def _finish(self) -> None:
        """A request has its final response."""
        self.inflight -= 1
        if not self.inflight and self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def answered_by_cache(self) -> None:
        """A request has its response, and did not run."""
        self._finish()

    def refused(self, request: InferRequest, error: HalimedeError, reason: FailureReason) -> None:
        """The request waited for the response to another, and will not run: tell its client."""
        self.statistics.count_failure(request, self._clock.now(), reason)
        self._finish()
        request.respond(InferResponse(error=error), True)

    def computed_late(self, run: EnsembleRun, input_ns: int, infer_ns: int, output_ns: int) -> None:
        """Add what a decoupled model, which may respond before it has computed, took for a finished request."""
        if run.error is None:
            self._count_compute(run.request.batch_size, input_ns, infer_ns, output_ns, 0)
            if run.request.on_compute is not None:
                run.request.on_compute(input_ns, infer_ns, output_ns)

    def _count_compute(self, size: int, input_ns: int, infer_ns: int, output_ns: int, count: int) -> None:
        statistics = self.statistics
        batches = statistics.batches.get(size)
        if batches is None:
            batches = statistics.batches[size] = BatchStatistics()
        for counts in (statistics, batches):
            counts.compute_input.add(input_ns, count)
            counts.compute_infer.add(infer_ns, count)
            counts.compute_output.add(output_ns, count)

    @property
    def sequences(self) -> int:
        """None: sequences are under way in its models."""
        return 0

    def continues(self, request: InferRequest) -> bool:
        """No request does: its models know of sequences."""
        return False

    def succeed(self, predecessor: "ServedModel") -> None:
        """Nothing is taken over: its models do that by themselves."""

    def end_sequences(self) -> None:
        """There are none."""

    def stop(self) -> None:
        """Accept no more requests."""
        self._stopping = True
        if self._cache is not None:
            self._cache.close()

    async def drained(self) -> None:
        """Return when every accepted request has its final response."""
        if self.inflight:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    async def close(self) -> None:
        """Nothing is to be given back: its models are loaded and unloaded by themselves."""
