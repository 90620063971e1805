"""Traces as the spans that tritonserver makes of them, in OpenTelemetry's protobuf messages.

    InferRequest        the client's request, from its first byte to the last of its response
    └─ <model name>     the request within the server; steps of ensembles and calls of models are below it
       ├─ queue         until an instance ran it; not of tritonserver's
       ├─ compute
       └─ CUSTOM_…      what the model itself records from CUSTOM_…_START to CUSTOM_…_END, one within the other

Most traces differ from others only in ids, times and some attributes: what is the same is encoded once.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from random import getrandbits
from typing import Final, NamedTuple

from halimede.core.traces import AttributeValue
from halimede.engine.tracing.otlp_encoding import (
    Layout,
    Place,
    Value,
    field,
    key_value,
    key_values,
    varint,
    whole_number,
)
from halimede.engine.tracing.sent_traces import SentTrace

_TRANSPORT: Final = ("HTTP_", "GRPC_", "INFER_RESPONSE_COMPLETE")
_COMPUTE: Final = "COMPUTE_"
_CUSTOM: Final = "CUSTOM_"
_START, _END = "_START", "_END"

_INTERNAL, _SERVER = 1, 2
"""Kinds of spans."""
_FAILED: Final = 2
"""A code of a status."""
_ATTRIBUTE: Final = 9
"""The field of a span."""
_SPAN_BEGINS: Final = field(2, b"")[:1]
"""A span in a message ScopeSpans; its length follows."""
_NO_CAUSE: Final = field(_ATTRIBUTE, key_value("triton.trace_parent_id", 0))


def encode_trace(trace: SentTrace, wall_ns: int) -> tuple[bytes, int]:
    """The trace as spans of a message ScopeSpans, and how many there are.

    Args:
        trace: the trace.
        wall_ns: to be added to the server's clock for the time of day.
    """
    number, cause, model_name, model_version, request_id, events, _, span = trace
    assert events is not None, "spans have times"
    assert span is not None, "the sampler gives it one"
    trace_number, span_number, above_number, state, error, attributes = span
    spans = _spans(tuple(events[::2]), model_name, state, error, bool(cause), bool(above_number))
    times: list[int] = [ns + wall_ns for ns in events[1::2]]
    trace_id = trace_number.to_bytes(16, "big")
    span_id = span_number.to_bytes(8, "big")
    above = above_number.to_bytes(8, "big") if above_number else b""
    others = getrandbits(192).to_bytes(24, "big")
    values: list[bytes | int] = []
    if spans.transport:
        of = [times[place] for place in spans.transport]
        values += (trace_id, others[:8], above, min(of), max(of), *of)
        above = others[:8]
    if not spans.request:
        return spans.others.fill(values), spans.total
    if spans.compute:
        of = [times[place] for place in spans.compute]
        if spans.queued is not None:
            values += (trace_id, others[8:16], span_id, times[spans.queued], of[0])
        values += (trace_id, others[16:], span_id, min(of), max(of), *of)
    ids = [getrandbits(64).to_bytes(8, "big") for _ in spans.custom]
    for own, (places, above_custom) in zip(ids, spans.custom, strict=True):
        of = [times[place] for place in places]
        within = span_id if above_custom is None else ids[above_custom]
        values += (trace_id, own, within, min(of), max(of), *of)
    of = [times[place] for place in spans.request]
    model = spans.model.fill((trace_id, span_id, above, min(of), max(of), *of))
    known = _known(model_name, model_version, tuple(attributes.items())) + _numbered(number)
    known += field(_ATTRIBUTE, key_value("triton.trace_parent_id", cause)) if cause else _NO_CAUSE
    if request_id:
        known += field(_ATTRIBUTE, key_value("triton.request_id", request_id))
    length = varint(len(model) + len(known))
    return b"".join((spans.others.fill(values), _SPAN_BEGINS, length, model, known)), spans.total


class _Spans(NamedTuple):
    """The spans of traces in which the same happened.

    Attributes:
        transport: places of the events of the span InferRequest; none if there is none.
        request: of the model's span.
        compute: of the span compute.
        queued: the event with which the span queue begins; None if there is none.
        custom: of each span that the model records, and the one above it; None for the model's span.
        others: all spans but the model's; each takes trace id, span id, the id above, start, end, and times of events.
        model: the model's span, without its attributes and what it begins with; takes likewise.
        total: how many spans there are.
    """

    transport: list[int]
    request: list[int]
    compute: list[int]
    queued: int | None
    custom: list[tuple[list[int], int | None]]
    others: Layout
    model: Layout
    total: int


@lru_cache(1024)
def _spans(
    names: tuple[str, ...], model_name: str, state: str, error: str, caused: bool, below: bool
) -> _Spans:
    """The spans of a trace.

    Args:
        names: what happened.
        model_name: the model.
        state: the header `tracestate`.
        error: why the request failed, "" if it did not.
        caused: another trace has caused it.
        below: there is a span above its own.
    """
    transport, request, compute = [], [], []
    queued: int | None = None
    custom: list[tuple[list[int], int | None]] = []
    unended: list[int] = []
    for place, name in enumerate(names):
        if name.startswith(_COMPUTE):
            compute.append(place)
        elif name.startswith(_CUSTOM) and (unended or name.endswith(_START)):
            if name.endswith(_START):
                custom.append(([], unended[-1] if unended else None))
                unended.append(len(custom) - 1)
            custom[unended[-1]][0].append(place)
            if name.endswith(_END):
                unended.pop()
        elif caused or not name.startswith(_TRANSPORT):
            request.append(place)
            if name == "QUEUE_START":
                queued = place
        else:
            transport.append(place)
    if not (compute and request):
        compute, queued = [], None
    if not request:
        custom = []

    def span(
        name: str, places: Sequence[int], kind: int = _INTERNAL, *, above: bool = True, error: str = ""
    ) -> tuple[list[Place], bytes]:
        return _span(name, [names[place] for place in places], kind, state, error, above=above)

    others = []
    if transport:
        others.append(span("InferRequest", transport, _SERVER, above=below, error=error))
    if queued is not None:
        others.append(span("queue", ()))
    if compute:
        others.append(span("compute", compute))
    others += [span(names[places[0]].removesuffix(_START), places) for places, _ in custom]
    model = Layout(*span(model_name, request, above=below or bool(transport), error=error))
    joined: list[Place] = []
    rest = b""
    for places, after in others:
        (before, value), *more = places
        length = varint(Layout(places, after).size)
        joined += ((rest + _SPAN_BEGINS + length + before, value), *more)
        rest = after
    total = len(others) + bool(request)
    return _Spans(transport, request, compute, queued, custom, Layout(joined, rest), model, total)


def _span(
    name: str, events: Iterable[str], kind: int, state: str, error: str, *, above: bool
) -> tuple[list[Place], bytes]:
    """A message Span, for a `Layout`."""
    constant = field(3, state.encode()) if state else b""
    constant += field(5, name.encode()) + whole_number(6, kind)
    places = [
        (b"\x0a\x10", "16s"),  # trace_id
        (b"\x12\x08", "8s"),  # span_id
        (b"\x22\x08", "8s") if above else (b"", "0s"),  # parent_span_id
        (constant + b"\x39", "Q"),  # start_time_unix_nano
        (b"\x41", "Q"),  # end_time_unix_nano
    ]
    constant = b""
    for event in events:
        named = field(2, event.encode())
        begins = field(11, bytes(9) + named)[: -9 - len(named)]
        places.append((constant + begins + b"\x09", "Q"))  # time_unix_nano
        constant = named
    if error:
        constant += field(15, field(2, error.encode()) + whole_number(3, _FAILED))
    return places, constant


@lru_cache(1024)
def _known(model_name: str, model_version: int, attributes: tuple[tuple[str, AttributeValue], ...]) -> bytes:
    """Attributes of the model's span that are often the same."""
    known: dict[str, Value] = {"triton.model_name": model_name, "triton.model_version": model_version}
    return key_values(_ATTRIBUTE, known | dict(attributes))


def _numbered(number: int) -> bytes:
    """The attribute of the model's span that is another one for each trace."""
    encoded = varint(number)
    return _number_begins(len(encoded)) + encoded


@lru_cache
def _number_begins(size: int) -> bytes:
    """What a number that takes so many bytes comes after."""
    return field(_ATTRIBUTE, key_value("triton.trace_id", 1 << 7 * (size - 1)))[:-size]


def encode_request(encoded: Iterable[bytes], resource: Mapping[str, Value]) -> bytes:
    """The message ExportTraceServiceRequest that brings traces to a collector.

    Args:
        encoded: the traces, as of `encode_trace`.
        resource: what the server is, by OpenTelemetry's names.
    """
    scope = field(1, field(1, b"triton-server"))
    scope_spans = field(2, scope + b"".join(encoded))
    return field(1, field(1, key_values(1, resource)) + scope_spans)
