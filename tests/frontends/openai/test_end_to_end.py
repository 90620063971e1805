"""A real server as the official client of OpenAI's API sees it."""

import base64
import json
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openapi_spec_validator import validate

import halimede
from halimede.frontends.openai.openapi import DESCRIBED
from halimede.frontends.openai.routes import Call, find_route
from halimede.frontends.tokens import token_line
from tests.frontends.http.serving import Client, get
from tests.frontends.openai.models import PLAIN, PLAIN_CONFIG
from tests.python_models.support import IN_SERVER, python_model
from tests.support.server import ServerProcess, start_server


def said(client: OpenAI, content: str, **options: Any) -> Any:
    """The answer of the writer to a message."""
    return client.chat.completions.create(
        model="writer", messages=[{"role": "user", "content": content}], **options
    )


def test_models_are_listed_that_serve_some_call(client: OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert names == [
        "caller",
        "chatter",
        "embedder",
        "endless",
        "picky",
        "plain",
        "slow",
        "squash",
        "teller",
        "tools",
        "writer",
    ]
    assert client.models.retrieve("squash").id == "squash"
    with pytest.raises(openai.NotFoundError, match="no model 'other'"):
        client.models.retrieve("other")


def test_the_openapi_document_has_the_calls(server: ServerProcess) -> None:
    status, body = server.get("/openapi.json")
    document = json.loads(body)
    validate(document)
    assert status == 200
    paths = [path for described in DESCRIBED.values() for path in described.paths]
    assert set(DESCRIBED) == set(Call)
    assert {path for path in paths if path.startswith("/v1/")} == {
        path for path in document["paths"] if path.startswith("/v1/")
    }
    assert set(paths) <= document["paths"].keys()
    assert all(find_route(path) is not None for path in paths)


def test_probes_for_vllm_find_what_they_look_for(server: ServerProcess) -> None:
    assert server.get("/health") == (200, b"")
    with Client(int(server.http.rpartition(":")[2])) as probe:
        assert probe.ask(get("/health").replace(b"GET", b"HEAD", 1), "HEAD").status == 200
    status, body = server.get("/version")
    assert (status, json.loads(body)) == (200, {"version": halimede.__version__})


def test_chat_renders_the_template_of_the_model(client: OpenAI) -> None:
    messages: Any = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "good "}, {"type": "text", "text": "day"}]},
    ]
    reply = client.chat.completions.create(model="writer", messages=messages)
    assert reply.object == "chat.completion"
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].message.content == "system: be brief user: good day assistant: "
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (7, 7, 14)


def test_what_an_assistant_refused_is_part_of_the_conversation(client: OpenAI) -> None:
    refused: Any = {"role": "assistant", "content": [{"type": "refusal", "refusal": "never"}]}
    messages: Any = [{"role": "user", "content": "x"}, refused, {"role": "user", "content": "why"}]
    reply = client.chat.completions.create(model="writer", messages=messages)
    assert reply.choices[0].message.content == "user: x assistant: never user: why assistant: "
    with pytest.raises(openai.BadRequestError, match="a part of type 'refusal'"):
        client.chat.completions.create(model="writer", messages=[{**refused, "role": "user"}])


def test_chat_streams_each_piece(client: OpenAI) -> None:
    chunks = list(said(client, "one two", stream=True, stream_options={"include_usage": True}))
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content for chunk in chunks[1:-2]]
    assert texts == ["user: ", "one ", "two ", "assistant: "]
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * 5 + ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 4
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_a_stream_without_usage_ends_with_the_reason(client: OpenAI) -> None:
    last = list(said(client, "one two", stream=True, max_tokens=2))[-1]
    assert last.choices[0].finish_reason == "length"


def test_characters_are_not_cut(client: OpenAI) -> None:
    chunks = list(client.completions.create(model="writer", prompt="character", stream=True))
    assert [chunk.choices[0].text for chunk in chunks[:-1]] == ["a", "é", "€", "😀"]


@pytest.mark.parametrize("stream", [False, True])
def test_stop_words_end_the_output(client: OpenAI, stream: bool) -> None:
    reply: Any = client.completions.create(
        model="writer", prompt="one two three four", stop=["ee fo", "four"], stream=stream
    )
    chunks = list(reply) if stream else [reply]
    assert "".join(chunk.choices[0].text for chunk in chunks) == "one two thr"
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_a_stop_word_cancels_an_endless_output(client: OpenAI, server: ServerProcess) -> None:
    reply = client.completions.create(model="writer", prompt="endless until-stopped", stop="word word")
    assert reply.choices[0].text == ""
    server.wait_for("cancelled: until-stopped")


def test_several_prompts_and_choices_have_their_places(client: OpenAI) -> None:
    reply = client.completions.create(model="writer", prompt=["a b", "c"], n=2, echo=True)
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in reply.choices] == ["a ba b ", "a ba b ", "cc ", "cc "]
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (3, 6)
    streamed = client.completions.create(model="writer", prompt=["a b", "c"], n=2, stream=True)
    texts = [""] * 4
    for chunk in streamed:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == ["a b ", "a b ", "c ", "c "]


def test_sampling_reaches_the_model(client: OpenAI) -> None:
    reply = said(
        client, "options", n=2, temperature=0.5, top_p=0.25, seed=7, max_completion_tokens=9, stop="z\n",
        frequency_penalty=0.5, extra_body={"top_k": 3},
    )  # fmt: skip
    sent = [json.loads(choice.message.content) for choice in reply.choices]
    assert [options.pop("seed") for options in sent] == [7, 8]
    assert sent[0] == sent[1] == {
        "temperature": 0.5, "top_p": 0.25, "max_tokens": 9, "stop": ["z\n"], "frequency_penalty": 0.5, "top_k": 3,
    }  # fmt: skip


def test_unknown_fields_are_ignored_and_logged_once(client: OpenAI, server: ServerProcess) -> None:
    for _ in range(2):
        assert said(client, "x", extra_body={"colour": "red"}).choices[0].finish_reason == "stop"
    server.wait_for("the request field 'colour' is not known and is ignored")
    assert server.log.count("the request field 'colour'") == 1


def test_messages_tools_and_formats_are_passed_on(client: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    schema: Any = {"type": "json_object"}
    reply = client.chat.completions.create(
        model="tools", messages=messages, tools=tools, response_format=schema, temperature=0.5, logprobs=True
    )
    choice = reply.choices[0]
    assert json.loads(choice.message.content or "") == {
        "CONVERSATION": messages, "TOOLS": tools, "response_format": schema, "HEAT": 0.5,
    }  # fmt: skip
    call: Any = (choice.message.tool_calls or [])[0]
    assert (call.id, call.function.name, choice.finish_reason) == ("call_1", "look", "tool_calls")
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert choice.logprobs.content[0].logprob == -0.5
    chunks = list(client.chat.completions.create(model="tools", messages=messages, tools=tools, stream=True))
    deltas: Any = [chunk.choices[0].delta.tool_calls for chunk in chunks if chunk.choices[0].delta.tool_calls]
    assert [(call.index, call.function.name) for (call,) in deltas] == [(0, "look")]


def test_many_log_probabilities_all_arrive(client: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "many tokens"}]
    reply = client.chat.completions.create(model="tools", messages=messages, logprobs=True)
    told = reply.choices[0].logprobs
    assert told is not None
    assert [each.logprob for each in told.content or ()] == [-0.5] * 5000
    include: Any = ["message.output_text.logprobs"]
    response = client.responses.create(model="tools", input="many tokens", include=include)
    part: Any = response.output[0]
    assert [each.bytes for each in part.content[0].logprobs] == [[120]] * 5000


def test_events_after_many_log_probabilities_keep_their_order(client: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "many tokens"}]
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    chunks: list[Any] = list(
        client.chat.completions.create(
            model="tools", messages=messages, tools=tools, logprobs=True, n=2, stream=True
        )
    )
    for index in range(2):
        mine = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == index]
        role, text, call, end = mine
        assert (role.delta.role, text.delta.content[0], end.finish_reason) == ("assistant", "{", "tool_calls")
        assert [each.logprob for each in text.logprobs.content] == [-0.5] * 5000
        assert call.delta.tool_calls[0].function.name == "look"
    include: Any = ["message.output_text.logprobs"]
    told: list[Any] = list(
        client.responses.create(model="tools", input="many tokens", include=include, stream=True)
    )
    assert [event.sequence_number for event in told] == list(range(len(told)))
    assert told[-1].type == "response.completed"
    for event in (told[4], told[5], told[-1].response.output[0].content[0]):
        assert [each.bytes for each in event.logprobs] == [[120]] * 5000


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("said", ["cut", "many tokens cut"])
def test_log_probabilities_that_are_no_json_are_an_error(client: OpenAI, said: str, stream: bool) -> None:
    messages: Any = [{"role": "user", "content": said}]
    with pytest.raises(openai.InternalServerError, match="'LOGS' is not JSON"):
        client.chat.completions.create(model="tools", messages=messages, logprobs=True, stream=stream)


def test_tokens_are_counted_with_the_tokenizer_of_the_model(client: OpenAI) -> None:
    reply = client.completions.create(model="plain", prompt=["one two three", "four"])
    assert [choice.text for choice in reply.choices] == ["one two three", "four"]
    assert reply.usage is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (4, 4)
    long = client.completions.create(model="plain", prompt="word " * 10_000)
    assert long.usage is not None
    assert long.usage.total_tokens == 20_000


def test_tokens_of_texts_for_embeddings_are_counted_of_any_length(client: OpenAI) -> None:
    for words in (2, 10_000):  # which are counted on the loop, and on a thread
        reply = client.embeddings.create(model="squash", input=["word " * words, "one"])
        assert len(reply.data) == 2
        assert (reply.usage.prompt_tokens, reply.usage.total_tokens) == (words + 1, words + 1)


@pytest.mark.parametrize("count", [1, 3, 9])
def test_embeddings_of_any_number_of_texts(client: OpenAI, count: int) -> None:
    texts = ["a" * (number + 1) for number in range(count)]
    expected = [[number + 1, 1, 0.5] for number in range(count)]
    packed = client.embeddings.create(model="squash", input=texts)  # the client asks for base64
    assert [each.embedding for each in packed.data] == expected
    assert [each.index for each in packed.data] == list(range(count))
    plain = client.embeddings.create(model="squash", input=texts, encoding_format="float")
    assert [each.embedding for each in plain.data] == expected


@pytest.mark.parametrize("form", ["float", "base64"])
def test_many_embeddings_are_told_in_steps_and_in_order(client: OpenAI, form: Any) -> None:
    lengths = [number % 7 for number in range(2048)]
    texts = ["b" * (length + 1) for length in lengths]
    reply: Any = client.post(
        "/embeddings", body={"model": "squash", "input": texts, "encoding_format": form}, cast_to=object
    )
    assert set(reply) == {"object", "data", "model", "usage"} or set(reply) == {"object", "data", "model"}
    assert [each["index"] for each in reply["data"]] == list(range(2048))
    found = [each["embedding"] for each in reply["data"]]
    if form == "base64":
        found = [list(struct.unpack("<3f", base64.b64decode(each))) for each in found]
    assert found == [[length + 1, 0, 0.5] for length in lengths]


def test_embeddings_of_a_model_for_tritons_vllm_backend(client: OpenAI) -> None:
    reply = client.embeddings.create(model="embedder", input=["one two", "three"])
    assert [each.embedding for each in reply.data] == [[7.25] * 4, [5.25] * 4]
    assert reply.usage.prompt_tokens == 3
    short = client.embeddings.create(model="embedder", input="one", dimensions=2)
    assert short.data[0].embedding == [3.25] * 2


def test_base64_is_little_endian(server: ServerProcess, client: OpenAI) -> None:
    raw: Any = client.post(
        "/embeddings",
        body={"model": "squash", "input": "ab", "encoding_format": "base64", "dimensions": 3},
        cast_to=object,
    )
    assert struct.unpack("<3f", base64.b64decode(raw["data"][0]["embedding"])) == (2, 1, 0.5)


REFUSED: list[tuple[str, dict[str, Any], type[openai.APIStatusError], str, str | None]] = [
    ("completions", {"model": "none", "prompt": "x"}, openai.NotFoundError, "unknown model: 'none'", "model"),
    ("completions", {"model": "other", "prompt": "x"}, openai.BadRequestError, "no parameter openai.task", "model"),
    ("completions", {"model": "wrong", "prompt": "x"}, openai.BadRequestError, "it must be one or more of", None),
    ("completions", {"model": "squash", "prompt": "x"}, openai.BadRequestError, "it serves: embeddings", "model"),
    ("completions", {"prompt": "x"}, openai.BadRequestError, "'model' must be a string", "model"),
    ("completions", {"model": "plain", "prompt": [1, 2]}, openai.BadRequestError, "token ids", "prompt"),
    ("completions", {"model": "plain", "prompt": [[1], "a"]}, openai.BadRequestError, "lists", "prompt"),
    ("completions", {"model": "plain", "prompt": [[]]}, openai.BadRequestError, "lists", "prompt"),
    ("completions", {"model": "plain", "prompt": [-1]}, openai.BadRequestError, "from 0", "prompt"),
    ("completions", {"model": "plain", "prompt": []}, openai.BadRequestError, "not empty", "prompt"),
    ("completions", {"model": "plain", "prompt": "x", "seed": 1}, openai.BadRequestError, "'seed'", "seed"),
    ("completions", {"model": "plain", "prompt": "x", "max_tokens": 1}, openai.BadRequestError, "take", "max_tokens"),
    ("completions", {"model": "plain", "prompt": "x", "suffix": "y"}, openai.BadRequestError, "'suffix'", "suffix"),
    ("completions", {"model": "plain", "prompt": "x", "best_of": 2}, openai.BadRequestError, "best_of", "best_of"),
    ("completions", {"model": "plain", "prompt": "x", "n": 0}, openai.BadRequestError, "from 1 to 128", "n"),
    ("completions", {"model": "writer", "prompt": "x", "top_p": 9}, openai.BadRequestError, "0 to 1", "top_p"),
    ("completions", {"model": "writer", "prompt": "x", "stream": 1}, openai.BadRequestError, "boolean", "stream"),
    ("completions", {"model": "writer", "prompt": "x", "stop": [""]}, openai.BadRequestError, "'stop'", "stop"),
    ("completions", {"model": "writer", "prompt": "x", "logprobs": 3}, openai.BadRequestError, "take", "logprobs"),
    ("completions", {"model": "writer", "prompt": "fail now"}, openai.InternalServerError, "no room for", None),
    ("chat/completions", {"model": "writer", "messages": []}, openai.BadRequestError, "not empty", "messages"),
    ("chat/completions", {"model": "plain", "messages": [{"role": "user", "content": "x"}]}, openai.BadRequestError,
     "no chat template", "messages"),
    ("chat/completions", {"model": "writer", "messages": [{"role": "king", "content": "x"}]}, openai.BadRequestError,
     "must be one of", "messages[0].role"),
    ("chat/completions", {"model": "writer", "messages": [{"role": "tool", "content": "x"}]}, openai.BadRequestError,
     "no tools here", "messages"),
    ("chat/completions", {"model": "writer", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
     openai.BadRequestError, "part of type 'image_url'", "messages[0].content"),
    ("chat/completions", {"model": "writer", "messages": [{"role": "user", "content": "x"}], "tools": [{}]},
     openai.BadRequestError, "does not take 'tools'", "tools"),
    ("chat/completions", {"model": "writer", "messages": [{"role": "user", "content": "x"}],
                          "response_format": {"type": "json_object"}},
     openai.BadRequestError, "response_format", "response_format"),
    ("embeddings", {"model": "squash", "input": [[1, 2]]}, openai.BadRequestError, "token ids", "input"),
    ("embeddings", {"model": "squash", "input": "x", "dimensions": 2}, openai.BadRequestError, "3 dimensions",
     "dimensions"),
    ("embeddings", {"model": "squash", "input": "x", "encoding_format": "hex"}, openai.BadRequestError, "base64",
     "encoding_format"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "kind", "message", "field"), REFUSED)
def test_what_cannot_be_served_is_refused_by_name(
    client: OpenAI,
    path: str,
    body: dict[str, Any],
    kind: type[openai.APIStatusError],
    message: str,
    field: str | None,
) -> None:
    with pytest.raises(kind) as caught:
        client.post(f"/{path}", body=body, cast_to=object)
    error: Any = caught.value.body
    assert message in error["message"]
    assert error["param"] == field
    assert set(error) == {"message", "type", "param", "code"}


def test_values_that_ask_for_nothing_special_are_served_by_any_model(client: OpenAI) -> None:
    reply = client.completions.create(
        model="plain", prompt="x", temperature=1, top_p=1, n=1, presence_penalty=0, logit_bias={}, best_of=1
    )
    assert reply.choices[0].text == "x"


def test_a_failure_in_the_middle_of_a_stream_is_an_error_event(client: OpenAI) -> None:
    chunks = client.completions.create(model="writer", prompt="fail late now-and-then", stream=True)
    assert next(chunks).choices[0].text == "fail "
    with pytest.raises(openai.APIError, match="lost its thread"):
        list(chunks)


def test_a_client_that_leaves_cancels_its_request(client: OpenAI, server: ServerProcess) -> None:
    stream = client.completions.create(model="writer", prompt="endless left-alone", stream=True)
    assert next(stream).choices[0].text == "word "
    stream.close()
    server.wait_for("cancelled: left-alone")


def test_a_client_that_leaves_before_the_answer_cancels_all_choices(server: ServerProcess) -> None:
    body = json.dumps({"model": "writer", "prompt": "endless never-read", "n": 3}).encode()
    host, _, port = server.http.partition(":")
    before = _executions(server)
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(_post(body))
        server.wait_until(lambda: _executions(server) >= before + 3, "three requests to begin")
    server.wait_for("cancelled: never-read", times=3)


def _executions(server: ServerProcess) -> int:
    """How many requests the writer has begun."""
    stats = json.loads(server.get("/v2/models/writer/stats")[1])["model_stats"][0]
    return int(stats["execution_count"])


def _post(body: bytes) -> bytes:
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def test_a_slow_reader_holds_the_model_back(server: ServerProcess) -> None:
    body = json.dumps({"model": "writer", "prompt": "endless wide slow-reader", "stream": True}).encode()
    host, _, port = server.http.partition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.sendall(_post(body))
        server.wait_for("wrote 10")
        written = -1

        def has_paused() -> bool:
            nonlocal written
            before, written = written, server.log.count("wrote ")
            return before == written

        pauses = 0

        def has_paused_for_long() -> bool:
            nonlocal pauses
            pauses = pauses + 1 if has_paused() else 0
            return pauses > 20

        server.wait_until(has_paused_for_long, "the model to be held back")
        paused_at = server.log.count("wrote ")
        while server.log.count("wrote ") == paused_at:
            assert connection.recv(1 << 20)
    server.wait_for("cancelled: slow-reader")


def test_many_callers_get_their_own_words(client: OpenAI) -> None:
    def ask(number: int) -> str:
        if number % 2:
            chunks = client.completions.create(model="writer", prompt=f"caller {number}", stream=True)
            return "".join(chunk.choices[0].text for chunk in chunks)
        text: str = client.completions.create(model="writer", prompt=f"caller {number}").choices[0].text
        return text

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, range(64))) == [f"caller {number} " for number in range(64)]


def test_paths_and_methods_that_there_are_not(server: ServerProcess) -> None:
    status, body = server.get("/v1/files")
    assert (status, json.loads(body)["error"]["code"]) == (404, "unknown_url")
    status, body = server.get("/v1/responses/resp_1")
    assert status == 404
    assert "responses are not stored" in json.loads(body)["error"]["message"]
    status, body = server.get("/v1/chat/completions")
    assert (status, json.loads(body)["error"]["code"]) == (405, "method_not_supported")
    assert server.get("/v2/health/ready")[0] == 200


@pytest.fixture
def small(tmp_path: Path) -> Path:
    python_model(tmp_path, "plain", PLAIN, PLAIN_CONFIG + IN_SERVER)
    return tmp_path


def test_the_api_key_is_a_token_of_the_file(small: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("tokens") / "tokens"
    file.write_text(token_line("me", "right"))
    with start_server(
        small, "--allow-openai=true", f"--token-file={file}", "--token-apis=inference,metadata"
    ) as server:
        options: Any = {"base_url": f"http://{server.http}/v1", "max_retries": 0}

        def ask(key: str) -> Any:
            with OpenAI(api_key=key, **options) as client:
                return client.completions.create(model="plain", prompt="x")

        assert ask("right").choices[0].text == "x"
        with pytest.raises(openai.AuthenticationError, match="token is not valid"):
            ask("wrong")
        with (
            OpenAI(api_key="wrong", **options) as client,
            pytest.raises(openai.AuthenticationError, match="token is not valid"),
        ):
            client.responses.create(model="plain", input="x")
        for path in ("/tokenize", "/detokenize"):  # whose errors have OpenAI's shape, too
            with (
                OpenAI(api_key="wrong", **options) as client,
                pytest.raises(openai.AuthenticationError, match="token is not valid") as refused,
            ):
                client.post(f"http://{server.http}{path}", body={"model": "plain"}, cast_to=object)
            assert refused.value.code == "invalid_api_key"


def test_without_the_flag_nothing_is_served_and_restrictions_hold(small: Path) -> None:
    with start_server(small, "--allow-grpc=false") as server:
        assert server.get("/v1/models")[0] == 404
        assert server.get("/tokenize")[0] == 404
    flags = ("--allow-openai=true", "--allow-grpc=false", "--http-restricted-api=inference:x-key=secret")
    with start_server(small, *flags) as server:
        options: Any = {"base_url": f"http://{server.http}/v1", "api_key": "none", "max_retries": 0}
        with OpenAI(**options) as client:
            with pytest.raises(openai.PermissionDeniedError, match="x-key"):
                client.completions.create(model="plain", prompt="x")
            with pytest.raises(openai.PermissionDeniedError, match="x-key"):
                client.responses.create(model="plain", input="x")
            for path in ("/tokenize", "/detokenize"):
                with pytest.raises(openai.PermissionDeniedError, match="x-key"):
                    client.post(f"http://{server.http}{path}", body={"model": "plain"}, cast_to=object)
        with OpenAI(**options, default_headers={"x-key": "secret"}) as client:
            assert client.completions.create(model="plain", prompt="x").choices[0].text == "x"
