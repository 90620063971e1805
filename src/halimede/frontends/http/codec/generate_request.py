"""The JSON of `generate`: which of its members are tensors, and of what shape, follows from the model."""

from collections.abc import Sequence
from math import prod
from typing import Any, Final, NamedTuple

from halimede.codec.json_numbers import MIN_BYTES, JsonArray, read_members
from halimede.codec.json_tensors import tensor_from_json
from halimede.codec.json_text import Members, parse_members
from halimede.config.signature import Signature, TensorSpec
from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.core.requests import ParameterValue, already_there, request_prefix
from halimede.core.tensors import Buffer, Tensor
from halimede.frontends.http.codec.request import too_large
from halimede.frontends.http.codec.request_plan import check_integer
from halimede.frontends.request_bounds import check_count

_ID: Final = "id"
_PARAMETERS: Final = "parameters"


class GenerateRequest(NamedTuple):
    """What the JSON says.

    Attributes:
        id: the client's identifier, "" if it gave none.
        inputs: name → tensor, in the order of the JSON.
        parameters: everything else, and the identifier too.
    """

    id: str
    inputs: dict[str, Tensor]
    parameters: dict[str, ParameterValue]


def read_generate_request(body: Buffer, signature: Signature, max_bytes: int) -> GenerateRequest:
    """The request that a body spells for a model.

    Args:
        body: the whole body.
        signature: of the model.
        max_bytes: the largest body, and the largest input, in bytes.

    Raises:
        InvalidArgumentError: what is wrong first, in the order of the JSON.
    """
    if len(body) > max_bytes:
        raise too_large(len(body), max_bytes)
    members = read_members(body) if len(body) >= MIN_BYTES else None
    if members is None:
        members = parse_members(body)
    if not isinstance(members, Members):
        raise InvalidArgumentError("attempt to get members for non-object")
    check_count("members", len(members))
    request = GenerateRequest(_identifier(members), {}, {})
    for name, value in members:
        if name == _PARAMETERS:
            if not isinstance(value, Members):
                msg = "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object"
                raise InvalidArgumentError(msg)
            check_count("parameters", len(value))
            try:
                for nested, nested_value in value:
                    _take(request, nested, nested_value, signature, max_bytes)
            except HalimedeError as error:
                raise type(error)(f"Converting keyword: 'parameters': {error.message}") from None
        else:
            _take(request, name, value, signature, max_bytes)
    return request


def _identifier(members: Members) -> str:
    """The first `id`, which errors about the other members tell."""
    for name, value in members:
        if name == _ID:
            if not isinstance(value, str):
                raise InvalidArgumentError(
                    "Unable to parse 'id': attempt to access JSON non-string as string"
                )
            return value
    return ""


def _take(request: GenerateRequest, name: str, value: Any, signature: Signature, max_bytes: int) -> None:
    """Take a member: as an input if the model has one of its name, else as a parameter."""
    spec = signature.inputs.get(name)
    if spec is None:
        if not isinstance(value, str | int | float):  # a boolean is an int to Python
            msg = f"parameter '{name}' has invalid type. It should be either 'int', 'bool', or 'string'."
            raise InvalidArgumentError(msg)
        check_integer(name, value)
        request.parameters.setdefault(name, value)  # the first counts
        return
    if name in request.inputs:
        raise InvalidArgumentError(request_prefix(request.id) + already_there("input", name))
    elements = value if type(value) in {list, JsonArray} else [value]
    shape = _deduce_shape(spec, signature.full_dims(spec), len(elements))
    request.inputs[name] = tensor_from_json(name, spec.datatype, shape, elements, max_bytes)


def _deduce_shape(spec: TensorSpec, dims: Sequence[int], count: int) -> tuple[int, ...]:
    """`dims` for so many elements: the last -1 takes what the others leave, of which each -1 becomes 1."""
    shape = [1 if dim == -1 else dim for dim in dims]
    if -1 in dims:
        fixed = prod(shape)
        last = len(dims) - 1 - dims[::-1].index(-1)
        shape[last] = count // fixed if fixed else 0
    if prod(shape) != count:
        msg = (
            f"The schema can not convert input '{spec.name}' to tensor with proper shape: {count} elements do not fill "
            f"shape {list(dims)}"
        )
        raise InvalidArgumentError(msg)
    return tuple(shape)
