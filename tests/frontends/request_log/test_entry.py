import json

import pytest

from halimede.core.requests import InferRequest
from halimede.frontends.request_log.entry import Entry, json_line, quoted, slow_text, text_line, trace_id

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def entry(
    path: str = "/v2/models/digits/infer",
    *,
    identifier: str = "",
    model: str = "digits",
    traceparent: str | None = None,
) -> Entry:
    """A request that began at 1.5 s and took 3 ms, of which 1 ms in the queue and 1.75 ms in an execution."""
    made = Entry("HTTP", "127.0.0.1:4711", "POST", path, traceparent, 210)
    if model:
        request = InferRequest(model, {}, lambda response, final: None, id=identifier)
        request.batch_size = 4
        made.begin(request, 2)
        request.queued_ns = 1_000_000
        request.started_ns = 2_000_000
        assert request.on_compute is not None
        request.on_compute(500_000, 1_000_000, 250_000)
    made.bytes_out = 174
    made.end(200)
    made.began_ns = 1_500_000_000
    made.ended_ns = 1_503_000_000
    return made


def test_a_line_of_text() -> None:
    assert text_line(entry(), 1_700_000_000_000_000_000) == (
        '2023-11-14T22:13:21.500000Z 127.0.0.1:4711 HTTP "POST /v2/models/digits/infer" 200 model="digits" '
        "version=2 batch=4 queue=1.000 compute=1.750 total=3.000 in=210 out=174\n"
    )


def test_the_id_and_the_trace_end_a_line_of_text() -> None:
    line = text_line(entry(identifier="r 1", traceparent=TRACEPARENT), 0)
    assert line.endswith(f'out=174 id="r 1" trace={TRACE}\n')


def test_a_call_of_no_model_has_none_of_its_fields() -> None:
    line = text_line(entry("/v2/health/live", model=""), 0)
    assert line == (
        '1970-01-01T00:00:01.500000Z 127.0.0.1:4711 HTTP "POST /v2/health/live" 200 total=3.000 in=210 out=174\n'
    )


def test_a_line_of_json() -> None:
    assert json.loads(json_line(entry(identifier="r1", traceparent=TRACEPARENT), 0)) == {
        "time": "1970-01-01T00:00:01.500000Z",
        "client": "127.0.0.1:4711",
        "protocol": "HTTP",
        "method": "POST",
        "path": "/v2/models/digits/infer",
        "model": "digits",
        "version": 2,
        "batch_size": 4,
        "status": 200,
        "queue_ms": 1.0,
        "compute_ms": 1.75,
        "total_ms": 3.0,
        "bytes_in": 210,
        "bytes_out": 174,
        "request_id": "r1",
        "trace_id": TRACE,
    }


def test_what_is_not_known_is_null_in_json() -> None:
    document = json.loads(json_line(entry(model=""), 0))
    unknown = {"model", "version", "batch_size", "queue_ms", "compute_ms", "request_id", "trace_id"}
    assert {key for key, value in document.items() if value is None} == unknown


def test_the_status_of_grpc_is_a_name() -> None:
    made = entry()
    made.end("NOT_FOUND")
    assert json.loads(json_line(made, 0))["status"] == "NOT_FOUND"
    assert '" NOT_FOUND model=' in text_line(made, 0)


@pytest.mark.parametrize(
    "text", ['a"b', "a\nb", "a\\b", "a\x00b", "a\x7fb", "\x9b31m", "\u2028", "\ud800", "ä"]
)
def test_text_of_clients_cannot_break_a_line(text: str) -> None:
    line = quoted(text)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == text


@pytest.mark.parametrize("form", [text_line, json_line])
def test_a_line_with_hostile_text_is_one_line(form: object) -> None:
    assert callable(form)
    line = form(entry('/v2/"\n\x1b[31m', identifier='x" status=200\nfake'), 0)
    assert line.count("\n") == 1
    assert line.isascii()
    assert line[:-1].isprintable()


def test_long_text_is_cut() -> None:
    assert json.loads(quoted("x" * 5000)) == "x" * 1024 + "…"


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"00",
        "",
        "00-abc-def-01",
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        TRACEPARENT.upper(),
        TRACEPARENT + "x",
    ],
)
def test_a_traceparent_that_is_none_has_no_trace_id(header: object) -> None:
    assert trace_id(header) == ""


def test_a_later_version_of_traceparent_may_have_more_fields() -> None:
    assert trace_id("01" + TRACEPARENT[2:] + "-more") == TRACE


def test_a_slow_request_is_told_with_its_stages() -> None:
    assert slow_text(entry(identifier="r1")) == (
        "Slow request: HTTP POST /v2/models/digits/infer (model 'digits' version 2, batch 4) took 3.000 ms: "
        "queue 1.000 ms, input 0.500 ms, infer 1.000 ms, output 0.250 ms, other 0.250 ms; status 200, "
        "from 127.0.0.1:4711, id r1"
    )


def test_an_entry_keeps_nothing_of_the_request() -> None:
    request = InferRequest("digits", {}, lambda response, final: None)
    made = Entry("HTTP", "", "POST", "/", None, 0)
    made.begin(request, 1)
    made.end(200)
    assert request not in [getattr(made, name, None) for name in Entry.__slots__]
