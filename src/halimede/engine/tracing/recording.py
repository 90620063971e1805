"""What is recorded of a traced request, where it passes by. Nothing of this is called for one that is not traced.

Names are Triton's. A client's request has, besides, events of the protocol that it came by.

    REQUEST_START ─ QUEUE_START ─ COMPUTE_START ─ COMPUTE_INPUT_END ─ COMPUTE_OUTPUT_START ─ COMPUTE_END ─ REQUEST_END
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from halimede.backends.batch import Batch
from halimede.core.requests import InferRequest, InferResponse, NamedTensors
from halimede.core.traces import Trace, TracedTensor

logger = logging.getLogger("halimede")


class ProtocolNames(NamedTuple):
    """What receiving a request and sending a response by a protocol are called."""

    receive_start: str
    receive_end: str
    send_start: str
    send_end: str


_QUEUED: Final = "TENSOR_QUEUE_INPUT"


def trace_client_request(
    request: InferRequest,
    trace: Trace,
    now: Callable[[], int],
    names: ProtocolNames,
    began_ns: int = 0,
) -> None:
    """Trace a request that a front end has made and is about to hand to its model.

    Args:
        request: the request; it was complete at its `received_ns`.
        trace: what is recorded of it.
        now: the engine's clock.
        names: what its reception and the sending of its responses are called.
        began_ns: when its reception began; 0 if it came at once.
    """
    ns = now()
    trace.events += (
        names.receive_start, began_ns or request.received_ns, names.receive_end, ns, "REQUEST_START", ns,
    )  # fmt: skip
    request.respond = _Recorded(request, trace, now, names).respond


def trace_caused_request(
    cause: Trace, request: InferRequest, model_version: int, now: Callable[[], int]
) -> None:
    """Trace a request that a traced one has caused, and that is about to be handed to its model."""
    trace = cause.child(request.model_name, model_version)
    if trace is not None:
        trace.events += ("REQUEST_START", now())
        request.respond = _Recorded(request, trace, now, None).respond


def record_queued(request: InferRequest) -> None:
    """A valid request enters its model's queue, at its `queued_ns`."""
    trace = request.trace
    assert trace is not None
    trace.events += ("QUEUE_START", request.queued_ns)
    if trace.tensors:
        _record_tensors(trace, _QUEUED, request.inputs.items())


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
        trace.events += (
            "COMPUTE_START", started,
            "COMPUTE_INPUT_END", batch.inputs_ns or started,
            "COMPUTE_OUTPUT_START", batch.outputs_ns or ended,
            "COMPUTE_END", ended,
        )  # fmt: skip
        if trace.tensors:  # as they were when they were queued: the model may have written to them
            queued = [each for each in trace.contents if each.activity == _QUEUED]
            trace.contents += [each._replace(activity="TENSOR_BACKEND_INPUT") for each in queued]


class _Recorded:
    """Takes the responses to a traced request on their way, and ends the trace with the last.

    Args:
        request: the request.
        trace: what is recorded of it.
        now: the engine's clock.
        names: what sending a response is called; None for a request that was caused by another.
    """

    __slots__ = ("_answered", "_names", "_now", "_respond", "_trace")

    def __init__(
        self, request: InferRequest, trace: Trace, now: Callable[[], int], names: ProtocolNames | None
    ) -> None:
        self._trace = trace
        self._now = now
        self._names = names
        self._respond = request.respond
        self._answered = False
        trace.request_id = request.id
        request.trace = trace

    def respond(self, response: InferResponse | None, final: bool) -> None:
        """Take a response of the engine."""
        trace, names, ns = self._trace, self._names, self._now()
        if response is not None:
            if response.error is not None:
                trace.error = response.error.message
            elif trace.tensors:
                _record_tensors(trace, "TENSOR_BACKEND_OUTPUT", response.tensors())
        events = trace.events
        if names is not None and not self._answered:
            self._answered = True
            events += ("INFER_RESPONSE_COMPLETE", ns)
        if final:
            events += ("REQUEST_END", ns)
        self._respond(response, final)
        if names is not None:
            events += (names.send_start, ns, names.send_end, self._now())
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
