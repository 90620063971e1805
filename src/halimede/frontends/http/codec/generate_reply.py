"""A response as `generate` tells it: one JSON object with each output, and each parameter, under its name."""

import json
from math import isfinite, prod
from typing import Any, Final

import orjson

from halimede.core.datatypes import BF16, BYTES, FP16
from halimede.core.requests import InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.served_model import ServedModel
from halimede.frontends.http.codec.json_tensors import json_from_tensor

_NOT_SCALAR: Final = frozenset((BYTES, FP16, BF16))
_FRAME: Final = frozenset(("id", "model_name", "model_version"))


class ReplyEncoder:
    """Encodes the responses to one request.

    Args:
        model: the model.
        identifier: the request's, "" for none.
        before: what stands before each object.
        after: what stands after it.
    """

    __slots__ = ("_after", "_end", "_start")

    def __init__(self, model: ServedModel, identifier: str, before: bytes = b"", after: bytes = b"") -> None:
        frame = {"id": identifier} if identifier else {}
        frame |= {"model_name": model.name, "model_version": str(model.version)}
        self._start = before + orjson.dumps(frame)[:-1]
        self._end = b"}" + after
        self._after = after

    def encode(self, response: InferResponse) -> bytes:
        """The object of a response without error, between what stands before and after.

        Raises:
            InvalidArgumentError: an output has no JSON form.
        """
        members = {name: _value(name, tensor) for name, tensor in response.outputs.items()}
        if response.parameters:
            for name, value in response.parameters.items():
                if name not in _FRAME:
                    members.setdefault(name, value)
        if not members:
            return self._start + self._end
        rest = orjson.dumps(members, option=orjson.OPT_SERIALIZE_NUMPY)
        return b"%b,%b%b" % (self._start, rest[1:], self._after)


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
