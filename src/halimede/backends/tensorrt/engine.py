"""What a TensorRT engine says of itself: its tensors, and the shapes that each optimisation profile takes.

Read once from an `ICudaEngine`; what is decided from it needs neither TensorRT nor a GPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halimede.core.datatypes import BF16, BOOL, FP16, FP32, INT8, INT32, INT64, UINT8, Datatype

Shape = tuple[int, ...]

_DATATYPES = {
    "FLOAT": FP32,
    "HALF": FP16,
    "BF16": BF16,
    "INT8": INT8,
    "INT32": INT32,
    "INT64": INT64,
    "BOOL": BOOL,
    "UINT8": UINT8,
}


@dataclass(frozen=True, slots=True)
class EngineTensor:
    """One input or output of an engine.

    Attributes:
        name: its name.
        datatype: what an element is; None if no datatype of the protocol has such elements.
        shape: the whole shape, -1 for a variable size.
        on_host: its memory must be the host's, not the GPU's.
        is_shape: (inputs) its values decide shapes, so they must be known before the engine runs.
        refusal: why it cannot be served; "" if it can.
    """

    name: str
    datatype: Datatype | None
    shape: Shape
    on_host: bool = False
    is_shape: bool = False
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least, best and largest sizes of a tensor's dimensions, or values of a shape tensor."""

    least: Shape
    best: Shape
    largest: Shape

    def hold(self, sizes: Shape) -> bool:
        """Whether the sizes are within."""
        return len(sizes) == len(self.least) and all(
            low <= size <= high for low, size, high in zip(self.least, sizes, self.largest, strict=True)
        )

    def distance(self, sizes: Shape) -> int:
        """How far the sizes are from the best ones."""
        return sum(abs(size - best) for size, best in zip(sizes, self.best, strict=True))


@dataclass(frozen=True, slots=True)
class Profile:
    """One optimisation profile.

    Attributes:
        index: its number in the engine.
        shapes: input → sizes of its dimensions.
        values: shape tensor → its values.
    """

    index: int
    shapes: Mapping[str, Bounds]
    values: Mapping[str, Bounds]


@dataclass(frozen=True, slots=True)
class EngineDescription:
    """An engine's tensors and profiles."""

    inputs: Sequence[EngineTensor]
    outputs: Sequence[EngineTensor]
    profiles: Sequence[Profile]


def describe(engine: Any) -> EngineDescription:
    """What a `tensorrt.ICudaEngine` says of itself."""
    inputs: list[EngineTensor] = []
    outputs: list[EngineTensor] = []
    for number in range(engine.num_io_tensors):
        name = engine.get_tensor_name(number)
        is_input = engine.get_tensor_mode(name).name == "INPUT"
        (inputs if is_input else outputs).append(_tensor(engine, name, is_input=is_input))
    profiles = [_profile(engine, index, inputs) for index in range(engine.num_optimization_profiles)]
    return EngineDescription(inputs, outputs, profiles)


def _tensor(engine: Any, name: str, *, is_input: bool) -> EngineTensor:
    element = engine.get_tensor_dtype(name).name
    datatype = _DATATYPES.get(element)
    side = "input" if is_input else "output"
    refusal = ""
    if datatype is None:
        refusal = f"unsupported datatype '{element}' for {side} '{name}'"
    elif engine.get_tensor_format(name).name != "LINEAR":
        refusal = (
            f"{side} '{name}' has the format {engine.get_tensor_format(name).name}; build the engine with linear "
            f"inputs and outputs, as trtexec does unless --inputIOFormats or --outputIOFormats say otherwise"
        )
    return EngineTensor(
        name,
        datatype,
        tuple(engine.get_tensor_shape(name)),
        on_host=engine.get_tensor_location(name).name == "HOST",
        is_shape=is_input and bool(engine.is_shape_inference_io(name)),
        refusal=refusal,
    )


def _profile(engine: Any, index: int, inputs: Sequence[EngineTensor]) -> Profile:
    shapes: dict[str, Bounds] = {}
    values: dict[str, Bounds] = {}
    for tensor in inputs:
        shapes[tensor.name] = _bounds(engine.get_tensor_profile_shape(tensor.name, index))
        if tensor.is_shape:
            # in this order, whatever its documentation says
            found = engine.get_tensor_profile_values(index, tensor.name)
            if found:
                values[tensor.name] = _bounds(found)
    return Profile(index, shapes, values)


def _bounds(triple: Sequence[Sequence[int]]) -> Bounds:
    least, best, largest = (tuple(sizes) for sizes in triple)
    return Bounds(least, best, largest)
