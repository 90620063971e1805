"""What an answer holds: tensors by name, as far as it is one of KServe v2, JSON or JSON before bytes."""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from halimede.core.datatypes import BF16, BY_NAME, BYTES, Datatype

_BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
_HEADER_LENGTH = "inference-header-content-length"
_LENGTH = struct.Struct("<I")


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
    body = answer.body
    try:
        json_bytes = _json_bytes(answer)
        document = orjson.loads(memoryview(body)[:json_bytes])
        return dict(_outputs(document, memoryview(body)[json_bytes:]))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, struct.error):
        return None


def _json_bytes(answer: Answer) -> int:
    content_type = answer.headers.get("content-type", "")
    text = answer.headers.get(_HEADER_LENGTH)
    if text is None and content_type.startswith(_BINARY):
        text = content_type[len(_BINARY) :]
    length = len(answer.body) if text is None else int(text)
    if not 0 <= length <= len(answer.body):
        raise ValueError(text)
    return length


def _outputs(document: Any, rest: memoryview) -> Iterator[tuple[str, Tensor]]:
    for output in document["outputs"]:
        datatype = BY_NAME[output["datatype"]]
        shape = tuple(int(size) for size in output["shape"])
        size = output.get("parameters", {}).get("binary_data_size")
        if size is None:
            elements = _from_json(datatype, output["data"])
        elif 0 <= size <= len(rest):
            elements, rest = _from_bytes(datatype, rest[:size]), rest[size:]
        else:
            raise ValueError(size)
        yield str(output["name"]), Tensor(datatype.name, shape, elements)


def _from_json(datatype: Datatype, data: list[Any]) -> NDArray[Any]:
    if datatype is BYTES:
        return np.array([str(each) for each in _flat(data)], np.object_)
    kind = np.dtype(np.float32) if datatype is BF16 else datatype.numpy
    return np.asarray(data, kind).reshape(-1)


def _flat(data: list[Any]) -> Iterator[Any]:
    for each in data:
        if isinstance(each, list):
            yield from _flat(each)
        else:
            yield each


def _from_bytes(datatype: Datatype, data: memoryview) -> NDArray[Any]:
    if datatype is BYTES:
        return np.array(list(_strings(data)), np.object_)
    if datatype is BF16:
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(data, datatype.numpy)


def _strings(data: memoryview) -> Iterator[str]:
    at = 0
    while at < len(data):
        [size] = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + size
        if at > len(data):
            raise ValueError(size)
        yield bytes(data[at - size : at]).decode("utf-8", "surrogateescape")
