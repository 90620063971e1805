"""What clients are told of vLLM's errors."""

from importlib import import_module
from typing import Any

from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError, UnavailableError


def _classes(*names: str) -> tuple[type[Exception], ...]:
    """Classes of vLLM's exceptions; those that its version does not have are left out."""
    try:
        module: Any = import_module("vllm.exceptions")
    except ImportError:
        return ()
    return tuple(found for name in names if (found := getattr(module, name, None)) is not None)


CLIENT_ERRORS: tuple[type[Exception], ...] = (ValueError, *_classes("VLLMClientError", "VLLMValidationError"))
"""What vLLM raises for what a client did wrong: a ValueError in earlier versions, a class of its own in later ones."""

_BUSY = _classes("GracefulHTTPError", "RetryableRequestError")


def as_error(error: Exception) -> HalimedeError:
    """What clients are told of an error of vLLM's."""
    if isinstance(error, HalimedeError):
        return error
    if isinstance(error, CLIENT_ERRORS):
        return InvalidArgumentError(client_message(error))
    if isinstance(error, _BUSY):
        return UnavailableError(str(error))
    return InternalError(f"vLLM failed: {type(error).__name__}: {error}")


def client_message(error: Exception) -> str:
    """What a client did wrong, with the name of the parameter, if vLLM tells it apart."""
    parameter = getattr(error, "parameter", None)
    return f"'{parameter}': {error.args[0]}" if isinstance(parameter, str) and error.args else str(error)
