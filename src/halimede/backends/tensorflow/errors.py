"""TensorFlow's errors as those of this server."""

import re

from halimede.core.errors import HalimedeError, InternalError, OutOfMemoryError
from halimede.core.out_of_memory import is_out_of_memory

_DETAIL = re.compile(r"\n\nOriginal stack trace for .*|\nHint: If you want to see a list.*", re.DOTALL)
_EXHAUSTED = 8  # tensorflow.errors.RESOURCE_EXHAUSTED


def tensorflow_error(error: Exception, names: tuple[str, ...] = ()) -> HalimedeError:
    """The error as clients read it.

    Args:
        error: what TensorFlow raised.
        names: names and paths that its text may have and that say nothing.
    """
    text = f"tensorflow error: {plain_text(error)}"
    exhausted = getattr(error, "error_code", None) == _EXHAUSTED
    if exhausted or isinstance(error, MemoryError) or is_out_of_memory(str(error), names):
        return OutOfMemoryError(text)
    return InternalError(text)


def plain_text(error: Exception) -> str:
    """What TensorFlow says, on one line, without the Python code that once built the graph."""
    text = str(getattr(error, "message", None) or error)
    lines = [line.strip() for line in _DETAIL.sub("", text).splitlines()]
    return " ".join(filter(None, lines)) or type(error).__name__
