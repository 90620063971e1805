from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from halimede.core.traces import AttributeValue
from halimede.engine.tracing.otlp_spans import encode_request, encode_trace
from halimede.engine.tracing.sent_traces import SentTrace

TRACE_ID, SPAN_ID, CLIENT_ID = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x1234, 0x00F067AA0BA902B7

EVENTS = [
    ("HTTP_RECV_START", 10),
    ("HTTP_RECV_END", 20),
    ("REQUEST_START", 30),
    ("QUEUE_START", 40),
    ("COMPUTE_START", 50),
    ("COMPUTE_INPUT_END", 60),
    ("COMPUTE_OUTPUT_START", 70),
    ("COMPUTE_END", 80),
    ("INFER_RESPONSE_COMPLETE", 85),
    ("REQUEST_END", 90),
    ("HTTP_SEND_START", 95),
    ("HTTP_SEND_END", 99),
]


def trace(
    *,
    number: int = 7,
    parent: int = 0,
    model_name: str = "digits",
    request_id: str = "",
    above: int = 0,
    state: str = "",
    error: str = "",
    attributes: dict[str, AttributeValue] | None = None,
    events: Sequence[tuple[str, int]] = EVENTS,
) -> SentTrace:
    """A client's request that ran, by version 3 of a model."""
    span = (TRACE_ID, SPAN_ID, above, state, error, attributes or {})
    return number, parent, model_name, 3, request_id, [each for event in events for each in event], [], span


def spans(sent: SentTrace, wall_ns: int = 1000) -> dict[str, Span]:
    encoded, count = encode_trace(sent, wall_ns)
    found = ScopeSpans.FromString(encoded).spans
    assert len(found) == count
    return {span.name: span for span in found}


def values(pairs: Iterable[KeyValue]) -> dict[str, object]:
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in pairs}


def attributes(span: Span) -> dict[str, object]:
    return values(span.attributes)


def test_request_is_a_span_around_that_of_its_model_and_its_computing() -> None:
    found = spans(trace())
    client, model, queue, compute = (found[name] for name in ("InferRequest", "digits", "queue", "compute"))
    assert len(found) == 4
    assert client.parent_span_id == b""
    assert model.parent_span_id == client.span_id
    assert model.span_id == SPAN_ID.to_bytes(8, "big")
    assert queue.parent_span_id == compute.parent_span_id == model.span_id
    assert len({span.span_id for span in found.values()}) == 4
    assert {span.trace_id for span in found.values()} == {TRACE_ID.to_bytes(16, "big")}
    assert client.kind == Span.SPAN_KIND_SERVER
    assert model.kind == compute.kind == Span.SPAN_KIND_INTERNAL


def test_spans_last_as_long_as_their_events() -> None:
    found = spans(trace(), wall_ns=1_000)
    times = {name: (span.start_time_unix_nano, span.end_time_unix_nano) for name, span in found.items()}
    assert times == {
        "InferRequest": (1010, 1099),
        "digits": (1030, 1090),
        "queue": (1040, 1050),
        "compute": (1050, 1080),
    }
    assert [(event.name, event.time_unix_nano) for event in found["compute"].events] == [
        ("COMPUTE_START", 1050),
        ("COMPUTE_INPUT_END", 1060),
        ("COMPUTE_OUTPUT_START", 1070),
        ("COMPUTE_END", 1080),
    ]
    assert [event.name for event in found["digits"].events] == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
    assert [event.name for event in found["InferRequest"].events] == [
        "HTTP_RECV_START", "HTTP_RECV_END", "INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END",
    ]  # fmt: skip


def test_model_has_tritons_attributes_and_what_else_is_known() -> None:
    known: dict[str, AttributeValue] = {"a.text": "x", "a.number": 3, "a.negative": -1, "a.large": 1 << 40}
    found = spans(trace(request_id="r1", attributes=known))
    assert attributes(found["digits"]) == known | {
        "triton.model_name": "digits",
        "triton.model_version": 3,
        "triton.trace_id": 7,
        "triton.trace_parent_id": 0,
        "triton.request_id": "r1",
    }
    assert not attributes(found["InferRequest"])
    assert "triton.request_id" not in attributes(spans(trace())["digits"])


def test_span_of_the_client_is_above_its_request() -> None:
    found = spans(trace(above=CLIENT_ID, state="a=b"))
    assert found["InferRequest"].parent_span_id == CLIENT_ID.to_bytes(8, "big")
    assert {span.trace_state for span in found.values()} == {"a=b"}


def test_request_that_another_one_causes_is_below_it() -> None:
    inner = [event for event in EVENTS if not event[0].startswith("HTTP_")]
    found = spans(trace(parent=5, above=0x99, events=inner))
    assert set(found) == {"digits", "queue", "compute"}
    assert found["digits"].parent_span_id == (0x99).to_bytes(8, "big")
    assert attributes(found["digits"])["triton.trace_parent_id"] == 5


def test_failure_is_the_status_of_the_request() -> None:
    encoded, _ = encode_trace(trace(error="no such thing", model_name="compute"), 0)
    codes = [(span.name, span.status.code) for span in ScopeSpans.FromString(encoded).spans]
    assert {span.status.message for span in ScopeSpans.FromString(encoded).spans} == {"no such thing", ""}
    assert codes == [("InferRequest", 2), ("queue", 0), ("compute", 0), ("compute", 2)]


@pytest.mark.parametrize(
    ("events", "names"),
    [
        (EVENTS[:2], {"InferRequest"}),
        (EVENTS[:4] + EVENTS[9:], {"InferRequest", "digits"}),
        (EVENTS[2:4], {"digits"}),
        ([], set()),
    ],
)
def test_what_did_not_happen_has_no_span(events: list[tuple[str, int]], names: set[str]) -> None:
    assert set(spans(trace(events=events))) == names


def test_request_to_a_collector_has_the_resource_once() -> None:
    encoded = [encode_trace(trace(number=number), 0)[0] for number in (1, 2, 3)]
    resource: dict[str, bool | int | float | str] = {"service.name": "s", "n": 1, "share": 0.5, "truth": True}
    message = ExportTraceServiceRequest.FromString(encode_request(encoded, resource))
    [resource_spans] = message.resource_spans
    assert values(resource_spans.resource.attributes) == resource
    [scope_spans] = resource_spans.scope_spans
    assert scope_spans.scope.name == "triton-server"
    assert len(scope_spans.spans) == 12


CUSTOM = [
    ("CUSTOM_ACTIVITY_START", 52),
    ("CUSTOM_ACTIVITY_END", 54),
    ("CUSTOM_SINGLE_ACTIVITY", 55),
    ("CUSTOM_ACTIVITY0_START", 56),
    ("CUSTOM_SINGLE_ACTIVITY", 57),
    ("CUSTOM_ACTIVITY1_START", 58),
    ("CUSTOM_ACTIVITY1_END", 59),
    ("CUSTOM_ACTIVITY0_END", 60),
]


def test_activities_of_the_model_are_spans_below_it_and_within_each_other() -> None:
    found = spans(trace(events=EVENTS[:4] + CUSTOM + EVENTS[4:]), wall_ns=0)
    model, one, outer, inner = (
        found[name] for name in ("digits", "CUSTOM_ACTIVITY", "CUSTOM_ACTIVITY0", "CUSTOM_ACTIVITY1")
    )
    assert len(found) == 7
    assert one.parent_span_id == outer.parent_span_id == model.span_id
    assert inner.parent_span_id == outer.span_id
    assert len({span.span_id for span in found.values()}) == 7
    assert (outer.start_time_unix_nano, outer.end_time_unix_nano) == (56, 60)
    assert [[event.name for event in span.events] for span in (one, outer, inner)] == [
        ["CUSTOM_ACTIVITY_START", "CUSTOM_ACTIVITY_END"],
        ["CUSTOM_ACTIVITY0_START", "CUSTOM_SINGLE_ACTIVITY", "CUSTOM_ACTIVITY0_END"],
        ["CUSTOM_ACTIVITY1_START", "CUSTOM_ACTIVITY1_END"],
    ]
    assert [event.name for event in model.events] == [
        "REQUEST_START", "QUEUE_START", "CUSTOM_SINGLE_ACTIVITY", "REQUEST_END",
    ]  # fmt: skip
    assert [event.name for event in found["compute"].events] == [name for name, _ in EVENTS[4:8]]


@given(
    st.lists(
        st.tuples(st.sampled_from([name for name, _ in EVENTS + CUSTOM]) | st.text(), st.integers(0, 2**62))
    ),
    st.dictionaries(st.text(), st.text() | st.integers(-(2**63), 2**63 - 1)),
    st.text(),
    st.integers(0, 1),
)
def test_any_events_and_attributes_are_spans(
    events: list[tuple[str, int]], known: dict[str, AttributeValue], text: str, parent: int
) -> None:
    sent = trace(events=events, attributes=known, error=text, request_id=text, model_name=text, parent=parent)
    encoded, count = encode_trace(sent, 10**18)
    found = ScopeSpans.FromString(encoded).spans
    assert len(found) == count
    assert {span.trace_id for span in found} <= {TRACE_ID.to_bytes(16, "big")}
    recorded = [(name, ns + 10**18) for name, ns in events]
    for span in found:
        times = [event.time_unix_nano for event in span.events]
        assert {(event.name, event.time_unix_nano) for event in span.events} <= set(recorded)
        assert not times or (span.start_time_unix_nano, span.end_time_unix_nano) == (min(times), max(times))
    for span in (span for span in found if span.attributes):
        assert span.name == text
        assert {**attributes(span), **known} == attributes(span)
        assert attributes(span)["triton.trace_parent_id"] == parent
