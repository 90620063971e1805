"""Whatever a client sends, it gets an answer in OpenAI's shape, and the server goes on."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halimede.codec.json_sizes import LARGE
from tests.frontends.http.serving import Client, post
from tests.support.server import ServerProcess

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    (
        "messages", "prompt", "input", "n", "stop", "seed", "max_tokens", "max_completion_tokens", "temperature",
        "top_p", "stream", "stream_options", "logprobs", "top_logprobs", "tools", "tool_choice", "response_format",
        "logit_bias", "dimensions", "encoding_format", "echo", "best_of", "suffix", "modalities", "top_k", "other",
        "instructions", "max_output_tokens", "metadata", "text", "include", "store", "truncation", "tokens",
        "add_special_tokens", "return_token_strs", "chat_template_kwargs",
    )
)  # fmt: skip
MESSAGES = st.lists(
    st.dictionaries(
        st.sampled_from(("role", "content", "name", "refusal", "tool_calls", "audio")),
        JSON | st.sampled_from(("user", "tool")),
    ),
    max_size=3,
)
PATHS = [f"/v1/{call}" for call in ("chat/completions", "completions", "embeddings", "responses")]
CALLS = st.sampled_from((*PATHS, "/tokenize", "/detokenize"))
MODELS = st.sampled_from(("plain", "tools", "squash", "teller")) | JSON
BODIES = st.builds(
    lambda rest, known: rest | known,
    st.dictionaries(FIELDS, JSON, max_size=6),
    st.fixed_dictionaries(
        {"model": MODELS},
        optional={"messages": MESSAGES, "prompt": st.text(max_size=8), "input": st.text(max_size=8)},
    ),
)


def ask(server: ServerProcess, call: str, body: bytes) -> None:
    with Client(int(server.http.rpartition(":")[2])) as client:
        answer = client.ask(post(body, call))
    assert answer.status in {200, 400, 404}, answer.body
    if answer.status != 200:
        error: Any = json.loads(answer.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        assert error["param"] is None or error["param"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CALLS, BODIES)
def test_objects_of_any_content(server: ServerProcess, call: str, body: dict[str, Any]) -> None:
    ask(server, call, json.dumps(body).encode())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CALLS, st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_bodies_that_are_no_objects(server: ServerProcess, call: str, body: bytes) -> None:
    ask(server, call, body)


def test_an_error_of_the_whole_body_is_about_no_field(server: ServerProcess) -> None:
    for body in (b"[]", b"null"):
        with Client(int(server.http.rpartition(":")[2])) as client:
            error: Any = json.loads(client.ask(post(body, "/v1/completions")).body)["error"]
        assert (error["message"], error["param"]) == ("the request body must be a JSON object", None)


def test_half_of_a_surrogate_pair(server: ServerProcess) -> None:
    ask(server, "/v1/completions", b'{"model": "plain", "prompt": "\\ud800"}')
    ask(
        server,
        "/v1/chat/completions",
        b'{"model": "tools", "messages": [{"role": "user", "content": "\\ud800"}], "x": NaN}',
    )
    ask(server, "/tokenize", b'{"model": "teller", "prompt": "\\ud800"}')


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ('{"model":"plain","max_tokens":1,"prompt":"a","user":"%s"}', ""),
        ('{"model":"plain","max_tokens":-1,"prompt":"a","user":"%s"}', "'max_tokens'"),
        ('{"model":"nobody","prompt":"a","user":"%s"}', "'nobody'"),
        ('["%s"]', "must be a JSON object"),
        ('{"model":"plain","user":"%s', "JSON"),
        ('{"model":"\\ud800","user":"%s"}', ""),
    ],
)
def test_a_large_body_is_answered_as_a_small_one(server: ServerProcess, form: str, text: str) -> None:
    answers = []
    for size in (1, 2 * LARGE):
        with Client(int(server.http.rpartition(":")[2])) as client:
            answer = client.ask(post((form % ("x" * size)).encode(), "/v1/completions"))
        told = json.loads(answer.body)
        answers.append((answer.status, told.get("error") and {**told["error"], "message": ""}))
        assert text in answer.body.decode()
    assert answers[0] == answers[1]
