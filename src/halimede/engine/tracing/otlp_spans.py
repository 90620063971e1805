"""Traces as the spans that tritonserver makes of them, in OpenTelemetry's protobuf messages.

InferRequest        the client's request, from its first byte to the last of its response
└─ <model name>     the request within the server; steps of ensembles and calls of models are below it
├─ queue         until an instance ran it; not of tritonserver's
└─ compute
"""

from collections.abc import Iterable, Mapping
from random import getrandbits
from typing import Any, Final, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span, Status

from halimede.core.traces import AttributeValue

Events = list[tuple[str, int]]
Attributes = Mapping[str, AttributeValue]

_SCOPE: Final = "triton-server"
_TRANSPORT: Final = ("HTTP_", "GRPC_", "INFER_RESPONSE_COMPLETE")
_COMPUTE: Final = "COMPUTE_"
_VALUE_FIELDS: Final = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}


class SentTrace(NamedTuple):
    """What is told of a trace.

    Attributes:
        number: identifies it within the server.
        parent: the number of the trace that caused it, 0 for none.
        model_name: the model that was asked.
        model_version: its version.
        request_id: the client's, "" for none.
        trace_id: 16 bytes as an integer.
        span_id: 8 bytes as an integer: the span of the request within the server.
        parent_id: as well: the span that caused it; 0 for none.
        state: the header `tracestate`, "" for none.
        error: why the request failed, "" if it did not.
        attributes: what else is known of it.
        events: names and times, in nanoseconds on the server's clock.
    """

    number: int
    parent: int
    model_name: str
    model_version: int
    request_id: str
    trace_id: int
    span_id: int
    parent_id: int
    state: str
    error: str
    attributes: dict[str, AttributeValue]
    events: Events


def encode_trace(trace: SentTrace, wall_ns: int) -> tuple[bytes, int]:
    """The trace as a message ScopeSpans, and how many spans that has.

    Args:
        trace: the trace.
        wall_ns: to be added to the server's clock for the time of day.
    """
    transport: Events = []
    request: Events = []
    compute: Events = []
    for event in trace.events:
        name = event[0]
        if name.startswith(_COMPUTE):
            compute.append(event)
        elif trace.parent or not name.startswith(_TRANSPORT):
            request.append(event)
        else:
            transport.append(event)
    made = _Spans(trace, wall_ns)
    parent_id = trace.parent_id
    if transport:
        parent_id = made.add(
            "InferRequest", parent_id, transport, _span_id(), Span.SPAN_KIND_SERVER, trace.error
        )
    if request:
        span_id = made.add(trace.model_name, parent_id, request, trace.span_id, error=trace.error)
        attributes: dict[str, AttributeValue] = {
            "triton.model_name": trace.model_name,
            "triton.model_version": trace.model_version,
            "triton.trace_id": trace.number,
            "triton.trace_parent_id": trace.parent,
        }
        if trace.request_id:
            attributes["triton.request_id"] = trace.request_id
        _add_attributes(made.last, attributes | trace.attributes)
        queued = [ns for name, ns in request if name == "QUEUE_START"]
        if compute and queued:
            made.add("queue", span_id, [], _span_id(), start=queued[-1], end=compute[0][1])
        if compute:
            made.add("compute", span_id, compute, _span_id())
    return made.message.SerializeToString(), len(made.message.spans)


class _Spans:
    """The spans of a trace.

    Attributes:
        message: they.
        last: the one that was added last.
    """

    def __init__(self, trace: SentTrace, wall_ns: int) -> None:
        self.message = ScopeSpans()
        self.last: Any = None
        self._trace_id = trace.trace_id.to_bytes(16, "big")
        self._state = trace.state
        self._wall_ns = wall_ns

    def add(
        self,
        name: str,
        parent_id: int,
        events: Events,
        span_id: int,
        kind: Span.SpanKind.ValueType = Span.SPAN_KIND_INTERNAL,
        error: str = "",
        start: int = 0,
        end: int = 0,
    ) -> int:
        """Add a span, which lasts as long as its events do unless it is said; the result is its id."""
        wall_ns = self._wall_ns
        times = [ns for _, ns in events]
        self.last = span = self.message.spans.add(
            trace_id=self._trace_id,
            span_id=span_id.to_bytes(8, "big"),
            parent_span_id=parent_id.to_bytes(8, "big") if parent_id else b"",
            trace_state=self._state,
            name=name,
            kind=kind,
            start_time_unix_nano=(start or min(times)) + wall_ns,
            end_time_unix_nano=(end or max(times)) + wall_ns,
        )
        if error:
            span.status.code = Status.STATUS_CODE_ERROR
            span.status.message = error
        add_event = span.events.add
        for event, ns in events:
            add_event(name=event, time_unix_nano=ns + wall_ns)
        return span_id


def encode_request(encoded: Iterable[bytes], resource: Attributes) -> bytes:
    """The message ExportTraceServiceRequest that brings traces to a collector.

    Args:
        encoded: the traces, as of `encode_trace`.
        resource: what the server is, by OpenTelemetry's names.
    """
    message = ExportTraceServiceRequest()
    resource_spans = message.resource_spans.add()
    _add_attributes(resource_spans.resource, resource)
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = _SCOPE
    scope_spans.MergeFromString(b"".join(encoded))
    return message.SerializeToString()


def _add_attributes(message: Any, attributes: Attributes) -> None:
    add = message.attributes.add
    for key, value in attributes.items():
        setattr(add(key=key).value, _VALUE_FIELDS[type(value)], value)


def _span_id() -> int:
    return getrandbits(64) or 1
