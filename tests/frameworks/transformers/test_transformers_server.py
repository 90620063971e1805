"""A language model as OpenAI's own client, and Triton's `generate`, see it."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest
from openai import OpenAI

pytest.importorskip("transformers", reason="needs transformers: pip install 'halimede[transformers]'")

import torch
import transformers

from examples.chat.language_model import TEMPLATE
from tests.backends.language.hostile import failures
from tests.frameworks.transformers import tiny_models
from tests.support.server import ServerProcess, start_server

PROMPT = "The moon walks"
MESSAGES: Any = [{"role": "user", "content": "Where does the moon walk?"}]
TOKENS = 24
CONTEXT = 200_000
NO_END = {"1": -100}
"""A bias by which a text does not come to an end."""

TEMPLATE_WITH_TOOLS = "{% if tools %}<|system|>{{ tools | tojson }} <tool_call>{% endif %}" + TEMPLATE
CITY = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Bonn", "Ulm"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "parameters": CITY}},
    {"type": "function", "function": {"name": "time"}},
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a large context, which writes two texts at a time."""
    directory = tmp_path_factory.mktemp("models")
    tiny_models.save("llama", directory / "tiny" / "1", max_position_embeddings=CONTEXT)
    (directory / "tiny" / "1" / "chat_template.jinja").write_text(TEMPLATE_WITH_TOOLS)
    parameter = 'parameters { key: "max_num_seqs" value { string_value: "2" } }'
    (directory / "tiny" / "config.pbtxt").write_text(f'backend: "transformers" {parameter}')
    return directory


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[ServerProcess]:
    with start_server(repository, "--allow-openai=true", "--allow-grpc=false") as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"http://{server.http}/v1", api_key="none", max_retries=0, timeout=60) as opened:
        yield opened


@pytest.fixture(scope="module")
def wanted(repository: Path) -> "Wanted":
    return Wanted(repository / "tiny" / "1")


class Wanted:
    """What the model itself generates."""

    def __init__(self, directory: Path) -> None:
        self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(directory)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(directory)

    def logprobs(self, prompt: str, text: str, *, special: bool = True) -> torch.Tensor:
        """The log probabilities of each token of a text after a prompt, shape [tokens, vocabulary]."""
        before = self.tokenizer.encode(prompt, add_special_tokens=special)
        after = self.model.generate(
            torch.tensor([before]),
            attention_mask=torch.ones(1, len(before), dtype=torch.long),
            max_new_tokens=TOKENS,
            do_sample=False,
        )
        assert text == self.tokenizer.decode(after[0, len(before) :], skip_special_tokens=True)
        with torch.no_grad():
            logits = self.model(after).logits[0, len(before) - 1 : -1]
        return logits.log_softmax(-1)

    def after(self, prompt: str, *, special: bool = True) -> str:
        """The text after a prompt, always the most probable token."""
        tokens = torch.tensor([self.tokenizer.encode(prompt, add_special_tokens=special)])
        made = self.model.generate(
            tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=TOKENS, do_sample=False
        )
        text: str = self.tokenizer.decode(made[0, tokens.shape[1] :], skip_special_tokens=True)
        return text


def completed(client: OpenAI, prompt: str = PROMPT, **options: Any) -> Any:
    options = {"model": "tiny", "max_tokens": TOKENS, "temperature": 0, **options}
    return client.completions.create(prompt=prompt, **options)


def test_a_completion_is_what_the_model_generates(client: OpenAI, wanted: Wanted) -> None:
    reply = completed(client)
    assert reply.choices[0].text == wanted.after(PROMPT)
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage.prompt_tokens == len(wanted.tokenizer.encode(PROMPT))
    assert reply.usage.completion_tokens == TOKENS


def test_chat_uses_the_template_of_the_model(client: OpenAI, wanted: Wanted) -> None:
    reply = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=TOKENS, temperature=0)
    prompt = wanted.tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=False)
    assert reply.choices[0].message.content == wanted.after(prompt, special=False)
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == len(wanted.tokenizer.encode(prompt, add_special_tokens=False))


def test_a_stream_brings_the_same_text_in_pieces(client: OpenAI, wanted: Wanted) -> None:
    chunks = list(completed(client, stream=True, stream_options={"include_usage": True}))
    texts = [chunk.choices[0].text for chunk in chunks if chunk.choices]
    assert "".join(texts) == wanted.after(PROMPT)
    assert len(list(filter(None, texts))) > 3
    assert chunks[-1].usage.completion_tokens == TOKENS
    assert chunks[-2].choices[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_word_ends_the_text(client: OpenAI, wanted: Wanted, stream: bool) -> None:
    text = wanted.after(PROMPT)
    word = text[len(text) // 2 :][:3]
    reply = completed(client, stop=[word], stream=stream)
    chunks = list(reply) if stream else [reply]
    assert "".join(chunk.choices[0].text for chunk in chunks) == text[: text.index(word)]
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_callers_at_once_get_what_each_gets_alone(client: OpenAI, wanted: Wanted) -> None:
    prompts = [PROMPT, "café 10", "one two three four five", "😀"]
    with ThreadPoolExecutor(len(prompts)) as pool:
        replies = list(pool.map(lambda prompt: completed(client, prompt).choices[0].text, prompts))
    assert replies == [wanted.after(prompt) for prompt in prompts]


def test_a_prompt_may_be_token_ids(client: OpenAI, wanted: Wanted) -> None:
    tokens = wanted.tokenizer.encode(PROMPT)
    options: Any = {"model": "tiny", "max_tokens": TOKENS, "temperature": 0}
    reply = client.completions.create(prompt=tokens, **options)
    assert reply.choices[0].text == wanted.after(PROMPT)
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == len(tokens)
    several = client.completions.create(prompt=[tokens, tokens[:2]], **options)
    assert several.choices[0].text == wanted.after(PROMPT)
    assert len(several.choices) == 2


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("chat", {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "thing"}}}},
     "response_format.json_schema.schema"),
    ("chat", {"response_format": {"type": "yaml"}}, "response_format.type"),
    ("chat", {"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
    ("chat", {"guided_regex": "("}, "guided_regex"),
    ("chat", {"guided_choice": []}, "guided_choice"),
    ("chat", {"tools": [{}]}, "tools[0]"),
    ("chat", {"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
    ("chat", {"tools": TOOLS, "parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ("chat", {"tool_choice": "required"}, "tool_choice"),
    ("chat", {"top_logprobs": 3}, "top_logprobs"),
    ("chat", {"logprobs": 3}, "logprobs"),
    ("chat", {"logprobs": True, "top_logprobs": 99}, "top_logprobs"),
    ("chat", {"logit_bias": {"x": 1}}, "logit_bias"),
    ("chat", {"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ("chat", {"truncation_side": "up"}, "truncation_side"),
    ("chat", {"allowed_token_ids": [1 << 20]}, "allowed_token_ids"),
    ("chat", {"logit_bias": {"1048576": 1}}, "logit_bias"),
    ("chat", {"response_format": {"type": "json_object", "schemas": {}}}, "response_format.schemas"),
    ("completions", {"logprobs": 99}, "logprobs"),
    ("completions", {"prompt": [1 << 30]}, "prompt"),
    ("completions", {"logprobs": True}, "logprobs"),
    ("completions", {"prompt_logprobs": 99}, "prompt_logprobs"),
    ("completions", {"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ("chat", {"max_tokens": 0}, "max_tokens"),
    ("chat", {"max_completion_tokens": 0}, "max_completion_tokens"),
    ("completions", {"max_tokens": 0}, "max_tokens"),
    ("completions", {"prompt": "", "add_special_tokens": False}, "prompt"),
    ("completions", {"prompt": "moon " * CONTEXT}, "prompt"),
]  # fmt: skip
"""What the backend finds wrong, and the field that it is about."""


@pytest.mark.parametrize(("call", "fields", "param"), WRONG)
def test_what_the_backend_finds_wrong_names_the_field(
    client: OpenAI, call: str, fields: dict[str, Any], param: str
) -> None:
    body = {"model": "tiny", **({"messages": MESSAGES} if call == "chat" else {"prompt": "x"}), **fields}
    with pytest.raises(openai.BadRequestError) as caught:
        client.post(f"/{call}{'/completions' if call == 'chat' else ''}", body=body, cast_to=object)
    error: Any = caught.value.body
    assert error["param"] == param
    assert (
        f"'{param}'" in error["message"]
        or "maximum context length" in error["message"]
        or param == "tool_choice"
    )


def test_a_seed_gives_the_same_text_again(client: OpenAI) -> None:
    first, again, other = (completed(client, temperature=1, seed=seed).choices[0].text for seed in (5, 5, 6))
    assert first == again != other


def test_choices_of_one_request_differ_by_their_seeds(client: OpenAI) -> None:
    reply = completed(client, temperature=1, seed=5, n=2)
    assert len({choice.text for choice in reply.choices}) == 2


def test_a_client_that_leaves_makes_room_for_the_next(client: OpenAI) -> None:
    streams = [completed(client, max_tokens=CONTEXT - 99, stream=True, logit_bias=NO_END) for _ in range(2)]
    for stream in streams:
        assert next(iter(stream)).choices[0].text
        stream.close()
    reply = completed(client, max_tokens=3, logit_bias=NO_END)
    assert reply.usage.completion_tokens == 3


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_longer_than_the_context_is_refused(client: OpenAI, stream: bool) -> None:
    told = rf"the prompt has \d+ tokens, but the model's context holds {CONTEXT}, with at least one for the answer"
    with pytest.raises(openai.BadRequestError, match=told):
        completed(client, "moon " * CONTEXT, stream=stream)


class Scores:
    """The log probabilities of a prompt's tokens by the model itself.

    Attributes:
        tokens: of the prompt.
        texts: of each.
        logprobs: of each after the first.
        best: of the most probable token in each of their places.
    """

    def __init__(self, wanted: Wanted, prompt: str, *, special: bool = True) -> None:
        self.tokens: list[int] = wanted.tokenizer.encode(prompt, add_special_tokens=special)
        with torch.no_grad():
            rows = wanted.model(torch.tensor([self.tokens])).logits[0, :-1].log_softmax(-1)
        self.logprobs = rows[range(len(rows)), self.tokens[1:]].tolist()
        self.best = rows.max(-1).values.tolist()


@pytest.mark.parametrize("as_tokens", [False, True])
@pytest.mark.parametrize("most", [0, 1, 3])
@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_repeated_has_log_probabilities(
    client: OpenAI, wanted: Wanted, as_tokens: bool, most: int, stream: bool
) -> None:
    """As lm-eval asks for the likelihood of texts."""
    scores = Scores(wanted, PROMPT)
    prompt = scores.tokens if as_tokens else PROMPT
    reply: Any = client.completions.create(
        model="tiny", prompt=prompt, max_tokens=most, temperature=0, logprobs=2, echo=True, stream=stream,
        extra_body={"stream_options": {"include_usage": True}} if stream else None,
    )  # fmt: skip
    chunks = list(reply) if stream else [reply]
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    text = "".join(choice.text for choice in choices)
    logprobs: dict[str, list[Any]] = {
        name: [each for choice in choices if choice.logprobs for each in getattr(choice.logprobs, name)]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    }
    before = wanted.tokenizer.decode(scores.tokens) if as_tokens else PROMPT
    after = wanted.after(PROMPT)
    assert text.startswith(before)
    assert after.startswith(text[len(before) :].rstrip("\N{REPLACEMENT CHARACTER}"))
    assert chunks[-1].usage.completion_tokens == most
    count = len(scores.tokens)
    assert {len(each) for each in logprobs.values()} == {count + most}
    assert logprobs["token_logprobs"][0] is logprobs["top_logprobs"][0] is None
    told = torch.tensor(logprobs["token_logprobs"][1:count])
    torch.testing.assert_close(told, torch.tensor(scores.logprobs), atol=1e-4, rtol=1e-4)
    best = torch.tensor([max(top.values()) for top in logprobs["top_logprobs"][1:count]])
    torch.testing.assert_close(best, torch.tensor(scores.best), atol=1e-4, rtol=1e-4)
    first = len(logprobs["tokens"][0])  # a special token, which is part of the text only if it was sent
    assert logprobs["text_offset"][:2] == [0, first if as_tokens else 0]
    assert logprobs["text_offset"] == sorted(logprobs["text_offset"])
    if most:
        assert logprobs["text_offset"][count] == len(before)
    assert choices[-1].finish_reason == "length"


def test_a_prompt_that_is_read_in_pieces_has_the_same_log_probabilities(
    client: OpenAI, wanted: Wanted
) -> None:
    prompt = "one two three four five " * 300  # more tokens than a step reads
    scores = Scores(wanted, prompt)
    reply: Any = client.completions.create(
        model="tiny", prompt=[scores.tokens, scores.tokens[:5]], max_tokens=0, logprobs=0, echo=True
    )
    told = reply.choices[0].logprobs.token_logprobs
    torch.testing.assert_close(torch.tensor(told[1:]), torch.tensor(scores.logprobs), atol=1e-3, rtol=1e-3)
    assert reply.choices[1].logprobs.token_logprobs == pytest.approx(told[:5], abs=1e-3)


def test_log_probabilities_of_prompts_come_as_from_vllm(client: OpenAI, wanted: Wanted) -> None:
    scores = Scores(wanted, PROMPT)
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 0, "prompt_logprobs": 1}
    reply: Any = client.post("/completions", body=body, cast_to=object)
    first, *others = reply["choices"][0]["prompt_logprobs"]
    assert first is None
    assert reply["choices"][0]["text"] == ""
    own = [each[str(token)] for each, token in zip(others, scores.tokens[1:], strict=True)]
    assert [each["logprob"] for each in own] == pytest.approx(scores.logprobs, abs=1e-4)
    assert all((each["rank"] == 1) == (len(entry) == 1) for each, entry in zip(own, others, strict=True))

    prompt = wanted.tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=False)
    scores = Scores(wanted, prompt, special=False)
    chat = {"model": "tiny", "messages": MESSAGES, "max_tokens": 1, "prompt_logprobs": 0}
    reply = client.post("/chat/completions", body=chat, cast_to=object)
    told = [next(iter(each.values()))["logprob"] for each in reply["prompt_logprobs"][1:]]
    assert told == pytest.approx(scores.logprobs, abs=1e-4)


def test_chat_tells_log_probabilities_and_alternatives(client: OpenAI, wanted: Wanted) -> None:
    options: Any = {
        "model": "tiny",
        "max_tokens": TOKENS,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 3,
    }
    reply = client.chat.completions.create(messages=MESSAGES, **options)
    choice = reply.choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    text = choice.message.content or ""
    entries = choice.logprobs.content
    prompt = wanted.tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=False)
    expected = wanted.logprobs(prompt, text, special=False)
    assert len(entries) == len(expected) == TOKENS
    told = torch.tensor([[each.logprob for each in entry.top_logprobs] for entry in entries])
    torch.testing.assert_close(told, expected.topk(3).values, atol=1e-4, rtol=1e-4)
    assert [entry.logprob for entry in entries] == [entry.top_logprobs[0].logprob for entry in entries]
    assert b"".join(bytes(entry.bytes or ()) for entry in entries).decode("utf-8", "replace") == text

    chunks = list(client.chat.completions.create(messages=MESSAGES, stream=True, **options))
    streamed = [
        entry
        for chunk in chunks
        for entry in (chunk.choices[0].logprobs.content or [] if chunk.choices[0].logprobs else [])
    ]
    assert [(entry.token, entry.bytes) for entry in streamed] == [
        (entry.token, entry.bytes) for entry in entries
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_completions_tell_log_probabilities_with_offsets(
    client: OpenAI, wanted: Wanted, stream: bool
) -> None:
    reply = completed(client, logprobs=2, stream=stream)
    parts = [part.choices[0] for part in (reply if stream else [reply])]
    told = [part.logprobs for part in parts if part.logprobs is not None]
    text = "".join(part.text for part in parts)
    tokens, offsets, logprobs, tops = (
        [each for part in told for each in getattr(part, name)]
        for name in ("tokens", "text_offset", "token_logprobs", "top_logprobs")
    )
    expected = wanted.logprobs(PROMPT, text)
    torch.testing.assert_close(torch.tensor(logprobs), expected.max(-1).values, atol=1e-4, rtol=1e-4)
    assert {len(top) for top in tops} == {2}
    whole = [(offset, token) for offset, token in zip(offsets, tokens, strict=True) if "\\x" not in token]
    assert whole
    before = "\N{REPLACEMENT CHARACTER}"  # half of a character waits for what follows
    assert all(text[offset:].lstrip(before).startswith(token) for offset, token in whole)


def test_without_logprobs_there_are_none(client: OpenAI) -> None:
    reply = client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=2)
    assert reply.choices[0].logprobs is None
    with pytest.raises(openai.BadRequestError, match="'top_logprobs' needs 'logprobs': true beside it"):
        client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=2, top_logprobs=2)


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "kind": {"enum": ["a", "b"]}},
    "required": ["name", "kind"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("stream", [False, True])
def test_the_response_format_holds_with_random_weights(client: OpenAI, stream: bool) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True}}
    reply: Any = client.chat.completions.create(
        model="tiny", messages=MESSAGES, response_format=form, stream=stream, seed=1
    )
    if stream:
        choices = [chunk.choices[0] for chunk in reply]
        text, finish = "".join(each.delta.content or "" for each in choices), choices[-1].finish_reason
    else:
        text, finish = reply.choices[0].message.content, reply.choices[0].finish_reason
    jsonschema.validate(json.loads(text), SCHEMA)
    assert finish == "stop"


def test_a_schema_that_cannot_be_compiled_is_refused(client: OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "thing", "schema": {"type": "thing"}}}
    told = r"'response_format.json_schema.schema' cannot be used: Invalid type: thing"
    with pytest.raises(openai.BadRequestError, match=told):
        client.chat.completions.create(model="tiny", messages=MESSAGES, response_format=form)


def called(client: OpenAI, choice: Any, *, stream: bool, **options: Any) -> tuple[list[tuple[str, Any]], str]:
    """Each call, as name and arguments, and why the text ended."""
    reply: Any = client.chat.completions.create(
        model="tiny", messages=MESSAGES, tools=TOOLS, tool_choice=choice, stream=stream, seed=2, **options
    )
    if not stream:
        whole = reply.choices[0]
        assert whole.message.content is None
        assert all(call.id and call.type == "function" for call in whole.message.tool_calls)
        calls = [(call.function.name, call.function.arguments) for call in whole.message.tool_calls]
        return [(name, json.loads(text)) for name, text in calls], whole.finish_reason
    names: dict[int, str] = {}
    texts: dict[int, str] = {}
    for chunk in reply:
        [part] = chunk.choices
        assert not part.delta.content
        for call in part.delta.tool_calls or []:
            if call.id:
                assert call.index not in names  # each begins once
                names[call.index] = call.function.name
            texts[call.index] = texts.get(call.index, "") + call.function.arguments
    return [(names[index], json.loads(texts[index])) for index in sorted(names)], part.finish_reason


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_that_has_to_be_called_is_called(client: OpenAI, stream: bool) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    [(name, arguments)], finish = called(client, choice, stream=stream)
    assert (name, finish) == ("weather", "tool_calls")
    jsonschema.validate(arguments, CITY)


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_has_to_be_is_of_one_of_the_tools(client: OpenAI, stream: bool) -> None:
    calls, finish = called(client, "required", stream=stream, parallel_tool_calls=False)
    assert finish == "tool_calls"
    [(name, arguments)] = calls
    jsonschema.validate(arguments, {"weather": CITY, "time": {"maxProperties": 0}}[name])


def test_a_call_that_has_to_be_is_of_the_allowed_tools(client: OpenAI) -> None:
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "time"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    calls, finish = called(client, choice, stream=False, parallel_tool_calls=False)
    assert (calls, finish) == ([("time", {})], "tool_calls")
    reply: Any = client.responses.create(
        model="tiny", input="x", parallel_tool_calls=False, max_output_tokens=200,
        tools=[{"type": "function", **tool["function"], "strict": False} for tool in TOOLS],
        tool_choice={"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "time"}]},
    )  # fmt: skip
    assert [(call.name, call.arguments) for call in reply.output] == [("time", "{}")]


def test_tools_are_told_to_the_model(client: OpenAI, wanted: Wanted) -> None:
    reply = client.chat.completions.create(model="tiny", messages=MESSAGES, tools=TOOLS, max_tokens=4, seed=1)
    prompt = wanted.tokenizer.apply_chat_template(
        MESSAGES, tools=TOOLS, add_generation_prompt=True, tokenize=False
    )
    assert '"weather"' in prompt
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == len(wanted.tokenizer.encode(prompt, add_special_tokens=False))
    assert reply.choices[0].message.tool_calls is None
    with pytest.raises(
        openai.BadRequestError, match="'tool_choice' must be none, auto, required, or name one"
    ):
        client.chat.completions.create(
            model="tiny", messages=MESSAGES, tools=TOOLS,
            tool_choice={"type": "function", "function": {"name": "other"}},
        )  # fmt: skip


def test_a_call_in_the_format_of_the_model_is_found(server: ServerProcess) -> None:
    text = 'Hm. <tool_call>{"name": "time", "arguments": {}}</tool_call>'
    options = json.dumps({"structured_outputs": {"choice": [text]}})
    status, body = generate(
        server, text_input=PROMPT, sampling_parameters=options, tools=json.dumps(TOOLS),
        exclude_input_in_output=True, return_finish_reason=True,
    )  # fmt: skip
    assert (status, body["text_output"], body["finish_reason"]) == (200, "Hm. ", "tool_calls")
    [call] = json.loads(body["tool_calls"])
    assert call["function"] == {"name": "time", "arguments": "{}"}


def generate(server: ServerProcess, **members: Any) -> tuple[int, Any]:
    """Status and body of `generate`."""
    url = f"http://{server.http}/v2/models/tiny/generate"
    try:
        with urllib.request.urlopen(url, json.dumps(members).encode(), timeout=60) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_generate_is_called_as_with_the_vllm_backend(server: ServerProcess, wanted: Wanted) -> None:
    options = {"temperature": 0, "max_tokens": TOKENS}
    status, body = generate(server, text_input=PROMPT, parameters={"stream": False, **options})
    assert (status, body["text_output"]) == (200, PROMPT + wanted.after(PROMPT))
    status, body = generate(
        server, text_input=PROMPT, sampling_parameters=json.dumps(options), exclude_input_in_output=True,
        return_finish_reason=True, return_num_output_tokens=True,
    )  # fmt: skip
    assert (status, body["text_output"]) == (200, wanted.after(PROMPT))
    assert (body["finish_reason"], body["num_output_tokens"]) == ("length", TOKENS)


def test_wrong_sampling_is_refused_by_name(server: ServerProcess) -> None:
    assert generate(server, text_input=PROMPT, sampling_parameters='{"beams": 2}')[0] == 400
    status, body = generate(server, text_input=PROMPT, sampling_parameters='{"temperature": -2}')
    assert status == 400
    assert "'temperature' must be a number from 0 to 100" in body["error"]


def test_log_probabilities_come_as_from_the_vllm_backend(server: ServerProcess) -> None:
    options = json.dumps({"temperature": 0, "max_tokens": 3, "logprobs": 2})
    status, body = generate(
        server,
        text_input=PROMPT,
        sampling_parameters=options,
        return_logprobs=True,
        return_cumulative_logprob=True,
    )
    assert status == 200
    told = json.loads(body["logprobs"])
    chosen = [next(iter(entry.values())) for entry in told]
    assert [(len(entry), first["rank"]) for entry, first in zip(told, chosen, strict=True)] == [(2, 1)] * 3
    assert body["cumulative_logprob"] == pytest.approx(sum(each["logprob"] for each in chosen), abs=1e-4)


def test_hostile_numbers_and_forms_are_refused_and_fail_nobody(server: ServerProcess) -> None:
    assert failures(server, "tiny") == []
    assert "Traceback" not in server.log
