"""Is this request one that the model can serve? Checked once, before any scheduler sees it.

The order of the checks and their texts are those of Triton. A request that passes has its `batch_size` set and
its inputs under the shapes that the backend sees.
"""

import struct
from math import prod

from halimede.config.signature import Signature, TensorSpec, match_wildcards
from halimede.core.datatypes import BYTES
from halimede.core.element_counts import element_count
from halimede.core.errors import InvalidArgumentError
from halimede.core.hints import names_hint
from halimede.core.requests import InferRequest
from halimede.core.string_layout import layout_of
from halimede.core.tensors import Tensor

_LENGTH = struct.Struct("<I")


def validate(request: InferRequest, signature: Signature) -> None:
    """Hold the request against what the model takes and gives.

    Raises:
        InvalidArgumentError: the text says what is wrong.
    """
    # The loop is on the path of every request: it only looks whether all is as it should be.
    model = request.model_name
    for name in request.outputs:
        if name not in signature.outputs:
            hint = names_hint(name, signature.outputs, "outputs")
            raise InvalidArgumentError(f"unexpected inference output '{name}' for model '{model}'{hint}")
    specs, inputs = signature.inputs, request.inputs
    if len(inputs) != len(specs):
        _check_count(request, signature)
    batched = signature.max_batch_size > 0
    batch_size = -1
    request.byte_size = 0
    for name, tensor in inputs.items():
        spec = specs.get(name)
        if spec is None:
            hint = names_hint(name, specs, "inputs")
            raise InvalidArgumentError(f"unexpected inference input '{name}' for model '{model}'{hint}")
        shape = tensor.shape
        rows = 1
        if batched:
            if not shape:
                _check_batch(request, signature)
            rows = shape[0]
            if batch_size < 0:
                batch_size = rows
            elif batch_size != rows:
                _check_batch(request, signature)
            shape = shape[1:]
        byte_size = tensor.byte_size
        request.byte_size += byte_size
        if (
            spec.row_bytes == 0
            or shape != spec.dims
            or byte_size != rows * spec.row_bytes
            or tensor.datatype is not spec.datatype
        ):
            inputs[name] = _checked(request, signature, spec, tensor)
    if batched:
        if 0 < batch_size <= signature.max_batch_size:
            request.batch_size = batch_size
        else:
            request.batch_size = _checked_batch_size(request, signature, batch_size)
    if len(inputs) < len(specs):
        _check_required(request, signature)


def _check_batch(request: InferRequest, signature: Signature) -> None:
    """Are the batch dimensions of all inputs right? Asked before an error is told that would hide that they are not.

    Of several inputs that do not fit together tritonserver mostly names one of the first, as this does.
    """
    if signature.max_batch_size == 0:
        return
    model = request.model_name
    batch_size = -1
    for name, tensor in reversed(request.inputs.items()):
        if not tensor.shape:
            msg = f"input '{name}' has no shape but model requires batch dimension for '{model}'"
            raise _invalid(request, msg)
        if batch_size not in (-1, tensor.shape[0]):
            msg = f"input '{name}' batch size does not match other inputs for '{model}'"
            raise _invalid(request, msg)
        batch_size = tensor.shape[0]
    if batch_size > signature.max_batch_size:
        msg = f"inference request batch-size must be <= {signature.max_batch_size} for '{model}'"
        raise _invalid(request, msg)


def _checked_batch_size(request: InferRequest, signature: Signature, batch_size: int) -> int:
    """The batch size of a request without rows, or without inputs (-1), if it may have none."""
    _check_batch(request, signature)
    if batch_size < 0:
        return 1
    model = request.model_name
    for name, tensor in reversed(request.inputs.items()):  # each has to hold one row at least
        elements = prod(tensor.shape[1:])
        if tensor.datatype is BYTES and elements:
            raise _invalid(request, _too_few_strings(name, model, elements, 0))
        if elements:
            raise _invalid(request, _size_mismatch(name, model, elements * tensor.datatype.itemsize, 0))
    return 0


def _checked(request: InferRequest, signature: Signature, spec: TensorSpec, tensor: Tensor) -> Tensor:
    """The tensor under the backend's shape, once datatype, shape and size are right."""
    model, name = request.model_name, spec.name
    if tensor.datatype is not spec.datatype:
        _check_batch(request, signature)
        msg = (
            f"inference input '{name}' data-type is '{tensor.datatype}', "
            f"but model '{model}' expects '{spec.datatype}'"
        )
        raise _invalid(request, msg)
    expected = signature.full_dims(spec)
    shape = tensor.shape
    fits = len(shape) == len(expected) and all(
        dim in (-1, size) for dim, size in zip(expected, shape, strict=True)
    )
    if not fits:
        _check_batch(request, signature)
        msg = (
            f"unexpected shape for input '{name}' for model '{model}'. "
            f"Expected {_dims(expected)}, got {_dims(shape)}. "
        )
        if signature.max_batch_size > 0:
            msg += (
                "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be "
                "prepended to each input shape. If you want to specify the full shape including the batch dim in your "
                "input dims config, try setting max_batch_size to zero. See the model configuration docs for more info "
                "on max_batch_size."
            )
        raise _invalid(request, msg)
    if min(shape, default=1) < 0:
        msg = f"All input dimensions should be specified for input '{name}' for model '{model}', got {_dims(shape)}"
        raise _invalid(request, msg)
    _check_bytes(request, spec, tensor)
    if not spec.reshaped:
        return tensor
    lead = 1 if signature.max_batch_size > 0 else 0
    tail = match_wildcards(shape[lead:], spec.dims, spec.backend_dims)
    return tensor.reshaped(shape[:lead] + tail)


def _check_bytes(request: InferRequest, spec: TensorSpec, tensor: Tensor) -> None:
    """Are there as many bytes as the shape takes?"""
    elements = element_count(spec.name, tensor.shape, spec.datatype)
    if spec.datatype is BYTES:
        _check_strings(request, spec, tensor, elements)
        return
    expected = elements * spec.datatype.itemsize
    if tensor.byte_size != expected:
        raise _invalid(request, _size_mismatch(spec.name, request.model_name, expected, tensor.byte_size))


def _holds_strings(data: memoryview, elements: int) -> bool:
    """Whether the length prefixes add up; what is wrong if not, a second look may tell."""
    if layout_of(data, elements) is not None:
        return True
    length_at, position = _LENGTH.unpack_from, 0
    try:
        for _ in range(elements):
            position += length_at(data, position)[0] + 4
    except struct.error:
        return False
    return position == len(data)


def _check_strings(request: InferRequest, spec: TensorSpec, tensor: Tensor, elements: int) -> None:
    """Do the length prefixes add up to as many strings as the shape takes?"""
    data = memoryview(tensor.data)
    if _holds_strings(data, elements):
        return
    name, model = spec.name, request.model_name
    position, end, count = 0, len(data), 0
    while position < end:
        if end - position < 4:
            msg = (
                f"incomplete string length indicator for inference input '{name}' for model '{model}', "
                f"expecting 4 bytes but only {end - position} bytes available. "
                f"Please make sure the string length indicator is in one buffer."
            )
            raise _invalid(request, msg)
        if count == elements:
            msg = (
                f"unexpected number of string elements {count + 1} for inference input '{name}' for model "
                f"'{model}', expecting {elements}"
            )
            raise _invalid(request, msg)
        length = int.from_bytes(data[position : position + 4], "little")
        position += 4
        if end - position < length:
            msg = (
                f"incomplete string data for inference input '{name}', expecting string of length {length} "
                f"but only {end - position} bytes available"
            )
            raise InvalidArgumentError(msg)
        position += length
        count += 1
    if count != elements:
        raise _invalid(request, _too_few_strings(name, model, elements, count))


def _too_few_strings(name: str, model: str, expected: int, got: int) -> str:
    return f"expected {expected} string elements for inference input '{name}' for model '{model}', got {got}"


def _size_mismatch(name: str, model: str, expected: int, got: int) -> str:
    return f"input byte size mismatch for input '{name}' for model '{model}'. Expected {expected}, got {got}"


def _check_count(request: InferRequest, signature: Signature) -> None:
    """Is the number of inputs one that the model takes?"""
    specs, given = signature.inputs, request.inputs
    required = [name for name, spec in specs.items() if not spec.optional]
    if len(required) <= len(given) <= len(specs) and len(required) < len(specs):
        return
    if len(required) == len(specs):
        expected = f"expected {len(specs)} inputs"
    else:
        expected = f"expected number of inputs between {len(required)} and {len(specs)}"
    missing = [name for name in required if name not in given]
    msg = f"{expected} but got {len(given)} inputs for model '{request.model_name}'. {_missing(request, missing)}"
    raise _invalid(request, msg)


def _check_required(request: InferRequest, signature: Signature) -> None:
    """Are all inputs there that are not optional?"""
    required = [name for name, spec in signature.inputs.items() if not spec.optional]
    missing = [name for name in required if name not in request.inputs]
    if missing:
        msg = (
            f"expected number of inputs between {len(required)} and {len(signature.inputs)} but got "
            f"{len(request.inputs)} inputs for model '{request.model_name}'. {_missing(request, missing)}"
        )
        raise _invalid(request, msg)


def _missing(request: InferRequest, missing: list[str]) -> str:
    return (
        f"Got input(s) {_names(list(request.inputs))}, but missing required input(s) {_names(missing)}. "
        f"Please provide all required input(s)."
    )


def _names(names: list[str]) -> str:
    return "[" + ",".join(f"'{name}'" for name in names) + "]"


def _dims(dims: "list[int] | tuple[int, ...]") -> str:
    return "[" + ",".join(str(dim) for dim in dims) + "]"


def _invalid(request: InferRequest, text: str) -> InvalidArgumentError:
    return InvalidArgumentError(request.prefix + text)
