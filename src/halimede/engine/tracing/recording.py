"""What is recorded of a traced request, where it passes by. Nothing of this is called for one that is not traced.

Names are Triton's. A client's request has, besides, events of the protocol that it came by.

    REQUEST_START ─ QUEUE_START ─ COMPUTE_START ─ COMPUTE_INPUT_END ─ COMPUTE_OUTPUT_START ─ COMPUTE_END ─ REQUEST_END
"""

import logging
from collections.abc import Callable
from typing import Final

from halimede.backends.batch import Batch
from halimede.core.requests import InferRequest, InferResponse, NamedTensors
from halimede.core.traces import Trace, TracedTensor

logger = logging.getLogger("halimede")

_QUEUED: Final = "TENSOR_QUEUE_INPUT"


def trace_client_request(
    request: InferRequest,
    trace: Trace,
    protocol: str,
    now: Callable[[], int],
    receive_events: tuple[str, str],
    began_ns: int = 0,
) -> None:
    """Trace a request that a front end has made and is about to hand to its model.

    Args:
        request: the request; it was complete at its `received_ns`.
        trace: what is recorded of it.
        protocol: HTTP or GRPC.
        now: the engine's clock.
        receive_events: what the beginning and the end of its reception are called.
        began_ns: when its reception began; 0 if it came at once.
    """
    start, end = receive_events
    trace.record(start, began_ns or request.received_ns)
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
        _record_tensors(trace, _QUEUED, request.inputs.items())


def record_execution(request: InferRequest, batch: Batch) -> None:
    """An execution of a request is over."""
    trace = request.trace
    assert trace is not None
    started, ended = batch.started_ns, batch.ended_ns
    if ended:  # else it never began
        trace.record("COMPUTE_START", started)
        trace.record("COMPUTE_INPUT_END", batch.inputs_ns or started)
        trace.record("COMPUTE_OUTPUT_START", batch.outputs_ns or ended)
        trace.record("COMPUTE_END", ended)
        if trace.tensors:  # as they were when they were queued: the model may have written to them
            queued = [each for each in trace.contents if each.activity == _QUEUED]
            trace.contents += [each._replace(activity="TENSOR_BACKEND_INPUT") for each in queued]


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
        try:
            content = bytes(tensor.data)
        except Exception:  # whoever takes the tensor says what is wrong with it
            logger.debug("tracing: cannot read tensor '%s'", name, exc_info=True)
            continue
        trace.contents.append(TracedTensor(activity, name, tensor.datatype.name, tensor.shape, content))
