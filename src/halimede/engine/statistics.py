"""What is counted of a model version: plain integers, added up on the event loop.

Field meanings are those of Triton's statistics extension: a batch adds its compute times once to each of its
requests, and once to the statistics of its batch size.
"""

from bisect import bisect_left
from collections.abc import Sequence
from enum import Enum
from time import time_ns

from halimede.backends.batch import Batch, Closing
from halimede.core.clock import SECOND
from halimede.core.errors import CancelledError
from halimede.core.requests import InferRequest, InferResponse
from halimede.engine.histogram import Exemplar, Histogram
from halimede.engine.summaries import LatencySummaries
from halimede.engine.text_statistics import TextStatistics


class FailureReason(Enum):
    """Label `reason` of the failure counter."""

    REJECTED = "REJECTED"
    CANCELED = "CANCELED"
    BACKEND = "BACKEND"
    OTHER = "OTHER"


class Duration:
    """How often something took how long in total: `count` and `ns`."""

    __slots__ = ("count", "ns")

    def __init__(self, count: int = 0, ns: int = 0) -> None:
        self.count = count
        self.ns = ns

    def add(self, ns: int, count: int = 1) -> None:
        """Add `ns` nanoseconds that stand for `count` events."""
        self.count += count
        self.ns += ns


DURATION_BOUNDS_US = (
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000,
)  # fmt: skip
FIRST_RESPONSE_BOUNDS_MS = (100, 500, 2_000, 5_000)
BATCH_SIZE_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class NestedStatistics:
    """The part of a model's requests that other requests led to: steps of ensembles, and calls of models.

    Attributes:
        begun: requests that were accepted.
        success: requests that were answered.
        failures: failed requests by reason.
        request_us: histogram of the times from receipt to response of those that were answered, in microseconds.
    """

    __slots__ = ("begun", "failures", "request_us", "success")

    def __init__(self) -> None:
        self.begun = 0
        self.success = 0
        self.failures = dict.fromkeys(FailureReason, 0)
        self.request_us = Histogram(DURATION_BOUNDS_US)

    @property
    def inflight(self) -> int:
        """Requests without a final response."""
        return self.begun - self.success - sum(self.failures.values())

    def count(self, request_ns: int) -> None:
        """Count a request that was answered."""
        self.success += 1
        self.request_us.observe(request_ns // 1_000)


class BatchStatistics:
    """Times of the executions of one total batch size."""

    __slots__ = ("compute_infer", "compute_input", "compute_output")

    def __init__(self) -> None:
        self.compute_input = Duration()
        self.compute_infer = Duration()
        self.compute_output = Duration()


MAX_RESPONSE_INDEX = 999
"""Later responses of a request are not counted by their index, so that statistics stay of a bounded size."""


class ResponseStatistics:
    """The responses of one index: the first ones of all requests, or the second ones, and so on.

    Attributes:
        count: how many there were, of any kind.
        infer_ns: what the model took for them, each from the response before or from the execution's start.
        output_ns: what it took to hand them on; nothing for empty ones.
        fail, cancel: both times together, of responses with an error, and for cancelled requests.
        empty_response: what the model took to say that there are no more.
    """

    __slots__ = ("cancel", "count", "empty_response", "fail", "infer_ns", "output_ns")

    def __init__(self) -> None:
        self.count = 0
        self.infer_ns = 0
        self.output_ns = 0
        self.fail = Duration()
        self.cancel = Duration()
        self.empty_response = Duration()

    @property
    def compute_infer(self) -> Duration:
        """What the model took for them."""
        return Duration(self.count, self.infer_ns)

    @property
    def compute_output(self) -> Duration:
        """What it took to hand on those that are not empty."""
        return Duration(self.count - self.empty_response.count, self.output_ns)

    @property
    def success(self) -> Duration:
        """Both times together, of responses with outputs."""
        others = (self.fail, self.cancel, self.empty_response)
        return Duration(
            self.count - sum(each.count for each in others),
            self.infer_ns + self.output_ns - sum(each.ns for each in others),
        )


class ModelStatistics:
    """All counts of one model version.

    Attributes:
        last_inference_ms: end of the last execution, in milliseconds since the epoch; 0 for never.
        inference_count: rows executed.
        execution_count: executions by the backend, also those that failed; a batch counts once.
        success, fail: requests and their time from receipt to response.
        queue, compute_input, compute_infer, compute_output: of successful requests.
        cache_hit, cache_miss: requests that the response cache answered, or took the response of, with the time that
            the cache took.
        batches: total batch size → its statistics.
        closings: (dynamic batchers) executed batches by why they were closed.
        tokens: (batchers by tokens) tokens executed, without padding.
        padding: (batchers by tokens) tokens executed that were padding.
        responses: the responses of a decoupled model by their index, up to MAX_RESPONSE_INDEX.
        failures: failed requests by reason.
        nested: the part of all requests that other requests led to.
        request_us, queue_us, compute_us: histograms in microseconds.
        first_response_ms: histogram of the times from receipt to first response, in milliseconds.
        batch_size: histogram of executed batch sizes.
        load_ns: how long the version took to load.
        summaries: quantiles of latencies; None unless they were asked for.
        texts: what is counted of the texts of a language model; None for other models.
    """

    __slots__ = (
        "batch_size",
        "batches",
        "cache_hit",
        "cache_miss",
        "closings",
        "compute_infer",
        "compute_input",
        "compute_output",
        "compute_us",
        "execution_count",
        "fail",
        "failures",
        "first_response_ms",
        "inference_count",
        "last_inference_ms",
        "load_ns",
        "nested",
        "padding",
        "queue",
        "queue_us",
        "request_us",
        "responses",
        "success",
        "summaries",
        "texts",
        "tokens",
    )

    def __init__(self, first_response_bounds_ms: tuple[float, ...] = FIRST_RESPONSE_BOUNDS_MS) -> None:
        self.last_inference_ms = 0
        self.inference_count = 0
        self.execution_count = 0
        self.success = Duration()
        self.fail = Duration()
        self.queue = Duration()
        self.compute_input = Duration()
        self.compute_infer = Duration()
        self.compute_output = Duration()
        self.cache_hit = Duration()
        self.cache_miss = Duration()
        self.batches: dict[int, BatchStatistics] = {}
        self.closings = dict.fromkeys(Closing, 0)
        self.tokens = 0
        self.padding = 0
        self.responses: list[ResponseStatistics] = []
        self.failures = dict.fromkeys(FailureReason, 0)
        self.nested = NestedStatistics()
        self.request_us = Histogram(DURATION_BOUNDS_US)
        self.queue_us = Histogram(DURATION_BOUNDS_US)
        self.compute_us = Histogram(DURATION_BOUNDS_US)
        self.first_response_ms = Histogram(first_response_bounds_ms)
        self.batch_size = Histogram(BATCH_SIZE_BOUNDS)
        self.load_ns = 0
        self.summaries: LatencySummaries | None = None
        self.texts: TextStatistics | None = None

    def count_execution(self, batch: Batch) -> None:
        """Count one execution that went well: once for its size, and for each of its requests."""
        size, requests = batch.size or 1, len(batch.requests)
        inputs_ns = batch.inputs_ns or batch.started_ns
        outputs_ns = batch.outputs_ns or batch.ended_ns
        input_ns = inputs_ns - batch.started_ns
        infer_ns = outputs_ns - inputs_ns
        output_ns = batch.ended_ns - outputs_ns
        self.last_inference_ms = time_ns() // 1_000_000
        self.inference_count += size - batch.nulls
        self.execution_count += 1
        self.batch_size.observe(size)
        if batch.closing is not None:
            self.closings[batch.closing] += 1
            self.tokens += batch.tokens
            self.padding += batch.padding
        counts = self.batches.get(size)
        if counts is None:
            counts = self.batches[size] = BatchStatistics()
        # spelt out, as is all that is on the path of every request: a call takes longer than what it does
        duration = counts.compute_input
        duration.count += 1
        duration.ns += input_ns
        duration = counts.compute_infer
        duration.count += 1
        duration.ns += infer_ns
        duration = counts.compute_output
        duration.count += 1
        duration.ns += output_ns
        duration = self.compute_input
        duration.count += requests
        duration.ns += input_ns * requests
        duration = self.compute_infer
        duration.count += requests
        duration.ns += infer_ns * requests
        duration = self.compute_output
        duration.count += requests
        duration.ns += output_ns * requests
        self.compute_us.observe((batch.ended_ns - batch.started_ns) // 1_000, requests)
        if self.summaries is not None:
            self.summaries.compute_input.observe(input_ns // 1_000, requests)
            self.summaries.compute_infer.observe(infer_ns // 1_000, requests)
            self.summaries.compute_output.observe(output_ns // 1_000, requests)

    def count_failed_execution(self, batch: Batch) -> None:
        """Count one execution that failed as a whole: for its size, but for none of its requests."""
        inputs_ns = batch.inputs_ns or batch.started_ns
        outputs_ns = batch.outputs_ns or batch.ended_ns
        self.last_inference_ms = time_ns() // 1_000_000
        self.execution_count += 1
        counts = self.batches.setdefault(batch.size or 1, BatchStatistics())
        counts.compute_input.add(inputs_ns - batch.started_ns)
        counts.compute_infer.add(outputs_ns - inputs_ns)
        counts.compute_output.add(batch.ended_ns - outputs_ns)

    def count_answered(self, requests: Sequence[InferRequest], started: int, now: int) -> None:
        """Count requests that were answered at `now`, each with its only response, by an execution since `started`."""
        request_ns = queue_ns = 0
        request_us, queue_us = self.request_us.counts, self.queue_us.counts
        first_response_ms, first_bounds = self.first_response_ms.counts, self.first_response_ms.bounds
        for request in requests:
            whole, waited = now - request.received_ns, started - request.queued_ns
            request_ns += whole
            queue_ns += waited
            request_us[bisect_left(DURATION_BOUNDS_US, whole // 1_000)] += 1
            queue_us[bisect_left(DURATION_BOUNDS_US, waited // 1_000)] += 1
            first_response_ms[bisect_left(first_bounds, whole // 1_000_000)] += 1
            if request.nested:
                self.nested.count(whole)
        self.success.add(request_ns, len(requests))
        self.queue.add(queue_ns, len(requests))
        self.request_us.total += request_ns // 1_000
        self.queue_us.total += queue_ns // 1_000
        self.first_response_ms.total += request_ns // 1_000_000
        if self.summaries is not None:
            for request in requests:
                self.summaries.request.observe((now - request.received_ns) // 1_000)
                self.summaries.queue.observe((started - request.queued_ns) // 1_000)

    def exemplify(
        self, request: InferRequest, request_ns: int, queue_ns: int, first_response_ns: int, compute_ns: int
    ) -> None:
        """Keep a traced request as an exemplar of its latencies, which are counted by themselves."""
        context = None if request.trace is None else request.trace.context
        if context is None:
            return
        now = time_ns() / SECOND
        self.request_us.keep(Exemplar(request_ns // 1_000, context, now))
        self.queue_us.keep(Exemplar(queue_ns // 1_000, context, now))
        self.first_response_ms.keep(Exemplar(first_response_ns // 1_000_000, context, now))
        if compute_ns:
            self.compute_us.keep(Exemplar(compute_ns // 1_000, context, now))

    def count_hit(self, request: InferRequest, lookup_ns: int, now: int) -> None:
        """Count a request that the response cache answered at `now`, after a look-up that took so long."""
        whole = now - request.received_ns
        waited = max(0, now - request.queued_ns - lookup_ns)
        duration = self.success
        duration.count += 1
        duration.ns += whole
        duration = self.queue
        duration.count += 1
        duration.ns += waited
        duration = self.cache_hit
        duration.count += 1
        duration.ns += lookup_ns
        self.request_us.observe(whole // 1_000)
        self.queue_us.observe(waited // 1_000)
        self.first_response_ms.observe(whole // 1_000_000)
        if request.nested:
            self.nested.count(whole)
        if request.trace is not None:
            self.exemplify(request, whole, waited, whole, 0)
        if self.summaries is not None:
            self.summaries.request.observe(whole // 1_000)
            self.summaries.queue.observe(waited // 1_000)
            self.summaries.cache_hit.observe(lookup_ns // 1_000)

    def count_miss(self, cache_ns: int) -> None:
        """Count a successful request whose response was not in the cache: look-up and insertion took so long."""
        duration = self.cache_miss
        duration.count += 1
        duration.ns += cache_ns
        if self.summaries is not None:
            self.summaries.cache_miss.observe(cache_ns // 1_000)

    def count_streamed(
        self, request: InferRequest, request_ns: int, queue_ns: int, first_response_ns: int
    ) -> None:
        """Count a decoupled request: all of it took `request_ns` from its receipt, its first response less."""
        if request.nested:
            self.nested.count(request_ns)
        self.success.add(request_ns)
        self.queue.add(queue_ns)
        self.request_us.observe(request_ns // 1_000)
        self.queue_us.observe(queue_ns // 1_000)
        self.first_response_ms.observe(first_response_ns // 1_000_000)
        if self.summaries is not None:
            self.summaries.request.observe(request_ns // 1_000)
            self.summaries.queue.observe(queue_ns // 1_000)

    def count_response(
        self, index: int, response: InferResponse | None, infer_ns: int, output_ns: int
    ) -> None:
        """Count one response of a decoupled model; None says that the one before was the last."""
        responses = self.responses
        if index >= len(responses):
            if index > MAX_RESPONSE_INDEX:
                return
            responses.append(ResponseStatistics())
        counts = responses[index]
        counts.count += 1
        counts.infer_ns += infer_ns
        if response is None:
            counts.empty_response.add(infer_ns)
            return
        counts.output_ns += output_ns
        if response.error is not None:
            kind = counts.cancel if isinstance(response.error, CancelledError) else counts.fail
            kind.add(infer_ns + output_ns)

    def count_failure(self, request: InferRequest, now: int, reason: FailureReason) -> None:
        """Count a request that failed at `now`."""
        self.fail.add(now - request.received_ns)
        self.failures[reason] += 1
        if request.nested:
            self.nested.failures[reason] += 1
