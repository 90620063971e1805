"""OpenVINO's errors as those of this server."""

import re

from halimede.core.errors import HalimedeError, InternalError, OutOfMemoryError
from halimede.core.out_of_memory import is_out_of_memory

_ORIGIN = re.compile(r"^(?:Exception from .*|Check '.*' failed at .*):\s*$", re.MULTILINE)


def openvino_error(error: Exception, names: tuple[str, ...] = ()) -> HalimedeError:
    """The error as clients read it.

    Args:
        error: what OpenVINO raised.
        names: names and paths that its text may have and that say nothing.
    """
    text = f"openvino error: {plain_text(error)}"
    if isinstance(error, MemoryError) or is_out_of_memory(str(error), names):
        return OutOfMemoryError(text)
    return InternalError(text)


def plain_text(error: Exception) -> str:
    """What OpenVINO says, on one line, without the places in its sources that it lists."""
    lines = [line.strip() for line in _ORIGIN.sub("", str(error)).splitlines()]
    return " ".join(filter(None, lines)) or type(error).__name__
