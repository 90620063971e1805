"""One version of a model, loaded: its scheduler, its instances, its counts, and what is in flight."""

import asyncio
from asyncio import AbstractEventLoop
from functools import partial

from halimede.backends.batch import Batch
from halimede.config.model_config_pb2 import ModelConfig, ModelOptimizationPolicy
from halimede.config.signature import Signature
from halimede.core.clock import Clock
from halimede.core.errors import CancelledError, HalimedeError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse
from halimede.engine.batching import DefaultScheduler, DynamicBatcher, Scheduler
from halimede.engine.instances import Runner
from halimede.engine.loading import LoadedVersion
from halimede.engine.statistics import FailureReason
from halimede.engine.validation import validate

LEAST_PRIORITY = 19
"""Niceness of the threads of a model whose `optimization` has the priority PRIORITY_MIN."""


class Model:
    """A loaded version. Lives on the event loop.

    Attributes:
        name: the model's name.
        version: the version.
        config: the final configuration.
        signature: what it takes and gives.
        labels: output → class labels.
        statistics: what is counted of it.
        inflight: requests that were accepted and have no final response yet.
        loaded: what it runs on.
    """

    def __init__(self, loaded: LoadedVersion, clock: Clock, loop: AbstractEventLoop) -> None:
        self.loaded = loaded
        self.name = loaded.source.name
        self.version = loaded.source.version
        self.config: ModelConfig = loaded.source.config
        self.signature: Signature = loaded.signature
        self.labels = loaded.labels
        self.statistics = loaded.statistics
        self.inflight = 0
        self._loop = loop
        self._clock = clock
        self._stopping = False
        self._open: dict[InferRequest, int] = {}  # decoupled: each with when its first response came
        self._drained: asyncio.Future[None] | None = None
        self._scheduler: Scheduler
        if self.config.HasField("dynamic_batching"):
            self._scheduler = DynamicBatcher(self.signature, self.config.dynamic_batching, clock, self)
        else:
            self._scheduler = DefaultScheduler(self.signature, clock, self)
        low = self.config.optimization.priority == ModelOptimizationPolicy.PRIORITY_MIN
        niceness = LEAST_PRIORITY if low else 0
        self._runners = [
            Runner(entry.spec.name, entry.instance, loop, self._scheduler.finished, niceness)
            for entry in loaded.instances
            if not entry.passive
        ]
        self._scheduler.start(self._runners)

    @property
    def pending(self) -> int:
        """Requests that wait for an execution."""
        return len(self._scheduler.queue)

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
        self.inflight += 1
        if request.cancelled:
            cancelled = CancelledError(request.prefix + "the request was cancelled before it was queued")
            self.refused(request, cancelled, FailureReason.CANCELED)
            return
        try:
            self._scheduler.enqueue(request)
        except UnavailableError as error:
            self.refused(request, error, FailureReason.REJECTED)

    def refused(self, request: InferRequest, error: HalimedeError, reason: FailureReason) -> None:
        """The scheduler will not run the request: tell its client."""
        self.statistics.count_failure(self._clock.now() - request.received_ns, reason)
        self._finish(1)
        request.respond(InferResponse(error=error), True)

    def starting(self, batch: Batch) -> None:
        """An execution begins: let a decoupled model send its responses."""
        if self.signature.decoupled:
            self._open.update(dict.fromkeys(batch.requests, 0))
            batch.send = partial(self._send, batch)

    def completed(self, batch: Batch) -> None:
        """An execution is over: count it and send its responses."""
        statistics = self.statistics
        requests, responses = batch.requests, batch.responses
        if self.signature.decoupled:
            if batch.failed:
                for request in requests:
                    self._deliver(batch, request, responses[0], True)
            else:  # its responses come one by one
                statistics.count_execution(batch)
            return
        now = self._clock.now()
        failed = False
        for request, response in zip(requests, responses, strict=True):
            request.respond(response, True)  # first of all: clients wait for it
            if response.error is not None:
                failed = True
                statistics.count_failure(now - request.received_ns, FailureReason.BACKEND)
        if not batch.failed:
            statistics.count_execution(batch)
        if failed:
            requests = [r for r, response in zip(requests, responses, strict=True) if response.error is None]
        statistics.count_answered(requests, batch.started_ns, now)
        self._finish(len(responses))

    def _send(self, batch: Batch, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """What a decoupled backend calls, from any thread."""
        self._loop.call_soon_threadsafe(self._deliver, batch, request, response, final)

    def _deliver(
        self, batch: Batch, request: InferRequest, response: InferResponse | None, final: bool
    ) -> None:
        """Send one response of a decoupled model on; its request counts when its last response is sent."""
        if request not in self._open:
            return  # the batch failed, and the client was told
        now = self._clock.now()
        if not self._open[request]:
            self._open[request] = now
        if final:
            first = self._open.pop(request)
            request_ns = now - request.received_ns
            if response is not None and response.error is not None:
                self.statistics.count_failure(request_ns, FailureReason.BACKEND)
            else:
                queue_ns = batch.started_ns - request.queued_ns
                self.statistics.count_streamed(request_ns, queue_ns, first - request.received_ns)
            self._finish(1)
        request.respond(response, final)

    def stop(self) -> None:
        """Accept no more requests."""
        self._stopping = True

    async def drained(self) -> None:
        """Return when every accepted request has its final response."""
        if self.inflight:
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    async def close(self) -> None:
        """End the instances' threads and give everything back, off the loop. Nothing may be in flight."""
        await self._loop.run_in_executor(None, self._close)

    def _close(self) -> None:
        for runner in self._runners:
            runner.close()
        self.loaded.close()

    def _finish(self, requests: int) -> None:
        """So many requests have, or will have in this turn of the loop, their final response."""
        self.inflight -= requests
        if not self.inflight and self._drained is not None:
            self._drained.set_result(None)
            self._drained = None
