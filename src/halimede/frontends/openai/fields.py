"""Fields of a request's JSON: read and checked; those that nobody publishes are noted in the log."""

import logging
from collections.abc import Callable
from typing import Any, Final

from halimede.codec.json_text import parse_document
from halimede.core.tensors import Buffer
from halimede.frontends.http.codec.request import too_large
from halimede.frontends.openai.errors import FieldError

logger = logging.getLogger("halimede")

MAX_CHOICES: Final = 128
"""The largest `n`."""

MAX_PROMPTS: Final = 2048
"""The most texts in one request."""

_MAX_STOP_WORDS: Final = 16
_MAX_WORDS: Final = 64
_MAX_WORD: Final = 512
_MAX_TOKENS: Final = 1 << 20
_MAX_BIASES: Final = 16_384
_MAX_DIGITS: Final = 10
"""Of a token id."""
_MAX_NOTED: Final = 256
"""Names of ignored fields that are remembered, so that each is logged once."""
_SHOWN: Final = 64
_MAX_ID: Final = 256
_STREAM_OPTIONS: Final = frozenset(("include_usage", "include_obfuscation"))


class IgnoredFields:
    """Logs each field that has no effect, once."""

    def __init__(self) -> None:
        self._noted: set[str] = set()

    def note(self, name: str) -> None:
        """A request has this field."""
        if name in self._noted or len(self._noted) >= _MAX_NOTED:
            return
        self._noted.add(name)
        logger.info("OpenAI: the request field %r is not known and is ignored", name[:_SHOWN])


def read_object(body: Buffer, max_bytes: int) -> dict[str, Any]:
    """The JSON object that a body is.

    Raises:
        InvalidArgumentError: it is too large, or something else.
    """
    if len(body) > max_bytes:
        raise too_large(len(body), max_bytes)
    document = parse_document(body)
    if not isinstance(document, dict):
        raise FieldError("", "the request body must be a JSON object")
    return document


def text(document: dict[str, Any], name: str) -> str:
    """A field that must be there and be a string."""
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise FieldError(name, f"'{name}' must be a string that is not empty")
    return checked_text(name, value)


def checked_text(name: str, value: str) -> str:
    """A text that can be encoded.

    Raises:
        FieldError: it has half of a surrogate pair.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise FieldError(name, f"'{name}' has half of a surrogate pair, which is no character") from None
    return value


def flag(document: dict[str, Any], name: str) -> bool:
    """A field that is a boolean, False if it is not there."""
    value = document.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise FieldError(name, f"'{name}' must be a boolean")
    return value


def request_id(document: dict[str, Any]) -> str:
    """What the client calls the request; "" for nothing."""
    value = document.get("request_id")
    if value is None:
        return ""
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_ID or not value.isprintable():
        raise FieldError(
            "request_id", f"'request_id' must be a string of 1 to {_MAX_ID} printable characters"
        )
    return checked_text("request_id", value)


def usage_wanted(document: dict[str, Any]) -> bool:
    """Whether a stream is to end with the usage."""
    options = document.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise FieldError("stream_options", "'stream_options' must be an object")
    for name in options.keys() - _STREAM_OPTIONS:
        if options[name]:
            place = f"stream_options.{name[:_SHOWN]}"
            raise FieldError(place, f"'{place}' is not supported", "unsupported_parameter")
    return flag(options, "include_usage")


def choices(document: dict[str, Any]) -> int:
    """How many choices are wanted for each prompt."""
    value = document.get("n")
    return 1 if value is None else int(_integer("n", value, 1, MAX_CHOICES))


def stop_words(document: dict[str, Any]) -> tuple[str, ...]:
    """The texts before which an output ends."""
    value = document.get("stop")
    if value is None:
        return ()
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or len(words) > _MAX_STOP_WORDS:
        msg = f"'stop' must be a string or a list of at most {_MAX_STOP_WORDS} strings"
        raise FieldError("stop", msg)
    for word in words:
        _word("stop", word)
    return tuple(words)


def _word(name: str, value: Any) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_WORD:
        raise FieldError(name, f"each element of '{name}' must be a string of 1 to {_MAX_WORD} characters")
    checked_text(name, value)


def prompts(document: dict[str, Any], name: str) -> list[str] | list[list[int]]:
    """A field that is one prompt or a list of prompts, which are texts or lists of token ids."""
    value = document.get(name)
    if not isinstance(value, list) or not value or isinstance(value[0], str):
        return texts(document, name)
    lists = [value] if isinstance(value[0], int) else value
    if len(lists) > MAX_PROMPTS:
        raise FieldError(name, f"'{name}' has {len(lists)} elements; at most {MAX_PROMPTS} are allowed")
    for tokens in lists:
        if not isinstance(tokens, list) or not tokens:
            msg = f"'{name}' must be a string, a list of strings, a list of token ids or a list of such lists"
            raise FieldError(name, msg)
        _tokens(name, tokens)
    return lists


def token_ids(document: dict[str, Any], name: str) -> list[int]:
    """A field that must be there and be a list of token ids, which may be empty."""
    ids: list[int] = _tokens(name, document.get(name))
    return ids


def texts(document: dict[str, Any], name: str) -> list[str]:
    """A field that is a string or a list of strings."""
    value = document.get(name)
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not values:
        raise FieldError(name, f"'{name}' must be a string or a list of strings that is not empty")
    if len(values) > MAX_PROMPTS:
        raise FieldError(name, f"'{name}' has {len(values)} elements; at most {MAX_PROMPTS} are allowed")
    for each in values:
        if isinstance(each, int | list):
            raise FieldError(name, f"token ids in '{name}' are not supported; send text")
        if not isinstance(each, str):
            raise FieldError(name, f"'{name}' must be a string or a list of strings")
        checked_text(name, each)
    return values


Check = Callable[[str, Any], Any]


def _integer(name: str, value: Any, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise FieldError(name, f"'{name}' must be an integer from {low} to {high}")
    return value


def _number(name: str, value: Any, low: float, high: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise FieldError(name, f"'{name}' must be a number from {low:g} to {high:g}")
    return value


def _object(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        raise FieldError(name, f"'{name}' must be an object")
    return value


_INT64: Final = 1 << 63
_INT32: Final = (1 << 31) - 1


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise FieldError(name, f"'{name}' must be a boolean")
    return value


def _tokens(name: str, value: Any) -> Any:
    if not isinstance(value, list) or len(value) > _MAX_TOKENS:
        raise FieldError(name, f"'{name}' must be a list of at most {_MAX_TOKENS} token ids")
    for each in value:
        _integer(name, each, 0, _INT32)
    return value


def _words(name: str, value: Any) -> Any:
    if not isinstance(value, list) or len(value) > _MAX_WORDS:
        raise FieldError(name, f"'{name}' must be a list of at most {_MAX_WORDS} strings")
    for each in value:
        _word(name, each)
    return value


def _bias(name: str, value: Any) -> Any:
    if not isinstance(value, dict) or len(value) > _MAX_BIASES:
        msg = f"'{name}' must be an object of at most {_MAX_BIASES} token ids and numbers"
        raise FieldError(name, msg)
    for token, bias in value.items():
        if not (token.isascii() and token.isdigit() and len(token) <= _MAX_DIGITS):
            raise FieldError(name, f"the members of '{name}' must be named by token ids, got {token!r:.64}")
        _number(name, bias, -100, 100)
    return value


SAMPLING: Final[dict[str, Check]] = {
    "temperature": lambda name, value: _number(name, value, 0, 2),
    "top_p": lambda name, value: _number(name, value, 0, 1),
    "frequency_penalty": lambda name, value: _number(name, value, -2, 2),
    "presence_penalty": lambda name, value: _number(name, value, -2, 2),
    "seed": lambda name, value: _integer(name, value, -_INT64, _INT64 - 1),
    "max_tokens": lambda name, value: _integer(name, value, 0, _INT32),
    "logit_bias": _bias,
    "top_k": lambda name, value: _integer(name, value, -1, _INT32),
    "min_p": lambda name, value: _number(name, value, 0, 1),
    "repetition_penalty": lambda name, value: _number(name, value, 0, 10),
    "min_tokens": lambda name, value: _integer(name, value, 0, _INT32),
    "stop_token_ids": _tokens,
    "ignore_eos": _flag,
    "skip_special_tokens": _flag,
    "spaces_between_special_tokens": _flag,
    "allowed_token_ids": _tokens,
    "bad_words": _words,
    "structured_outputs": _object,
}
"""Fields that shape the output → what checks a value."""
