import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.trace_context import parse_context, traceparent_of
from halimede.core.traces import SpanContext

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


def test_traceparent_names_a_span() -> None:
    context = parse_context(TRACEPARENT)
    assert context is not None
    assert (context.trace_id, context.span_id) == (int(TRACE, 16), int(SPAN, 16))
    assert context.sampled
    assert context.state == ""


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("ff", True)])
def test_only_the_lowest_flag_says_that_a_trace_is_sampled(flags: str, sampled: bool) -> None:
    context = parse_context(f"00-{TRACE}-{SPAN}-{flags}")
    assert context is not None
    assert context.sampled is sampled


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"00",
        "",
        "00-abc-def-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        TRACEPARENT.upper(),
        f" {TRACEPARENT}",
        f"{TRACEPARENT}\n",
        f"{TRACEPARENT}-more",
        f"{TRACEPARENT}, {TRACEPARENT}",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-0x",
        f"00-{'٣' * 32}-{SPAN}-01",
    ],
)
def test_malformed_traceparent_names_no_span(header: object) -> None:
    assert parse_context(header) is None


def test_later_version_of_traceparent_may_have_more_fields() -> None:
    context = parse_context(f"cc-{TRACE}-{SPAN}-01-what-ever")
    assert context is not None
    assert context.trace_id == int(TRACE, 16)


def test_tracestate_is_kept_as_it_is() -> None:
    context = parse_context(TRACEPARENT, "congo=t61rcWkgMzE, rojo=00f067aa0ba902b7")
    assert context is not None
    assert context.state == "congo=t61rcWkgMzE, rojo=00f067aa0ba902b7"


@pytest.mark.parametrize("state", ["a=b\nInjected: header", "a=é", "a=" + "b" * 511, b"a=b"])
def test_tracestate_that_cannot_be_handed_on_is_left_out(state: object) -> None:
    context = parse_context(TRACEPARENT, state)
    assert context is not None
    assert context.state == ""


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_span_comes_back_from_its_header(trace_id: int, span_id: int, sampled: bool) -> None:
    context = parse_context(traceparent_of(SpanContext(trace_id, span_id, sampled)))
    assert context is not None
    assert (context.trace_id, context.span_id, context.sampled) == (trace_id, span_id, sampled)


@given(st.text() | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}.*"), st.text())
def test_any_header_is_a_span_or_none(traceparent: str, tracestate: str) -> None:
    context = parse_context(traceparent, tracestate)
    if context is not None:
        assert 0 < context.trace_id < 2**128
        assert 0 < context.span_id < 2**64
        assert traceparent_of(context)[3:52] == traceparent[3:52]
