"""The error text for JSON larger than `--http-max-input-size` allows, with the sentences of Triton's."""

from typing import Final

_INFERENCES: Final = ("/infer", "/invocations", "/invoke", "/predict")
_HINT: Final = "Use --http-max-input-size to increase the limit."


def inference_too_large(size: int, allowed: int, what: str = "Request JSON") -> str:
    """The text for an inference request."""
    return f"{what} size of {size} bytes exceeds the maximum allowed value of {allowed} bytes. {_HINT}"


def call_too_large(size: int, allowed: int) -> str:
    """The text for any other call."""
    return f"request JSON size of {size} bytes exceeds the maximum allowed input size. It is {allowed} bytes. {_HINT}"


def too_large_for(path: str, size: int, allowed: int) -> str:
    """The text for the call at this path."""
    return (inference_too_large if path.endswith(_INFERENCES) else call_too_large)(size, allowed)
