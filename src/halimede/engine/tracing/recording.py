"""What is recorded of a traced request, where it passes by. Nothing of this is called for one that is not traced.

Names are Triton's. A client's request has, besides, events of the protocol that it came by.

    REQUEST_START ─ QUEUE_START ─ COMPUTE_START ─ COMPUTE_INPUT_END ─ COMPUTE_OUTPUT_START ─ COMPUTE_END ─ REQUEST_END
"""

from collections.abc import Callable

from halimede.backends.batch import Batch
from halimede.core.requests import InferRequest, InferResponse, NamedTensors
from halimede.core.traces import Trace, TracedTensor


def trace_client_request(
    request: InferRequest,
    trace: Trace,
    protocol: str,
    now: Callable[[], int],
    receive_events: tuple[str, str],
) -> None:
    """Trace a request that a front end has made and is about to hand to its model.

    Args:
        request: the request; it was received at `received_ns`.
        trace: what is recorded of it.
        protocol: HTTP or GRPC.
        now: the engine's clock.
        receive_events: what the beginning and the end of its reception are called.
    """
    start, end = receive_events
    trace.record(start, request.received_ns)
    trace.record(end, now())
    _Recorded(request, trace, now, protocol)


def trace_caused_request(
    cause: Trace, request: InferRequest, model_version: int, now: Callable[[], int]
) -> None:
    """Trace a request that a traced one has caused, and that is about to be handed to its model."""
    trace = cause.child(request.model_name, model_version)
    if trace is not None:
        _Recorded(request, trace, now, "")


def record_queued(request: InferRequest) -> None:
    """A valid request enters its model's queue, at its `queued_ns`."""
    trace = request.trace
    assert trace is not None
    trace.record("QUEUE_START", request.queued_ns)
    if trace.tensors:
        _record_tensors(trace, "TENSOR_QUEUE_INPUT", request.inputs.items())


def record_cached(request: InferRequest, *, hit: bool) -> None:
    """The response cache has the response to a request, or does not."""
    assert request.trace is not None
    request.trace.attributes["halimede.cache"] = "hit" if hit else "miss"


def record_execution(request: InferRequest, batch: Batch) -> None:
    """An execution of a request is over."""
    trace = request.trace
    assert trace is not None
    attributes = trace.attributes
    attributes["halimede.batch.size"] = batch.size
    attributes["halimede.batch.requests"] = len(batch.requests)
    attributes["halimede.instance"] = batch.instance
    if batch.closing is not None:
        attributes["halimede.batch.closed_by"] = batch.closing.value
    started, ended = batch.started_ns, batch.ended_ns
    if ended:  # else it never began
        trace.record("COMPUTE_START", started)
        trace.record("COMPUTE_INPUT_END", batch.inputs_ns or started)
        trace.record("COMPUTE_OUTPUT_START", batch.outputs_ns or ended)
        trace.record("COMPUTE_END", ended)


class _Recorded:
    """Takes the responses to a traced request on their way, and ends the trace with the last.

    Args:
        request: the request.
        trace: what is recorded of it.
        now: the engine's clock.
        protocol: how its client is answered, HTTP or GRPC; "" for one that was caused by another.
    """

    __slots__ = ("_answered", "_now", "_protocol", "_respond", "_trace")

    def __init__(self, request: InferRequest, trace: Trace, now: Callable[[], int], protocol: str) -> None:
        self._trace = trace
        self._now = now
        self._protocol = protocol
        self._respond = request.respond
        self._answered = False
        trace.request_id = request.id
        trace.record("REQUEST_START", now())
        request.trace = trace
        request.respond = self.respond

    def respond(self, response: InferResponse | None, final: bool) -> None:
        """Take a response of the engine."""
        trace, now, protocol = self._trace, self._now, self._protocol
        if response is not None:
            if response.error is not None:
                trace.error = response.error.message
            elif trace.tensors:
                _record_tensors(trace, "TENSOR_BACKEND_OUTPUT", response.tensors())
        if protocol and not self._answered:
            self._answered = True
            trace.record("INFER_RESPONSE_COMPLETE", now())
        if final:
            trace.record("REQUEST_END", now())
        if protocol:
            trace.record(protocol + "_SEND_START", now())
            self._respond(response, final)
            trace.record(protocol + "_SEND_END", now())
        else:
            self._respond(response, final)
        if final:
            trace.end()


def _record_tensors(trace: Trace, activity: str, tensors: NamedTensors) -> None:
    for name, tensor in tensors:
        content = bytes(tensor.data)
        trace.contents.append(TracedTensor(activity, name, tensor.datatype.name, tensor.shape, content))
