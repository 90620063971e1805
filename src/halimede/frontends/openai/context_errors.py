"""Prompts that are longer than the model's context: models say so in their own words, clients look for OpenAI's."""

import re
from typing import Final

from halimede.core.errors import HalimedeError
from halimede.frontends.openai.errors import FieldError

CODE: Final = "context_length_exceeded"
_OPENAI: Final = "maximum context length"
_LIMIT: Final = re.compile(
    r"(?:maximum context length|maximum model length|max_model_len|model's context)\D{0,32}(\d+)",
    re.IGNORECASE,
)
"""What vLLM and the backends for language models say, and how many tokens the context holds."""


def client_error(error: HalimedeError, field: str) -> HalimedeError:
    """The error that the client gets when a model fails with `error`.

    Args:
        error: the model's.
        field: the field of the request that has the prompt.
    """
    match = _LIMIT.search(error.message)
    if match is None:
        return error
    message = error.message
    if _OPENAI not in message:
        message = f"This model's maximum context length is {match[1]} tokens: {message}"
    return FieldError(field, message, CODE)
