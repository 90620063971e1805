import gc

import orjson
import pytest

from halimede.core.requests import InferRequest
from halimede.core.traces import SpanContext, Trace
from halimede.workers.call_server import ModelCall
from halimede.workers.encoding import encode_request
from halimede.workers.memory import PeerMemory

CALL = ("m", -1, "", 0, 0, 0, "", (), (), None)


class NoRecorder:
    """Forgets traces."""

    def child(self, parent: Trace, model_name: str, model_version: int) -> Trace:
        return Trace(self, 2, model_name, model_version, parent=parent)

    def ended(self, traces: list[Trace]) -> None:
        """Nothing."""


def traced(context: SpanContext | None = None) -> InferRequest:
    request = InferRequest("m", {}, lambda *_: None)
    request.trace = Trace(NoRecorder(), 4711, "m", 1, context=context)
    return request


def call(*trace: int) -> ModelCall:
    return ModelCall((*CALL, *trace), PeerMemory(), lambda *_: None)


def test_untraced_request_has_nothing_of_a_trace_in_its_message() -> None:
    request = InferRequest("m", {}, lambda *_: None)
    assert len(encode_request(1, request, None, ())) == 10


def test_traced_request_brings_its_number_and_its_span() -> None:
    *_, trace = encode_request(1, traced(SpanContext(0xAB, 0xCD, True, "a=b")), None, ())
    number, carrier = trace
    assert number == 4711
    assert orjson.loads(carrier) == {
        "traceparent": "00-000000000000000000000000000000ab-00000000000000cd-01",
        "tracestate": "a=b",
    }


def test_span_without_a_state_is_as_tritonserver_writes_it() -> None:
    *_, (_, carrier) = encode_request(1, traced(SpanContext(0xAB, 0xCD)), None, ())
    assert carrier == '{"traceparent":"00-000000000000000000000000000000ab-00000000000000cd-01"}'


def test_request_that_is_traced_without_opentelemetry_brings_no_span() -> None:
    assert encode_request(1, traced(), None, ())[10] == (4711, None)


def test_call_that_names_the_trace_of_a_request_has_it() -> None:
    request = traced()
    encode_request(1, request, None, ())
    assert call(4711).trace is request.trace
    assert call().trace is None


@pytest.mark.parametrize("number", [4711, 1 << 70, -1])
def test_call_that_names_a_trace_that_is_over_or_never_was_has_none(number: int) -> None:
    request = traced()
    encode_request(1, request, None, ())
    del request
    gc.collect()
    assert call(number).trace is None
