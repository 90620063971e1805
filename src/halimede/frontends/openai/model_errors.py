"""Errors of models, told of the field of the request that they are about, and with OpenAI's code, where it has one."""

import re
from collections.abc import Mapping
from typing import Final

from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.frontends.openai.errors import FieldError

CODE: Final = "context_length_exceeded"
_OPENAI: Final = "maximum context length"
_LIMIT: Final = re.compile(
    r"(?:maximum context length|maximum model length|max_model_len|model's context)\D{0,32}(\d+)",
    re.IGNORECASE,
)
"""What vLLM and the backends for language models say of prompts that are too long, and what the context holds."""

_QUOTED: Final = re.compile(r"'([a-z_]+)((?:[.\[][^']*)?)'")
"""A field that a message names."""


def client_error(error: HalimedeError, source: str, sent: Mapping[str, str]) -> HalimedeError:
    """The error that the client gets when a model fails with `error`.

    Args:
        error: the model's.
        source: the field of the request that has the prompt.
        sent: what the model may call a field → what the request calls it.
    """
    match = _LIMIT.search(error.message)
    if match is not None:
        message = error.message
        if _OPENAI not in message:
            message = f"This model's maximum context length is {match[1]} tokens: {message}"
        return FieldError(source, message, CODE)
    if not isinstance(error, InvalidArgumentError):
        return error
    for named in _QUOTED.finditer(error.message):
        name = sent.get(named[1])
        if name is not None:
            place = name + named[2] if name == named[1] else name  # another field has other members
            return FieldError(place, error.message.replace(named[0], f"'{place}'"))
    return error
