"""How the tokens of a text are chosen: `sampling_parameters`, named as in vLLM."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from halimede.backends.language.logprobs import MAX_TOP
from halimede.backends.language.structure import FIELDS as STRUCTURE_FIELDS
from halimede.backends.language.structure import Structure, read_structure
from halimede.core.errors import InvalidArgumentError

_INT32: Final = (1 << 31) - 1
_MAX_STOP_WORDS: Final = 64
_MAX_WORD: Final = 512
_MAX_BIASES: Final = 16_384
_MAX_TOKENS: Final = 1 << 18
_MAX_ENDS: Final = 1024
"""Tokens that end a text: each token of it is compared with them."""
_LEAST_TEMPERATURE: Final = 1e-5
"""A lower temperature means 0, as in vLLM: logits that are divided by it would overflow."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the tokens of one text are chosen.

    Attributes:
        temperature: 0 for the most probable token each time; lower values than 0.00001 mean 0.
        top_p: only the most probable tokens that together have this probability.
        top_k: only so many of the most probable tokens; 0 for all.
        min_p: only tokens at least this probable, relative to the most probable one.
        repetition_penalty: above 1, tokens of the prompt and the text become less probable.
        frequency_penalty: what a token's logit loses each time it has come in the text.
        presence_penalty: what a token's logit loses once it has come in the text.
        logit_bias: token → what is added to its logit.
        seed: the same seed gives the same text; None for another each time.
        max_tokens: the most tokens of the text; None for as many as the context holds; 0 if only the prompt is read.
        min_tokens: the text does not end before it has so many.
        stop: texts before which the text ends.
        stop_token_ids: tokens that end the text, beside those of the model.
        include_stop_str_in_output: the text ends after its stop word, not before it.
        ignore_eos: the model's own tokens do not end the text.
        skip_special_tokens: special tokens are not part of the text.
        allowed_token_ids: only these tokens; empty for all.
        bad_words: words that the text does not have.
        logprobs: how many alternatives of each token are told with their log probabilities; None for no log
            probabilities at all.
        prompt_logprobs: the same for the tokens of the prompt.
        structure: the form that the text is to have, None for any.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    structure: Structure | None = None


def _integer(low: int, high: int) -> Callable[[str, Any], int]:
    def read(name: str, value: Any) -> int:
        number = _converted(int, value)
        changed = not isinstance(value, str) and number != value
        if number is None or changed or not low <= number <= high:
            raise _wrong(name, f"a whole number from {low} to {high}", value)
        return int(number)

    return read


def _number(low: float, high: float) -> Callable[[str, Any], float]:
    def read(name: str, value: Any) -> float:
        number = _converted(float, value)
        if number is None or not low <= number <= high:
            raise _wrong(name, f"a number from {low:g} to {high:g}", value)
        return float(number)

    return read


def _converted(kind: type[Any], value: Any) -> Any:
    """A number, which clients of Triton's vLLM backend may send as text; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return kind(value)
    except (ValueError, OverflowError):
        return None


def _temperature(name: str, value: Any) -> float:
    number = _number(0, 100)(name, value)
    return number if number >= _LEAST_TEMPERATURE else 0.0


def _top_k(name: str, value: Any) -> int:
    return max(0, _integer(-1, _INT32)(name, value))  # -1 means all, too


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, "true or false", value)
    return value


def _texts(name: str, value: Any) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else value
    if (
        not isinstance(words, list)
        or len(words) > _MAX_STOP_WORDS
        or not all(isinstance(word, str) and 0 < len(word) <= _MAX_WORD for word in words)
    ):
        wanted = (
            f"a string or a list of at most {_MAX_STOP_WORDS} strings, each of 1 to {_MAX_WORD} characters"
        )
        raise _wrong(name, wanted, value)
    return tuple(words)


def _tokens(most: int) -> Callable[[str, Any], tuple[int, ...]]:
    def read(name: str, value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise _wrong(name, f"a list of at most {most} token ids", value)
        if all(type(each) is int and 0 <= each <= _INT32 for each in value):  # as nearly always
            return tuple(value)
        token_id = _integer(0, _INT32)
        return tuple(token_id(name, each) for each in value)

    return read


def _bias(name: str, value: Any) -> dict[int, float]:
    if not isinstance(value, dict) or len(value) > _MAX_BIASES:
        raise _wrong(name, f"an object of at most {_MAX_BIASES} token ids and numbers", value)
    token_id, bias = _integer(0, _INT32), _number(-100, 100)
    return {token_id(name, token): bias(name, each) for token, each in value.items()}


def _one(name: str, value: Any) -> None:
    if value != 1:
        raise _wrong(name, "1: each request gets one text", value)


def _true(name: str, value: Any) -> None:
    if value is not True:
        raise _wrong(name, "true", value)


_READERS: Final[dict[str, Callable[[str, Any], Any]]] = {
    "temperature": _temperature,
    "top_p": _number(0, 1),
    "top_k": _top_k,
    "min_p": _number(0, 1),
    "repetition_penalty": _number(0.01, 100),
    "frequency_penalty": _number(-2, 2),
    "presence_penalty": _number(-2, 2),
    "logit_bias": _bias,
    "seed": _integer(-(1 << 63), (1 << 63) - 1),
    "max_tokens": _integer(0, _INT32),
    "min_tokens": _integer(0, _INT32),
    "stop": _texts,
    "stop_token_ids": _tokens(_MAX_ENDS),
    "include_stop_str_in_output": _flag,
    "ignore_eos": _flag,
    "skip_special_tokens": _flag,
    "allowed_token_ids": _tokens(_MAX_TOKENS),
    "bad_words": _texts,
    "logprobs": _integer(0, MAX_TOP),
    "prompt_logprobs": _integer(0, MAX_TOP),
}
_FIXED: Final = {"n": _one, "best_of": _one, "spaces_between_special_tokens": _true}
"""Fields that can have one value only."""


def read_sampling(text: str | bytes, defaults: Sampling) -> Sampling:
    """What `sampling_parameters` says, a JSON object; what it does not say is as in `defaults`.

    Raises:
        InvalidArgumentError: it is no object, or a field is unknown or has a value that it cannot have.
    """
    try:
        given = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidArgumentError(f"sampling_parameters is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise InvalidArgumentError("sampling_parameters must be a JSON object")
    for name in given:
        if name not in _READERS and name not in _FIXED and name not in STRUCTURE_FIELDS:
            known = ", ".join(sorted((*_READERS, *STRUCTURE_FIELDS)))
            raise InvalidArgumentError(
                f"sampling_parameters has the unknown field '{name}'; known are {known}"
            )
    return choose_known(given, defaults)


def choose_known(given: Mapping[str, Any], defaults: Sampling) -> Sampling:
    """The same of values that stand among others, which are ignored.

    Raises:
        InvalidArgumentError: a field has a value that it cannot have.
    """
    for name, read in _FIXED.items():
        if given.get(name) is not None:
            read(name, given[name])
    values = {name: read(name, given[name]) for name, read in _READERS.items() if given.get(name) is not None}
    for name in STRUCTURE_FIELDS:
        if given.get(name) is not None:
            values["structure"] = read_structure(name, given[name])
    return replace(defaults, **values)


def _wrong(name: str, wanted: str, value: Any) -> InvalidArgumentError:
    return InvalidArgumentError(f"sampling_parameters: '{name}' must be {wanted}, got {str(value)[:64]!r}")
