"""Errors of PyTorch, which have no common base, as clients read them."""

from halimede.core.errors import InternalError, OutOfMemoryError
from halimede.core.out_of_memory import is_out_of_memory

_TORCHSCRIPT = "The following operation failed in the TorchScript interpreter."


def pytorch_error(what: str, error: Exception) -> InternalError | OutOfMemoryError:
    """The error as clients read it.

    Args:
        what: what failed.
        error: why. Of a TorchScript traceback, only the last line says it.
    """
    text = str(error).strip() or type(error).__name__
    if text.startswith(_TORCHSCRIPT):
        text = text.splitlines()[-1].removeprefix("RuntimeError: ")
    elif not isinstance(error, RuntimeError):
        text = f"{type(error).__name__}: {text}"
    kind = OutOfMemoryError if is_out_of_memory(f"{type(error).__name__}: {text}") else InternalError
    return kind(f"{what}: {text}")
