"""What an answer holds: tensors by name, as far as it is one of KServe v2, JSON or JSON before bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from halimede.codec.sagemaker_media_type import BINARY
from halimede.hosting.capture.payloads import UndecodableError, decode_tensors

_HEADER_LENGTH = "inference-header-content-length"


@dataclass(frozen=True, slots=True)
class Answer:
    """What an instance answered with success.

    Attributes:
        headers: lower-case name → value.
        body: all of it.
    """

    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Tensor:
    """An output.

    Attributes:
        datatype: the protocol's name.
        shape: its shape.
        elements: all of them in a row; floats of 16 bits (BF16) as FP32, strings as objects.
    """

    datatype: str
    shape: tuple[int, ...]
    elements: NDArray[Any]


def tensors_of(answer: Answer) -> dict[str, Tensor] | None:
    """The outputs of an answer by name; None if it is no answer of KServe v2 that can be read."""
    content_type = answer.headers.get("content-type", "")
    if (length := answer.headers.get(_HEADER_LENGTH)) is not None:  # as KServe itself says it
        content_type = f"{BINARY}{length}"
    try:
        outputs = decode_tensors(answer.body, content_type)
    except UndecodableError:
        return None
    return {
        name: Tensor(values.datatype, values.array.shape, values.array.reshape(-1))
        for name, values in outputs.items()
    }
