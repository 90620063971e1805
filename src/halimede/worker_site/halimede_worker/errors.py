"""What models say went wrong, and what is said of what went wrong in models.

* `TritonError`: the error inside a response. Not an exception.
* `TritonModelException`: raised by everything here that refuses an argument's value, and by models.
* `describe`: an exception as the text that the caller of the model reads.
* `PlainError`: an error whose text that caller reads as it is.
"""

import importlib
import os
from pathlib import Path
from types import FrameType
from typing import Dict, List

from .arguments import Signature
from .enumeration import NamedInt

_HERE = Path(__file__).parent
_OURS = tuple(
    [str(directory) + os.sep for directory in (_HERE, _HERE.parent.parent / "workers" / "in_server")]
)
"""Where the code lies that runs models, in worker processes and in the server's."""

_IMPORT_SYSTEM = ("<frozen importlib", str(Path(importlib.__file__).parent) + os.sep)


class TritonModelException(Exception):  # noqa: N818 - models know it by this name
    """A model, or a call that it made of the server, failed."""

    __module__ = "c_python_backend_utils"


class PlainError(Exception):
    """An error whose text is the whole message: neither its type nor where it was raised is told.

    Attributes:
        number: of the error's kind: an `ErrorCode`, or another that the server knows.
    """

    def __init__(self, text: str, number: int = 1) -> None:
        super().__init__(text)
        self.number = number


class ErrorCode(NamedInt):
    """What kind of error a `TritonError` is."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


ErrorCode.__name__ = "__ErrorCode"  # as it prints in the original

_NEW = Signature.constructor("TritonError(message: str, code: ErrorCode = TritonError.INTERNAL)")


class TritonError:
    """Why a request failed: the error of an `InferenceResponse`.

    Args:
        message: for whoever sent the request.
        code: one of this class's attributes.

    Raises:
        TypeError: the message is no text, or the code is none of the codes.
    """

    __module__ = "c_python_backend_utils"

    __slots__ = ("_code", "_message")

    UNKNOWN = ErrorCode.UNKNOWN
    INTERNAL = ErrorCode.INTERNAL
    NOT_FOUND = ErrorCode.NOT_FOUND
    INVALID_ARG = ErrorCode.INVALID_ARG
    UNAVAILABLE = ErrorCode.UNAVAILABLE
    UNSUPPORTED = ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = ErrorCode.ALREADY_EXISTS
    CANCELLED = ErrorCode.CANCELLED

    def __init__(self, message: "str | bytes", code: ErrorCode = ErrorCode.INTERNAL) -> None:
        self._message = _NEW.text("message", message)
        self._code = _NEW.instance("code", code, ErrorCode)

    def message(self) -> str:
        """What went wrong."""
        return self._message

    def code(self) -> ErrorCode:
        """What kind of error it is."""
        return self._code


def describe(exception: BaseException) -> str:
    r"""The exception as `Type: message`, then where: a blank line, `At:`, and `  path(line): function` a frame.

    The innermost frame comes first. Frames of this package are left out; without any other there is no `At:`. Of
    chained exceptions only the outer one is told.
    """
    failure = ""
    try:
        message = str(exception).encode("utf-8", "backslashreplace").decode()
    except BaseException as error:  # a model's own class may do anything
        message = "<MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>"
        failure = f"\nMESSAGE UNAVAILABLE DUE TO EXCEPTION: {type(error).__name__}"
    text = "{}: {}".format(type(exception).__name__, message or "<EMPTY MESSAGE>")
    places = _places(exception)
    if places:
        text += "\n\nAt:\n{}\n".format("\n".join(places))
    return text + failure


def _places(exception: BaseException) -> List[str]:
    """Where the exception went by, innermost first."""
    lines: Dict[FrameType, int] = {}
    entry = exception.__traceback__
    while entry is not None:
        lines[entry.tb_frame] = entry.tb_lineno
        entry = entry.tb_next
    frames = [frame for frame in _with_callers(list(lines)) if not frame.f_code.co_filename.startswith(_OURS)]
    if all(frame.f_code.co_filename.startswith(_IMPORT_SYSTEM) for frame in frames):
        return []  # a syntax error: the module never ran
    return [
        f"  {frame.f_code.co_filename}({lines.get(frame, frame.f_lineno)}): {frame.f_code.co_name}"
        for frame in frames
    ]


def _with_callers(frames: List[FrameType]) -> List[FrameType]:
    """The traceback's frames turned round, with those of the import system that Python leaves out of it."""
    if not frames:
        return []
    walked = [frames[-1]]
    while walked[-1] is not frames[0]:
        caller = walked[-1].f_back
        if caller is None:  # a coroutine that has ended no longer knows who awaited it
            return frames[::-1]
        walked.append(caller)
    return walked
