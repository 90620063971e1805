"""Inputs and outputs: names, datatypes, shapes, reshapes."""

from collections.abc import Iterator, Sequence
from math import prod

from halimede.config.model_config_pb2 import ModelConfig, ModelInput, ModelOutput
from halimede.config.validate.problem import Problem
from halimede.core.datatypes import BY_NUMBER

WILDCARD = -1
IMAGE_DIMS = 3


def tensor_problems(config: ModelConfig) -> Iterator[Problem]:
    """Problems of inputs and outputs."""
    for problem in _tensor_problems(config):
        yield problem.naming_model()


def _tensor_problems(config: ModelConfig) -> Iterator[Problem]:
    for index, entry in enumerate(config.input):
        where = f"input[{index}]"
        yield from _tensor(config, entry, where, "model input")
        if entry.format != ModelInput.FORMAT_NONE and len(entry.dims) != IMAGE_DIMS:
            message = "model input NHWC/NCHW require 3 dims"
            yield Problem(config.name, f"{where}.format", message, "format: FORMAT_NONE")
    for index, output in enumerate(config.output):
        yield from _tensor(config, output, f"output[{index}]", "model output")
    yield from _repeated_names(config, [entry.name for entry in config.input], "input")
    yield from _repeated_names(config, [entry.name for entry in config.output], "output")


def _tensor(config: ModelConfig, entry: ModelInput | ModelOutput, where: str, kind: str) -> Iterator[Problem]:
    model = config.name
    start = f"{kind} '{entry.name}'" if entry.name else kind
    if not entry.name:
        tensor = kind.removeprefix("model ").upper()
        yield Problem(model, f"{where}.name", f"{start} must specify 'name'", f'name: "{tensor}0"')
    if entry.data_type not in BY_NUMBER:
        message = f"{start} must specify 'data_type'"
        yield Problem(model, f"{where}.data_type", message, "data_type: TYPE_FP32")
    if not entry.dims:
        yield Problem(model, f"{where}.dims", f"{start} must specify 'dims'", "dims: [ 1 ]")
    if any(dim < 1 and dim != WILDCARD for dim in entry.dims):
        message = f"{start} dimension must be integer >= 1, or -1 to indicate a variable-size dimension"
        yield Problem(model, f"{where}.dims", message, f"dims: {_text(_allowed(entry.dims))}")
    elif entry.HasField("reshape"):
        yield from _reshape(config, entry, where, start)
    if config.backend != "tensorrt" and config.platform != "tensorrt_plan":
        if entry.is_shape_tensor:
            message = "shape tensors are only supported for TensorRT platform"
            yield Problem(model, f"{where}.is_shape_tensor", message, "is_shape_tensor: false")
        if entry.is_non_linear_format_io:
            message = "Non-linear IO format is only supported for the TensorRT platform"
            yield Problem(
                model, f"{where}.is_non_linear_format_io", message, "is_non_linear_format_io: false"
            )


def _reshape(
    config: ModelConfig, entry: ModelInput | ModelOutput, where: str, start: str
) -> Iterator[Problem]:
    model, where = config.name, f"{where}.reshape"
    dims, shape = list(entry.dims), list(entry.reshape.shape)
    same = f"reshape {{ shape: {_text(dims)} }}"
    if not shape and config.max_batch_size == 0:
        message = (
            f"{start} cannot have empty reshape for non-batching model as scalar tensors are not supported"
        )
        yield Problem(model, where, message, same)
    if any(dim < 1 and dim != WILDCARD for dim in shape):
        message = (
            f"{start} reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension"
        )
        yield Problem(model, where, message, f"reshape {{ shape: {_text(_allowed(shape))} }}")
    elif dims and (WILDCARD in dims) != (WILDCARD in shape):
        message = f"{start} has different size for dims and reshape"
        yield Problem(model, where, message, same)
    elif dims.count(WILDCARD) != shape.count(WILDCARD):
        message = f"{start} has different number of variable-size dimensions for dims and reshape"
        yield Problem(model, where, message, same)
    elif _segments(dims) != _segments(shape):
        message = f"{start} has different size for dims and reshape"
        yield Problem(model, where, message, same)


def _segments(shape: Sequence[int]) -> list[int]:
    """Elements of each run of fixed dimensions, where variable ones separate the runs."""
    ends = [index for index, dim in enumerate(shape) if dim == WILDCARD]
    starts = [0, *(end + 1 for end in ends)]
    return [prod(shape[start:end]) for start, end in zip(starts, [*ends, len(shape)], strict=True)]


def _allowed(shape: Sequence[int]) -> list[int]:
    return [dim if dim >= 1 else WILDCARD for dim in shape]


def _text(shape: Sequence[int]) -> str:
    return f"[ {', '.join(map(str, shape))} ]" if shape else "[ ]"


def _repeated_names(config: ModelConfig, names: list[str], kind: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name and name in seen:
            message = f"model {kind} '{name}' is specified more than once"
            yield Problem(config.name, f"{kind}[{index}].name", message, f'name: "{name}_{index}"')
        seen.add(name)
