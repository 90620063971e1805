"""What goes wrong in models, tokenizers and clients, as OpenAI's official client sees it."""

from typing import Any

import openai
import pytest
from openai import OpenAI

from halimede.core.errors import InternalError, InvalidArgumentError
from halimede.frontends.openai.errors import FieldError
from halimede.frontends.openai.model_errors import client_error
from tests.support.server import ServerProcess

STREAMS = 100
CALL: Any = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def user(content: str) -> Any:
    return {"role": "user", "content": content}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("field", ["messages", "prompt", "input"])
def test_a_prompt_longer_than_the_context_has_the_code_of_openai(
    client: OpenAI, field: str, stream: bool
) -> None:
    path, rest = {
        "messages": ("/chat/completions", [user("too long")]),
        "prompt": ("/completions", "too long"),
        "input": ("/responses", "too long"),
    }[field]
    body = {"model": "writer", field: rest, "stream": stream}
    with pytest.raises(openai.BadRequestError) as caught:
        client.post(path, body=body, cast_to=object)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", field)
    assert "This model's maximum context length is 16 tokens" in caught.value.message


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("the prompt has 40 tokens, but the model's context holds 32, with at least one for the answer", 32),
        ("This model's maximum context length is 4096 tokens. However, you requested 5000 tokens", 4096),
        ("The decoder prompt (length 99) is longer than the maximum model length of 64.", 64),
        ("Prompt length (99) exceeds max_model_len (64)", 64),
    ],
)
def test_what_models_say_of_their_context_is_recognised(message: str, limit: int) -> None:
    error = client_error(InternalError(message), "prompt", {})
    assert isinstance(error, FieldError)
    assert (error.field, error.reason) == ("prompt", "context_length_exceeded")
    assert f"This model's maximum context length is {limit} tokens" in error.message
    assert error.message.endswith(message)


def test_other_errors_stay_as_they_are() -> None:
    error = InvalidArgumentError("the prompt is empty")
    assert client_error(error, "prompt", {}) is error


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("'top_k' must be a number", "top_k"),
        ("it is 'odd' that 'top_k' is so", "top_k"),
        ("'tools[0].function' is odd", "tools[0].function"),
        ("'max_tokens' is odd", "max_completion_tokens"),
        ("'structured_outputs.regex' is odd", "guided_regex"),
        ("'min_p' is odd", None),
        ("top_k is odd", None),
    ],
)
def test_a_field_that_a_model_names_is_told(message: str, param: str | None) -> None:
    sent = {
        "top_k": "top_k", "tools": "tools", "max_tokens": "max_completion_tokens", "structured_outputs": "guided_regex",
    }  # fmt: skip
    error = client_error(InvalidArgumentError(message), "prompt", sent)
    assert getattr(error, "field", None) == param
    assert param is None or f"'{param}'" in error.message
    failure = InternalError(message)
    assert client_error(failure, "prompt", sent) is failure


def test_a_tokenizer_that_fails_costs_the_usage_only(client: OpenAI, server: ServerProcess) -> None:
    whole = client.completions.create(model="picky", prompt="some words")
    assert (whole.choices[0].text, whole.usage) == ("some words", None)
    long = client.completions.create(model="picky", prompt="word " * 10_000)
    assert (len(long.choices[0].text), long.usage) == (50_000, None)
    chunks = list(
        client.completions.create(
            model="picky", prompt="some words", stream=True, stream_options={"include_usage": True}
        )
    )
    assert (chunks[0].choices[0].text, chunks[-1].usage) == ("some words", None)
    server.wait_for("fails to count the tokens of a text")


def test_bytes_that_are_no_characters_are_replaced(client: OpenAI) -> None:
    expected = "a\ufffdb\ufffdc\ufffd"
    assert client.completions.create(model="writer", prompt="halves").choices[0].text == expected
    chunks = client.completions.create(model="writer", prompt="halves", stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected
    assert client.responses.create(model="writer", input="halves").output_text == expected
    with client.responses.stream(model="writer", input="halves") as stream:
        assert stream.get_final_response().output_text == expected


@pytest.mark.parametrize(
    ("said", "message"),
    [("half", "'tool_calls' is not JSON"), ("bytes", "'tool_calls' is not JSON"), ("nameless", "with names")],
)
def test_malformed_calls_of_tools_are_errors_of_the_server(client: OpenAI, said: str, message: str) -> None:
    with pytest.raises(openai.InternalServerError, match=message) as caught:
        client.responses.create(model="caller", input=said)
    assert caught.value.type == "server_error"
    events: list[Any] = list(client.responses.create(model="caller", input=said, stream=True))
    assert events[-1].type == "response.failed"
    assert message in events[-1].response.error.message


def test_a_client_that_goes_in_the_middle_of_many_streams_frees_them_all(
    client: OpenAI, server: ServerProcess
) -> None:
    with OpenAI(base_url=client.base_url, api_key="none", max_retries=0) as leaving:
        for number in range(STREAMS):
            stream: Any
            if number % 2:
                stream = leaving.completions.create(model="writer", prompt="patient many-left", stream=True)
            else:
                stream = leaving.responses.create(model="caller", input="patient many-left", stream=True)
            next(iter(stream))
    server.wait_for("cancelled: many-left", times=STREAMS)
    assert client.completions.create(model="writer", prompt="still here").choices[0].text == "still here "


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_call_of_a_tool_is_cancelled_with_its_client(
    client: OpenAI, server: ServerProcess, api: str
) -> None:
    said = f"patient {api}-tool-left"
    stream: Any
    if api == "chat":
        stream = client.chat.completions.create(model="caller", messages=[user(said)], stream=True)
        called = any(chunk.choices[0].delta.tool_calls for chunk in stream)
    else:
        stream = client.responses.create(model="caller", input=said, stream=True)
        called = any(event.type == "response.function_call_arguments.done" for event in stream)
    assert called
    stream.close()
    server.wait_for(f"cancelled: {api}-tool-left")


def test_a_conversation_goes_on_after_a_call_that_nobody_answered(client: OpenAI) -> None:
    messages: Any = [user("look"), {"role": "assistant", "tool_calls": [CALL]}, user("never mind")]
    reply = client.chat.completions.create(model="tools", messages=messages)
    assert '"never mind"' in (reply.choices[0].message.content or "")
    items: Any = [
        user("look"),
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "look",
            "arguments": '{"a',
            "status": "incomplete",
        },
        user("never mind"),
    ]
    assert '"never mind"' in client.responses.create(model="tools", input=items).output_text
