"""Bodies made of OpenAI's published schema: as they are, and broken in all ways."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.frontends.http.serving import Answer, Client, post
from tests.frontends.openai.schema import BODIES, JSON
from tests.support.server import ServerProcess

bounded = settings(derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
CALLS = st.sampled_from(sorted(BODIES))
REQUESTS = CALLS.flatmap(lambda call: st.tuples(st.just(call), BODIES[call]))

STRANGE = JSON | st.sampled_from(
    (
        float("nan"), float("inf"), -1, 1 << 31, 1 << 63, -(1 << 64), 1 << 80, 1e308, "", "\0", "x" * 70_000, [], {},
        [[]], [None], {"type": None}, {"type": "text"}, {"type": ["text"]}, {"role": {}, "content": 0},
    )
)  # fmt: skip
"""What is wrong in most places."""


def ask(server: ServerProcess, call: str, body: bytes) -> Answer:
    """What the server answers; afterwards it serves the next request on the same connection."""
    with Client(int(server.http.rpartition(":")[2])) as client:
        answer = client.ask(post(body, f"/v1/{call}"))
        assert client.ask(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET").status == 200
    return answer


def error_of(answer: Answer) -> dict[str, Any]:
    """The error of a refusal, which has OpenAI's shape."""
    document: Any = json.loads(answer.body)
    assert set(document) == {"error"}
    error: dict[str, Any] = document["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["type"] == "invalid_request_error"
    return error


def check_stream(body: bytes) -> None:
    """Each event of a stream is JSON, and none is an error."""
    for event in body.decode().strip().split("\n\n"):
        data = event.rpartition("data: ")[2]
        assert data == "[DONE]" or "error" not in json.loads(data)


@settings(bounded, max_examples=120)
@given(REQUESTS)
def test_what_the_schema_allows_is_served_or_refused_by_name(
    server: ServerProcess, request_: tuple[str, dict[str, Any]]
) -> None:
    call, body = request_
    answer = ask(server, call, json.dumps(body).encode())
    if answer.status == 200:
        if body.get("stream"):
            check_stream(answer.body)
        else:
            assert json.loads(answer.body)["model"] == body["model"]
        return
    assert answer.status == 400, answer.body
    param = error_of(answer)["param"]
    assert param, answer.body
    root = param.partition(".")[0].partition("[")[0]
    assert root in body, answer.body


@settings(bounded, max_examples=120)
@given(st.data())
def test_members_of_wrong_types_are_refused(server: ServerProcess, data: st.DataObject) -> None:
    call, body = data.draw(REQUESTS)
    for _ in range(data.draw(st.integers(1, 3))):
        body = changed(data, body)
    answer = ask(server, call, json.dumps(body).encode())
    assert answer.status in {200, 400, 404}, answer.body
    if answer.status != 200:
        error_of(answer)


def changed(data: st.DataObject, value: Any) -> Any:
    """A value of which one part, at any depth, is replaced or left out."""
    if isinstance(value, dict | list) and value and data.draw(st.integers(0, 3)):
        places = sorted(value) if isinstance(value, dict) else range(len(value))
        place = data.draw(st.sampled_from(places))
        copy: Any = value.copy()
        if data.draw(st.integers(0, 3)):
            copy[place] = changed(data, value[place])
        else:
            del copy[place]
        return copy
    return data.draw(STRANGE)


@settings(bounded, max_examples=50)
@given(REQUESTS, st.data())
def test_text_that_is_no_json_is_refused(
    server: ServerProcess, request_: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    call, body = request_
    text = json.dumps(body, ensure_ascii=False).encode()
    place = data.draw(st.integers(1, len(text) - 1))
    broken = data.draw(
        st.sampled_from(
            (
                text[:place],
                text[:-1] + b"}}",
                b'{"model": ' + b"[" * 200_000,
                b'{"model": "plain", "prompt": ' + b'{"a":' * 2_000 + b"1" + b"}" * 2_001,
                b'{"prompt": "\xff", ' + text[1:],
                b'{"prompt": "\xe2\x82", ' + text[1:],
                b'{"prompt": "\xed\xa0\x80", ' + text[1:],
                b'{"prompt": "\\ud800", ' + text[1:],
                b'{"prompt": "\\udc00x", ' + text[1:],
                b'{"n": 1' + b"0" * 5_000 + b", " + text[1:-1] + b"x",
                b'{"n": 01, ' + text[1:],
                b"\xff\xfe" + text,
            )
        )
    )
    answer = ask(server, call, broken)
    assert answer.status == 400, answer.body
    error_of(answer)


@settings(bounded, max_examples=40)
@given(
    REQUESTS,
    st.sampled_from(("NaN", "-Infinity", "1e999", "-1e999", "1" + "0" * 400, "0." + "3" * 400)),
    st.data(),
)
def test_numbers_that_json_or_floats_cannot_hold(
    server: ServerProcess, request_: tuple[str, dict[str, Any]], number: str, data: st.DataObject
) -> None:
    call, body = request_
    names = (
        "temperature",
        "top_p",
        "n",
        "seed",
        "max_tokens",
        "max_output_tokens",
        "dimensions",
        "metadata",
        "other",
    )
    name = data.draw(st.sampled_from(names))
    body.pop(name, None)
    answer = ask(server, call, f'{json.dumps(body)[:-1]}, "{name}": {number}}}'.encode())
    assert answer.status in {200, 400}, answer.body
    if answer.status == 400:
        error_of(answer)


@settings(bounded, max_examples=15)
@given(REQUESTS, JSON)
def test_of_members_with_the_same_name_the_last_counts(
    server: ServerProcess, request_: tuple[str, dict[str, Any]], first: Any
) -> None:
    call, body = request_
    alone = ask(server, call, json.dumps(body).encode())
    doubled = f'{{"model": {json.dumps(first)}, {json.dumps(body)[1:]}'.encode()
    assert ask(server, call, doubled).status == alone.status
