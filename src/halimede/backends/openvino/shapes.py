"""The tensors of a model as OpenVINO has read it, described for the configuration, and its inputs' shapes changed."""

from typing import Any

import openvino

from halimede.backends.openvino.errors import plain_text
from halimede.backends.openvino.settings import OpenVinoSettings
from halimede.backends.ports import Port, Ports
from halimede.config.model_config_pb2 import ModelConfig, ModelInput
from halimede.core import datatypes
from halimede.core.errors import InvalidArgumentError, UnsupportedError

_DATATYPES = {
    "boolean": datatypes.BOOL,
    "u8": datatypes.UINT8,
    "u16": datatypes.UINT16,
    "u32": datatypes.UINT32,
    "u64": datatypes.UINT64,
    "i8": datatypes.INT8,
    "i16": datatypes.INT16,
    "i32": datatypes.INT32,
    "i64": datatypes.INT64,
    "f16": datatypes.FP16,
    "bf16": datatypes.BF16,
    "f32": datatypes.FP32,
    "f64": datatypes.FP64,
}


def ports_of(model: Any, fixed_batch: int = 0) -> Ports:
    """What a model takes and gives.

    Args:
        model: an `openvino.Model`.
        fixed_batch: rows that the model is made for; a first dimension of that size counts as free. 0 for none.

    Raises:
        InvalidArgumentError: an input or output has any number of dimensions, or no name.
        UnsupportedError: one holds strings.
    """
    inputs = {port.name: port for port in (_port(each, "input", fixed_batch) for each in model.inputs)}
    outputs = {port.name: port for port in (_port(each, "output", fixed_batch) for each in model.outputs)}
    return Ports(inputs, {}, outputs)


def name_of(port: Any) -> str:
    """The name of an input or output; where it has several, the first in alphabetical order; "" for none."""
    return min(port.names, default="")


def batches_by_layout(model: Any) -> bool:
    """Whether the model says of every input and output, as its layout, that the first dimension is the batch."""
    layouts = [openvino.layout_helpers.get_layout(port) for port in [*model.inputs, *model.outputs]]
    return all(
        openvino.layout_helpers.has_batch(layout) and openvino.layout_helpers.batch_idx(layout) == 0
        for layout in layouts
    )


def reshape(model: Any, config: ModelConfig, settings: OpenVinoSettings, lead: int) -> None:
    """Give the model's inputs the batch size, and the shapes if the settings say so, in place.

    Args:
        model: an `openvino.Model`.
        config: the configuration, which need not be complete.
        settings: of the model.
        lead: the first dimension of a model that batches, -1 for any; 0 for a model that does not batch.

    Raises:
        InvalidArgumentError: the model cannot take those shapes.
    """
    listed = {entry.name: entry for entry in config.input} if settings.reshape else {}
    shapes: dict[str, list[int]] = {}
    for port in model.inputs:
        name = name_of(port)
        shape = None if port.partial_shape.rank.is_dynamic else _sizes(port.partial_shape)
        wanted = _wanted(shape, listed.get(name), lead)
        if wanted is not None and wanted != shape:
            shapes[name] = wanted
    if not shapes:
        return
    try:
        model.reshape(shapes)
    except Exception as error:  # OpenVINO's errors have no common base
        asked = "; ".join(f"'{name}' to {shape}" for name, shape in shapes.items())
        msg = (
            f"model '{config.name}' does not let its inputs be reshaped ({asked}): {plain_text(error)}. Say "
            f"shapes that it takes, with max_batch_size: 0 if its batch size cannot change"
        )
        raise InvalidArgumentError(msg) from error


def fixed_rows(model: Any) -> int:
    """The rows of the only batch that a model is made for: the first dimension of all its inputs. 0 if there is none.

    Args:
        model: an `openvino.Model`.
    """
    shapes = [port.partial_shape for port in model.inputs]
    if any(shape.rank.is_dynamic or len(shape) == 0 for shape in shapes):
        return 0
    rows = {_sizes(shape)[0] for shape in shapes}
    return max(rows.pop(), 0) if len(rows) == 1 else 0


def outputs_follow(model: Any) -> bool:
    """Whether the first dimension of every output is as free as that of the inputs."""
    shapes = [port.partial_shape for port in model.outputs]
    return all(shape.rank.is_dynamic or (len(shape) > 0 and shape[0].is_dynamic) for shape in shapes)


def _wanted(shape: list[int] | None, entry: ModelInput | None, lead: int) -> list[int] | None:
    """The shape that an input is to have; None for any number of dimensions."""
    if entry is not None and entry.allow_ragged_batch:
        return [-1]
    if entry is not None:
        dims = list(entry.reshape.shape if entry.HasField("reshape") else entry.dims)
        return [lead, *dims] if lead else dims
    return [lead, *shape[1:]] if lead and shape else shape


def _port(port: Any, side: str, fixed_batch: int) -> Port:
    name = name_of(port)
    if not name:
        msg = f"the model has an {side} without a name, which requests could not name either"
        raise InvalidArgumentError(msg)
    if port.partial_shape.rank.is_dynamic:
        msg = (
            f"the model's {side} '{name}' may have any number of dimensions; save the model with a shape for "
            f"its inputs, or list them and set the parameter 'RESHAPE_IO_LAYERS' to YES"
        )
        raise InvalidArgumentError(msg)
    shape = _sizes(port.partial_shape)
    if fixed_batch and shape[:1] == [fixed_batch]:
        shape[0] = -1
    element = port.element_type.get_type_name()
    if element == "string":
        msg = (
            f"the model's {side} '{name}' holds strings, which end the process in OpenVINO's Python interface; "
            f"run the model with the backend onnxruntime, or give it numbers"
        )
        raise UnsupportedError(msg)
    datatype = _DATATYPES.get(element)
    refusal = "" if datatype else f"unsupported datatype '{element}' for I/O '{name}'"
    return Port(name, datatype, tuple(shape), refusal)


def _sizes(shape: Any) -> list[int]:
    """The sizes of an `openvino.PartialShape`, -1 for one that varies."""
    return [dim.get_length() if dim.is_static else -1 for dim in shape]
