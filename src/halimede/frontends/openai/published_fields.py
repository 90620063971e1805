"""Every field that OpenAI or vLLM publishes for a request, and what becomes of it: none is dropped without a word."""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Final

from halimede.frontends.openai.errors import FieldError
from halimede.frontends.openai.fields import IgnoredFields
from halimede.frontends.openai.routes import Call


class Use(Enum):
    """What becomes of a field."""

    SERVED = "served"
    """The front end acts on it, for all models."""
    SAMPLING = "sampling"
    """For models with an input of its name, or with the input `sampling_parameters`."""
    INPUT = "input"
    """For models with an input of its name."""
    FORM = "form"
    """Another name of a member of `structured_outputs`."""
    TEMPLATE = "template"
    """For models with a chat template, or with an input of its name."""
    LABEL = "label"
    """Accepted: it says who asks or how to serve faster, and cannot change the answer."""
    REFUSED = "refused"
    """Refused, but for values that ask for nothing."""


_NOT_SERVED: Final = {
    Use.INPUT: "the model has no input for '{}'",
    Use.TEMPLATE: "'{}' is of chat templates, but this model takes the messages themselves",
    Use.REFUSED: "'{}' is not supported",
}

PASSED_ON: Final = (
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "logprobs",
    "top_logprobs",
)
"""Fields that are passed on as JSON to models that have an input for them, and that are read before."""

IDLE: Final[Mapping[str, Any]] = {
    "temperature": 1,
    "top_p": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "logit_bias": {},
    "repetition_penalty": 1,
    "min_p": 0,
    "min_tokens": 0,
    "length_penalty": 1,
    "priority": 0,
    "stream_interval": 1,
    "routed_experts_prompt_start": 0,
    "use_beam_search": False,
    "watermarking": False,
    "echo": False,
    "background": False,
    "ignore_eos": False,
    "include_stop_str_in_output": False,
    "return_tokens_as_token_ids": False,
    "return_token_ids": False,
    "return_token_offsets": False,
    "return_prompt_text": False,
    "return_weight_versions": False,
    "enable_response_messages": False,
    "moderation": False,
    "guided_json_object": False,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "include_reasoning": True,
    "continue_final_message": False,
    "stop_token_ids": [],
    "bad_words": [],
    "documents": [],
    "chat_template_kwargs": {},
    "top_logprobs": 0,
    "top_k": 0,
    "best_of": 1,
    "thinking_token_budget": -1,
    "functions": [],
    "function_call": "none",
    "suffix": "",
    "verbosity": "medium",
    "mm_payload": "tensors",
    "padding": "do_not_pad",
    "embed_dtype": "float32",
    "endianness": "little",
    "guided_decoding_backend": "auto",
}
"""Values that ask for nothing, besides null, so that any model may get them. The defaults of all fields do."""

_IDLE_TOO: Final[Mapping[str, Any]] = {"top_k": -1, "endianness": "native"}
"""Further ones."""

FORMS: Final[Mapping[str, str]] = {
    "guided_json": "json",
    "guided_json_object": "json_object",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "regex": "regex",
    "ebnf": "grammar",
    "json_schema": "json",
}
"""What vLLM called the forms of texts before, and what SGLang calls them → the member of `structured_outputs`."""

_OF_TEXT: Final[Mapping[Use, str]] = {
    Use.SERVED: "model stream stream_options stop include_stop_str_in_output request_id",
    Use.SAMPLING: (
        "temperature top_p top_k min_p seed frequency_penalty presence_penalty repetition_penalty logit_bias "
        "max_tokens min_tokens stop_token_ids ignore_eos skip_special_tokens spaces_between_special_tokens "
        "allowed_token_ids bad_words structured_outputs"
    ),
    Use.FORM: " ".join(FORMS),
    Use.INPUT: "add_special_tokens return_tokens_as_token_ids truncate_prompt_tokens truncation_side prompt_logprobs",
    Use.LABEL: "user session_id cache_salt return_mm_kwargs",
    Use.REFUSED: (
        "use_beam_search length_penalty watermarking logprob_token_ids thinking_token_budget "
        "repetition_detection priority stream_interval return_token_ids return_token_offsets return_weight_versions "
        "routed_experts_prompt_start mm_processor_kwargs media_io_kwargs mm_payload lora_path "
        "kv_transfer_params ec_transfer_params vllm_xargs guided_decoding_backend guided_whitespace_pattern "
        "custom_logit_processor structural_tag logits_processors"
    ),
}
"""Fields of all calls that generate text."""

_OF_CHATS: Final[Mapping[Use, str]] = {
    Use.TEMPLATE: (
        "add_generation_prompt continue_final_message chat_template_kwargs documents reasoning_effort"
    ),
    Use.LABEL: (
        "metadata store service_tier safety_identifier prompt_cache_key prompt_cache_options prompt_cache_retention"
    ),
    Use.REFUSED: "chat_template include_reasoning moderation verbosity return_prompt_text",
}

_TABLES: Final[Mapping[Call, tuple[Mapping[Use, str], ...]]] = {
    Call.CHAT_COMPLETIONS: (
        _OF_TEXT,
        _OF_CHATS,
        {
            Use.SERVED: "messages n max_completion_tokens modalities",
            Use.INPUT: (
                "tools tool_choice parallel_tool_calls response_format logprobs top_logprobs"
            ),
            Use.LABEL: "prediction",
            Use.REFUSED: "audio functions function_call web_search_options echo best_of",
        },
    ),
    Call.COMPLETIONS: (
        _OF_TEXT,
        {
            Use.SERVED: "prompt n echo best_of max_completion_tokens",
            Use.INPUT: "response_format logprobs",
            Use.REFUSED: "suffix prompt_embeds",
        },
    ),
    Call.RESPONSES: (
        _OF_TEXT,
        _OF_CHATS,
        {
            Use.SERVED: (
                "input instructions max_output_tokens text include top_logprobs tools tool_choice parallel_tool_calls "
                "truncation reasoning previous_response_id conversation prompt background"
            ),
            Use.LABEL: "max_tool_calls",
            Use.REFUSED: (
                "access_programs background_options context_management image previous_input_messages "
                "enable_response_messages max_tokens max_completion_tokens n prompt_logprobs"
            ),
        },
    ),
    Call.EMBEDDINGS: (
        {
            Use.SERVED: "model input encoding_format dimensions",
            Use.LABEL: "user request_id cache_salt",
            Use.REFUSED: (
                "truncate_prompt_tokens truncation_side padding priority mm_processor_kwargs media_io_kwargs "
                "add_special_tokens embed_dtype endianness use_activation messages add_generation_prompt "
                "continue_final_message chat_template chat_template_kwargs normalize additional_data"
            ),
        },
    ),
    Call.TOKENIZE: (
        {
            Use.SERVED: (
                "model prompt messages add_special_tokens return_token_strs add_generation_prompt "
                "continue_final_message chat_template_kwargs tools"
            ),
            Use.REFUSED: "chat_template media_io_kwargs mm_processor_kwargs",
        },
    ),
    Call.DETOKENIZE: ({Use.SERVED: "model tokens"},),
}  # fmt: skip


def _fields_of(tables: tuple[Mapping[Use, str], ...]) -> dict[str, Use]:
    """Field → use; what a later table says counts."""
    return {name: use for table in tables for use, names in table.items() for name in names.split()}


FIELDS: Final[Mapping[Call, Mapping[str, Use]]] = {
    call: _fields_of(tables) for call, tables in _TABLES.items()
}
"""Of each call: field → what becomes of it."""


def _of_uses(*wanted: Use) -> frozenset[str]:
    return frozenset(name for uses in FIELDS.values() for name, use in uses.items() if use in wanted)


INPUTS: Final = _of_uses(Use.SAMPLING, Use.INPUT)
"""Fields that an input of the same name is for."""

NAMED_INPUTS: Final = INPUTS | _of_uses(Use.TEMPLATE, Use.REFUSED)
"""Fields that a model may have an input for, if a parameter of its configuration says so."""


def asks_for_nothing(call: Call, name: str, value: Any) -> bool:
    """Whether a field has a value that any model may get."""
    if value is None:
        return True
    if name == "add_special_tokens":
        return value is (call in {Call.COMPLETIONS, Call.EMBEDDINGS})  # templates have them
    if name == "add_generation_prompt":
        return value is (call is not Call.EMBEDDINGS)
    return any(
        name in idle and bool(value == idle[name]) and isinstance(value, bool) == isinstance(idle[name], bool)
        for idle in (IDLE, _IDLE_TOO)
    )


def check_fields(
    document: Mapping[str, Any], call: Call, inputs: Collection[str], ignored: IgnoredFields
) -> dict[str, Any]:
    """Hold the fields of a request against the table.

    Args:
        document: the request.
        call: which call it is.
        inputs: the fields for which the model has inputs.
        ignored: hears of fields that nobody publishes.

    Returns:
        The fields that the model gets as they are; those of `PASSED_ON`, and those that shape the output, are not
        among them.

    Raises:
        FieldError: a field asks for something that is not served.
    """
    passed = {}
    uses = FIELDS[call]
    for name, value in document.items():
        use = uses.get(name)
        if use is None and not any(name in other for other in FIELDS.values()):
            ignored.note(name)
        elif asks_for_nothing(call, name, value):
            continue
        elif use is None:
            msg = f"'{name}' is not a field of this call"
            raise FieldError(name, msg, "unsupported_parameter")
        elif _is_passed_on(name, use, inputs):
            if name not in inputs:
                raise FieldError(name, _NOT_SERVED[use].format(name), "unsupported_parameter")
            passed[name] = value
    return passed


def _is_passed_on(name: str, use: Use, inputs: Collection[str]) -> bool:
    """Whether a model with an input for it gets the field as it is, and no other model can serve it."""
    if use is Use.INPUT:
        return name not in PASSED_ON
    return use is Use.REFUSED or (use is Use.TEMPLATE and "messages" in inputs)
