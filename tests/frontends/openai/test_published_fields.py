"""Every field that OpenAI and vLLM publish works, or is refused by name; none is dropped without a word."""

import json
import re
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.chat import completion_create_params as chat
from openai.types.completion_create_params import CompletionCreateParamsStreaming
from openai.types.embedding_create_params import EmbeddingCreateParams
from openai.types.responses import response_create_params as responses
from typing_extensions import get_type_hints

from halimede.frontends.openai.fields import SAMPLING
from halimede.frontends.openai.published_fields import FIELDS, FORMS, IDLE, Use, asks_for_nothing
from halimede.frontends.openai.routes import Call

OPENAI = {
    Call.CHAT_COMPLETIONS: chat.CompletionCreateParamsStreaming,
    Call.COMPLETIONS: CompletionCreateParamsStreaming,
    Call.RESPONSES: responses.ResponseCreateParamsStreaming,
    Call.EMBEDDINGS: EmbeddingCreateParams,
}
_VLLM_TEXT = """
    model frequency_penalty logit_bias presence_penalty seed stop stream stream_options temperature top_p user
    use_beam_search top_k min_p repetition_penalty watermarking length_penalty stop_token_ids
    include_stop_str_in_output ignore_eos min_tokens skip_special_tokens spaces_between_special_tokens
    truncate_prompt_tokens truncation_side
    prompt_logprobs logprob_token_ids allowed_token_ids bad_words add_special_tokens response_format structured_outputs
    priority request_id session_id return_tokens_as_token_ids return_token_ids return_weight_versions
    routed_experts_prompt_start return_token_offsets mm_payload return_mm_kwargs cache_salt kv_transfer_params
    ec_transfer_params vllm_xargs repetition_detection thinking_token_budget stream_interval logprobs
    max_tokens n best_of
"""
VLLM = {
    Call.CHAT_COMPLETIONS: _VLLM_TEXT
    + """
        messages top_logprobs max_completion_tokens tools tool_choice reasoning_effort include_reasoning
        parallel_tool_calls echo add_generation_prompt continue_final_message documents chat_template
        chat_template_kwargs media_io_kwargs mm_processor_kwargs return_prompt_text
    """,
    Call.COMPLETIONS: _VLLM_TEXT + "prompt echo suffix prompt_embeds",
    Call.RESPONSES: """
        background include input instructions max_output_tokens max_tool_calls metadata model logit_bias
        parallel_tool_calls previous_response_id prompt reasoning include_reasoning service_tier store stream
        temperature text tool_choice tools top_logprobs top_p top_k min_p truncation user skip_special_tokens
        spaces_between_special_tokens include_stop_str_in_output presence_penalty frequency_penalty prompt_cache_key
        prompt_cache_options prompt_cache_retention safety_identifier watermarking request_id session_id media_io_kwargs
        mm_processor_kwargs priority mm_payload return_mm_kwargs cache_salt enable_response_messages
        previous_input_messages structured_outputs repetition_penalty seed stop stop_token_ids ignore_eos vllm_xargs
        kv_transfer_params ec_transfer_params chat_template_kwargs
    """,
    Call.EMBEDDINGS: """
        model user truncate_prompt_tokens padding truncation_side request_id priority mm_processor_kwargs cache_salt
        input
        add_special_tokens encoding_format embed_dtype endianness dimensions use_activation messages chat_template
        chat_template_kwargs add_generation_prompt continue_final_message media_io_kwargs
    """,
    Call.TOKENIZE: """
        model prompt messages add_special_tokens return_token_strs add_generation_prompt continue_final_message
        chat_template chat_template_kwargs media_io_kwargs mm_processor_kwargs tools
    """,
    Call.DETOKENIZE: "model tokens",
}  # fmt: skip
"""The fields of vLLM 0.33."""

_OTHERS_OF_TEXT = """
    guided_json guided_json_object guided_regex guided_choice guided_grammar guided_decoding_backend
    guided_whitespace_pattern structural_tag logits_processors regex ebnf json_schema
"""
OTHERS = {
    Call.CHAT_COMPLETIONS: _OTHERS_OF_TEXT,
    Call.COMPLETIONS: _OTHERS_OF_TEXT,
    Call.RESPONSES: _OTHERS_OF_TEXT,
    Call.EMBEDDINGS: "normalize additional_data",
}
"""Those of earlier versions of vLLM, and of SGLang."""

_TEXT_DEFAULTS: dict[str, Any] = {
    "n": 1, "stop": [], "stream": False, "use_beam_search": False, "length_penalty": 1.0, "stop_token_ids": [],
    "include_stop_str_in_output": False, "ignore_eos": False, "min_tokens": 0, "skip_special_tokens": True,
    "spaces_between_special_tokens": True, "bad_words": [], "priority": 0, "routed_experts_prompt_start": 0,
    "return_token_offsets": False, "return_mm_kwargs": True, "echo": False, "best_of": 1, "stream_interval": 1,
    "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "frequency_penalty": 0.0,
    "presence_penalty": 0.0, "logit_bias": {}, "thinking_token_budget": -1, "mm_payload": "tensors",
}  # fmt: skip
DEFAULTS: dict[Call, dict[str, Any]] = {
    Call.CHAT_COMPLETIONS: _TEXT_DEFAULTS
    | {
        "logprobs": False, "top_logprobs": 0, "tools": [], "tool_choice": "none", "parallel_tool_calls": True,
        "include_reasoning": True, "add_generation_prompt": True, "continue_final_message": False,
        "add_special_tokens": False, "chat_template_kwargs": {}, "response_format": {"type": "text"},
        "modalities": ["text"], "functions": [], "function_call": "none", "verbosity": "medium", "store": False,
        "metadata": {}, "service_tier": "auto",
    },
    Call.COMPLETIONS: _TEXT_DEFAULTS | {"add_special_tokens": True, "suffix": ""},
    Call.RESPONSES: {
        "background": False, "parallel_tool_calls": True, "service_tier": "auto", "store": True, "stream": False,
        "tools": [], "tool_choice": "auto", "top_logprobs": 0, "truncation": "disabled", "top_k": 0, "include": [],
        "text": {"format": {"type": "text"}, "verbosity": "medium"}, "enable_response_messages": False,
        "skip_special_tokens": True, "include_stop_str_in_output": False, "priority": 0, "stop": [],
        "ignore_eos": False, "temperature": 1.0, "top_p": 1.0, "metadata": {}, "max_tool_calls": None,
    },
    Call.EMBEDDINGS: {
        "encoding_format": "float", "add_special_tokens": True, "priority": 0, "embed_dtype": "float32",
        "endianness": "native", "padding": "do_not_pad", "add_generation_prompt": False,
        "continue_final_message": False,
    },
    Call.TOKENIZE: {
        "add_special_tokens": True, "return_token_strs": False,
    },
}  # fmt: skip
"""What OpenAI and vLLM publish as the defaults, which some clients send."""

VALUES: dict[str, Any] = {
    "temperature": 0.25, "top_p": 0.25, "top_k": 3, "min_p": 0.25, "seed": 7, "frequency_penalty": 0.5,
    "presence_penalty": 0.5, "repetition_penalty": 1.5, "logit_bias": {"5": 1}, "max_tokens": 9, "min_tokens": 2,
    "stop_token_ids": [5], "ignore_eos": True, "skip_special_tokens": False, "spaces_between_special_tokens": False,
    "allowed_token_ids": [5], "bad_words": ["x"], "structured_outputs": {"regex": "a"},
    "guided_json": {"type": "object"}, "guided_json_object": True, "guided_regex": "a", "guided_choice": ["a"],
    "tool_choice": "required", "guided_grammar": 'root ::= "a"', "regex": "a", "ebnf": 'root ::= "a"',
    "json_schema": "{}",
}  # fmt: skip
"""Values that ask for something."""

BODIES: dict[Call, dict[str, Any]] = {
    Call.CHAT_COMPLETIONS: {"messages": [{"role": "user", "content": "options"}]},
    Call.COMPLETIONS: {"prompt": "options"},
    Call.RESPONSES: {"input": "options"},
    Call.EMBEDDINGS: {"input": "x"},
    Call.TOKENIZE: {"prompt": "x"},
}
PATHS = {
    Call.CHAT_COMPLETIONS: "/chat/completions",
    Call.COMPLETIONS: "/completions",
    Call.RESPONSES: "/responses",
    Call.EMBEDDINGS: "/embeddings",
    Call.TOKENIZE: "/tokenize",
}
MODELS = {Call.EMBEDDINGS: "squash", Call.TOKENIZE: "teller"}
"""Models that serve the call and take none of its special fields, if not `chatter`."""


def value_of(name: str, call: Call) -> Any:
    """A value that asks for something."""
    if name == "add_special_tokens":
        return call in {Call.CHAT_COMPLETIONS, Call.RESPONSES}
    return VALUES.get(name, not IDLE.get(name, False))


def of_use(*uses: Use) -> list[Any]:
    return [
        pytest.param(call, name, id=f"{call.name.lower()}-{name}")
        for call, fields in FIELDS.items()
        for name, use in fields.items()
        if use in uses and name != "parallel_tool_calls"  # which says nothing without tools
    ]


def ask(client: OpenAI, call: Call, model: str, **fields: Any) -> Any:
    """The reply."""
    path = PATHS[call]
    if call not in OPENAI:  # it is not below /v1
        path = str(client.base_url.copy_with(path=path))
    return client.post(path, body={"model": model, **BODIES[call], **fields}, cast_to=object)


def said(reply: Any) -> str:
    """The text of the first choice."""
    if "output" in reply:
        text: str = reply["output"][0]["content"][0]["text"]
        return text
    choice = reply["choices"][0]
    return str(choice["text"] if "text" in choice else choice["message"]["content"])


@pytest.mark.parametrize("call", FIELDS)
def test_all_published_fields_are_in_the_table(call: Call) -> None:
    published = {*(get_type_hints(OPENAI[call]) if call in OPENAI else ()), *VLLM[call].split()}
    published |= set(OTHERS.get(call, "").split())
    assert published - FIELDS[call].keys() == set()


def test_the_page_lists_each_field_with_what_becomes_of_it() -> None:
    page = Path("docs/openai.md").read_text("utf-8")
    listed = {
        name for row in re.findall(r"^\| (.*)$", page, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)
    }
    assert {name for fields in FIELDS.values() for name in fields} - listed == set()


@pytest.mark.parametrize(("call", "name"), of_use(Use.SAMPLING, Use.FORM, Use.INPUT, Use.REFUSED))
def test_a_model_that_takes_nothing_gets_nothing(client: OpenAI, call: Call, name: str) -> None:
    model = MODELS.get(call, "chatter")
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, call, model, **{name: value_of(name, call)})
    error: Any = caught.value.body
    assert error["param"] == name
    assert f"'{name}'" in error["message"]
    if name in IDLE:
        ask(client, call, model, **{name: IDLE[name]})
    ask(client, call, model, **{name: None})


@pytest.mark.parametrize(
    ("call", "model"),
    [
        *((call, MODELS.get(call, "chatter")) for call in DEFAULTS),
        (Call.CHAT_COMPLETIONS, "tools"),
        (Call.RESPONSES, "tools"),
    ],
)
def test_every_model_takes_the_published_defaults(client: OpenAI, call: Call, model: str) -> None:
    assert DEFAULTS[call].keys() <= FIELDS[call].keys()
    for name, value in DEFAULTS[call].items():
        ask(client, call, model, **{name: value})
    ask(client, call, model, **DEFAULTS[call])


@pytest.mark.parametrize(("call", "name"), of_use(Use.SAMPLING, Use.FORM))
def test_what_shapes_the_text_reaches_the_model(client: OpenAI, call: Call, name: str) -> None:
    got = json.loads(said(ask(client, call, "writer", **{name: value_of(name, call)})))
    if name in FORMS:
        assert got == {"structured_outputs": {FORMS[name]: VALUES[name]}}
    else:
        assert got == {name: VALUES[name]}


def test_a_limit_of_chats_has_two_names(client: OpenAI) -> None:
    for call in (Call.CHAT_COMPLETIONS, Call.COMPLETIONS):
        assert json.loads(said(ask(client, call, "writer", max_completion_tokens=9))) == {"max_tokens": 9}
    assert json.loads(said(ask(client, Call.RESPONSES, "writer", max_output_tokens=9))) == {"max_tokens": 9}


@pytest.mark.parametrize(("call", "name"), of_use(Use.LABEL))
def test_labels_change_nothing(client: OpenAI, call: Call, name: str) -> None:
    model = "squash" if call is Call.EMBEDDINGS else "writer"
    label: Any = {"key": "x"} if name == "metadata" else "x"
    reply = ask(client, call, model, **{name: False if name == "store" else label})
    assert reply["model"] == model


@pytest.mark.parametrize("call", [Call.CHAT_COMPLETIONS, Call.RESPONSES])
def test_the_chat_template_gets_its_fields(client: OpenAI, call: Call) -> None:
    def prompt(**fields: Any) -> str:
        return said(ask(client, call, "chatter", **fields))

    assert prompt() == "user=options;assistant="
    assert prompt(add_generation_prompt=False) == "user=options;"
    assert prompt(chat_template_kwargs={"tone": "dry"}) == "dry user=options;assistant="
    assert prompt(reasoning_effort="low") == "low user=options;assistant="
    assert prompt(documents=[{"title": "T"}]) == "T user=options;assistant="
    assert prompt(continue_final_message=True) == "user=options"


@pytest.mark.parametrize(
    ("model", "fields", "param"),
    [
        ("writer", {"reasoning_effort": "low"}, "reasoning_effort"),
        ("writer", {"documents": [{"title": "T"}]}, "documents"),
        ("chatter", {"documents": ["T"]}, "documents"),
        ("chatter", {"chat_template_kwargs": []}, None),
        ("chatter", {"chat_template_kwargs": ["x"]}, "chat_template_kwargs"),
        ("chatter", {"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ("chatter", {"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ("tools", {"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs"),
        ("tools", {"continue_final_message": True}, "continue_final_message"),
        ("writer", {"guided_regex": "a", "guided_choice": ["a"]}, "guided_regex"),
        ("writer", {"guided_regex": "a", "response_format": {"type": "json_object"}}, "response_format"),
        ("writer", {"stream": True, "stream_options": {"continuous_usage_stats": True}},
         "stream_options.continuous_usage_stats"),
        ("writer", {"prompt": "x"}, "prompt"),
        ("writer", {"request_id": ""}, "request_id"),
        ("tools", {"logprobs": 3}, "logprobs"),
        ("chatter", {"tools": {}}, "tools"),
        ("chatter", {"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ("writer", {"request_id": "a\n"}, "request_id"),
    ],
)  # fmt: skip
def test_wrong_fields_of_chats_are_refused(
    client: OpenAI, model: str, fields: dict[str, Any], param: str | None
) -> None:
    if param is None:
        ask(client, Call.CHAT_COMPLETIONS, model, **fields)
        return
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, Call.CHAT_COMPLETIONS, model, **fields)
    error: Any = caught.value.body
    assert error["param"] == param


def test_reasoning_of_responses_is_the_effort_of_chats(client: OpenAI) -> None:
    reply = ask(client, Call.RESPONSES, "chatter", reasoning={"effort": "low", "summary": None})
    assert said(reply) == "low user=options;assistant="
    for fields, param in (
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
        ({"reasoning": {"effort": 5}}, "reasoning.effort"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, Call.RESPONSES, "chatter", **fields)
        error: Any = caught.value.body
        assert error["param"] == param


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_word_may_be_part_of_the_text(client: OpenAI, stream: bool) -> None:
    for model, prompt in (("plain", "one two three"), ("writer", "one two three")):
        reply: Any = client.completions.create(
            model=model, prompt=prompt, stop=["wo th", "three"], stream=stream,
            extra_body={"include_stop_str_in_output": True},
        )  # fmt: skip
        chunks = list(reply) if stream else [reply]
        assert "".join(chunk.choices[0].text for chunk in chunks) == "one two th"
        assert chunks[-1].choices[0].finish_reason == "stop"


def test_the_reply_has_the_id_of_the_request(client: OpenAI) -> None:
    ids = {call: ask(client, call, "writer", request_id="mine")["id"] for call in list(BODIES)[:3]}
    assert list(ids.values()) == ["chatcmpl-mine", "cmpl-mine", "resp_mine"]


def test_values_that_ask_for_nothing_are_told_from_their_likes() -> None:
    assert asks_for_nothing(Call.COMPLETIONS, "length_penalty", 1.0)
    assert not asks_for_nothing(Call.COMPLETIONS, "length_penalty", True)
    assert not asks_for_nothing(Call.COMPLETIONS, "echo", 0)
    assert asks_for_nothing(Call.CHAT_COMPLETIONS, "top_k", -1)
    assert not asks_for_nothing(Call.CHAT_COMPLETIONS, "top_k", 1)
    assert not asks_for_nothing(Call.CHAT_COMPLETIONS, "top_logprobs", False)
    assert all(SAMPLING[name](name, VALUES[name]) == VALUES[name] for name in SAMPLING)
