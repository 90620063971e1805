"""DALI's errors as those of this server."""

import re

from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError, OutOfMemoryError
from halimede.core.out_of_memory import is_out_of_memory

_OPERATOR = re.compile(r"Error in \w+ operator `([^`]+)`")
_DECODER = re.compile(r"nvImageCodec failure: '#(\d+)'|(Failed to decode sample)")
_DAMAGED = "it is damaged or cut short"
_UNKNOWN = "it is no image, or of a format that is not supported"
_UNREADABLE = {  # nvimgcodecStatus_t in nvImageCodec's header
    "2": "it is empty",
    "3": _DAMAGED,
    "4": _UNKNOWN,
    "13": _DAMAGED,
    "14": _UNKNOWN,
    "19": _DAMAGED,
}
_NOISE = ("Critical error in pipeline:", "Current pipeline object is no longer valid.")


def dali_error(error: Exception, names: tuple[str, ...] = ()) -> HalimedeError:
    """The error as clients read it.

    Args:
        error: what DALI raised.
        names: names and paths that its text may have and that say nothing.
    """
    text = str(error)
    operator = _OPERATOR.search(text)
    where = f" in {operator[1]}" if operator else ""
    # between the two is the place in the pipeline's source
    reason = text.rpartition("encountered:")[2] if operator else text
    for noise in _NOISE:
        reason = reason.replace(noise, "")
    reason = " ".join(reason.split()) or type(error).__name__
    message = f"dali error{where}: {reason}"
    if isinstance(error, MemoryError) or is_out_of_memory(reason, names):
        return OutOfMemoryError(message)
    decoder = _DECODER.search(reason)
    unreadable = decoder and (_DAMAGED if decoder[2] else _UNREADABLE.get(decoder[1]))
    if unreadable:
        return InvalidArgumentError(f"dali error{where}: cannot decode the image: {unreadable}")
    return InternalError(message)
