"""Requests of LMI and TGI: prompts in ``inputs``, and how they are continued in ``parameters``."""

from dataclasses import dataclass
from typing import Any, Final

from halimede.frontends.openai import fields
from halimede.frontends.openai.errors import FieldError
from halimede.frontends.openai.fields import IgnoredFields
from halimede.frontends.openai.known_models import KnownModel
from halimede.frontends.openai.profile import SAMPLING_PARAMETERS
from halimede.frontends.openai.published_fields import FIELDS
from halimede.frontends.openai.routes import Call
from halimede.frontends.openai.text_request import TextRequest, read_completion
from halimede.frontends.sagemaker.settings import TextFormat

_SAME: Final = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "seed",
    "min_tokens", "logit_bias",
)  # fmt: skip
"""Parameters that OpenAI's API, or its extensions, call the same."""

_SAMPLING: Final = ("temperature", "top_p", "top_k", "min_p")
"""Parameters that ask for sampling, if `do_sample` does not say whether to."""

_NOT_SERVED: Final = {
    "best_of": 1, "n": 1, "num_beams": 1, "decoder_input_details": False, "watermark": False, "grammar": None,
    "typical_p": 1.0, "top_n_tokens": 0, "truncate": None, "logprobs": None, "prompt_logprobs": None,
    "adapter_id": None, "length_penalty": 1.0, "early_stopping": False,
    "max_completion_tokens": None,
    "stream": False, "stream_options": None, "echo": False, "prompt": None, "model": None, "request_id": None,
}  # fmt: skip
"""Parameters that cannot be served → the value that asks for nothing."""

_OURS: Final = frozenset(
    (
        *_SAME,
        *_NOT_SERVED,
        "max_new_tokens",
        "stop",
        "stop_sequences",
        "do_sample",
        "details",
        "return_full_text",
    )
)
_OF_COMPLETIONS: Final = frozenset(FIELDS[Call.COMPLETIONS]) - _OURS
"""Parameters that requests of OpenAI's API may have, with the same meaning."""

_BODY: Final = frozenset(("inputs", "parameters", "stream", "model"))
_LMI_TOKENS: Final = 30
_TGI_TOKENS: Final = 100


@dataclass(frozen=True, slots=True)
class Prompts:
    """What is asked for.

    Attributes:
        asked: the same as a request for completions.
        prompts: the texts to continue.
        listed: several may have been sent, so that the answer is a list.
        full_text: the answer begins with the prompt.
        details: why each text ended, and its tokens, are told.
        form: how texts are told.
    """

    asked: TextRequest
    prompts: list[str]
    listed: bool
    full_text: bool
    details: bool
    form: TextFormat


def read_prompts(
    document: dict[str, Any], known: KnownModel, ignored: IgnoredFields, form: TextFormat
) -> Prompts:
    """A request.

    Raises:
        HalimedeError: what is wrong with it, or what the model cannot do.
    """
    prompts = fields.texts(document, "inputs")
    parameters = document.get("parameters")
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, dict):
        raise FieldError("parameters", "'parameters' must be an object")
    stream = fields.flag(document, "stream")
    if stream and len(prompts) > 1:
        raise FieldError("inputs", "'inputs' must be one text where 'stream' is true")
    for name in (*(document.keys() - _BODY), *(parameters.keys() - _OURS - _OF_COMPLETIONS)):
        ignored.note(name)
    for name, idle in _NOT_SERVED.items():
        if parameters.get(name) not in (None, idle):
            raise FieldError(name, f"'{name}' in 'parameters' is not supported")
    completion = {
        "prompt": prompts,
        "stream": stream,
        **{name: parameters[name] for name in _OF_COMPLETIONS & parameters.keys()},
        **_sampling(parameters, known),
    }
    if stream:
        completion["stream_options"] = {
            "include_usage": True
        }  # the last event tells how many tokens there were
    maximum = parameters.get("max_new_tokens")
    if maximum is not None:
        completion["max_tokens"] = _count("max_new_tokens", maximum)
    elif (
        parameters.get("max_tokens") is None and not known.profile.max_tokens and _takes(known, "max_tokens")
    ):
        completion["max_tokens"] = _TGI_TOKENS if form.tgi else _LMI_TOKENS
    stop = parameters.get("stop") if parameters.get("stop") is not None else parameters.get("stop_sequences")
    if stop is not None:
        completion["stop"] = stop
    details = fields.flag(parameters, "details")
    return Prompts(
        read_completion(completion, known, ignored, details=details),
        prompts,
        form.tgi or not isinstance(document["inputs"], str),
        fields.flag(parameters, "return_full_text"),
        details,
        form,
    )


def _sampling(parameters: dict[str, Any], known: KnownModel) -> dict[str, Any]:
    """The parameters that OpenAI's API knows; without sampling, the most probable tokens."""
    given = {name: parameters[name] for name in _SAME if parameters.get(name) is not None}
    sample = parameters.get("do_sample")
    if sample is None:
        sample = any(name in given for name in _SAMPLING)
    elif not isinstance(sample, bool):
        raise FieldError("do_sample", "'do_sample' must be a boolean")
    if not sample:
        given = {name: value for name, value in given.items() if name not in _SAMPLING}
        if _takes(known, "temperature"):
            given["temperature"] = 0
    return given


def _takes(known: KnownModel, field: str) -> bool:
    return SAMPLING_PARAMETERS in known.profile.inputs or field in known.profile.inputs


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31:
        raise FieldError(name, f"'{name}' must be an integer above 0")
    return value
