"""A response as `generate` tells it: one JSON object with each output, and each parameter, under its name."""

import json
from collections.abc import Generator, Iterator
from math import isfinite, prod
from typing import Any, Final

import orjson

from halimede.codec.json_pieces import is_large, json_pieces
from halimede.codec.json_tensors import json_from_tensor
from halimede.core.datatypes import BF16, BYTES, FP16
from halimede.core.requests import InferResponse
from halimede.core.tensors import Buffer, Tensor
from halimede.engine.served_model import ServedModel
from halimede.frontends.http.codec.response import MAX_JSON_BYTES

_NOT_SCALAR: Final = frozenset((BYTES, FP16, BF16))
_FRAME: Final = frozenset(("id", "model_name", "model_version"))

Steps = Generator[None, None, list[Buffer]]
"""What makes the parts of an object in steps of about a millisecond."""


class ReplyEncoder:
    """Encodes the responses to one request.

    Args:
        model: the model.
        identifier: the request's, "" for none.
        before: what stands before each object.
        after: what stands after it.
        max_json: bytes that the elements of large outputs may have together.
    """

    __slots__ = ("_after", "_end", "_max_json", "_start")

    def __init__(
        self,
        model: ServedModel,
        identifier: str,
        before: bytes = b"",
        after: bytes = b"",
        max_json: int = MAX_JSON_BYTES,
    ) -> None:
        self._max_json = max_json
        frame = {"id": identifier} if identifier else {}
        frame |= {"model_name": model.name, "model_version": str(model.version)}
        self._start = before + orjson.dumps(frame)[:-1]
        self._end = b"}" + after
        self._after = after

    def encode(self, response: InferResponse) -> bytes | Steps:
        """The object of a response without error, between what stands before and after; if large, what makes it.

        Raises:
            InvalidArgumentError: an output has no JSON form. Steps raise it, too, and if the JSON is too large.
        """
        if any(map(is_large, response.outputs.values())):
            return self._steps(response)
        members = {name: _value(name, tensor) for name, tensor in response.outputs.items()}
        if response.parameters:
            for name, value in response.parameters.items():
                if name not in _FRAME:
                    members.setdefault(name, value)
        if not members:
            return self._start + self._end
        rest = orjson.dumps(members, option=orjson.OPT_SERIALIZE_NUMPY)
        return b"%b,%b%b" % (self._start, rest[1:], self._after)

    def _steps(self, response: InferResponse) -> Steps:
        parts: list[Buffer] = [self._start]
        left = self._max_json
        for name, tensor in response.outputs.items():
            parts.append(b",%b:" % orjson.dumps(name))
            if not is_large(tensor):
                parts.append(orjson.dumps(_value(name, tensor), option=orjson.OPT_SERIALIZE_NUMPY))
                continue
            pieces = json_pieces(name, tensor, left)
            for piece in _unbracketed(pieces) if prod(tensor.shape) == 1 else pieces:
                parts.append(piece)
                left -= len(piece)
                yield
        for name, value in (response.parameters or {}).items():
            if name not in _FRAME and name not in response.outputs:
                parts.append(b",%b:%b" % (orjson.dumps(name), orjson.dumps(value)))
        parts.append(self._end)
        return parts


def _unbracketed(pieces: Iterator[Buffer]) -> Iterator[Buffer]:
    """The only element of an array."""
    next(pieces)
    before = next(pieces)
    for piece in pieces:
        yield before
        before = piece


def _value(name: str, tensor: Tensor) -> Any:
    """An output: its only element, or a flat array of all of them."""
    single = prod(tensor.shape) == 1
    if single and tensor.datatype not in _NOT_SCALAR:
        value = tensor.array.item()
        if isinstance(value, float) and not isfinite(value):
            return orjson.Fragment(json.dumps(value))
        return value
    values = json_from_tensor(name, tensor)
    return values[0] if single else values
