"""An ONNX model's own description of its tensors."""

from collections.abc import Iterable
from typing import Any

from halimede.backends.ports import Port, Ports
from halimede.core import datatypes

_DATATYPES = {
    "tensor(bool)": datatypes.BOOL,
    "tensor(uint8)": datatypes.UINT8,
    "tensor(uint16)": datatypes.UINT16,
    "tensor(uint32)": datatypes.UINT32,
    "tensor(uint64)": datatypes.UINT64,
    "tensor(int8)": datatypes.INT8,
    "tensor(int16)": datatypes.INT16,
    "tensor(int32)": datatypes.INT32,
    "tensor(int64)": datatypes.INT64,
    "tensor(float16)": datatypes.FP16,
    "tensor(bfloat16)": datatypes.BF16,
    "tensor(float)": datatypes.FP32,
    "tensor(double)": datatypes.FP64,
    "tensor(string)": datatypes.BYTES,
}
_CONTAINERS = {
    "seq": "ONNX_TYPE_SEQUENCE",
    "map": "ONNX_TYPE_MAP",
    "optional": "ONNX_TYPE_OPTIONAL",
    "sparse_tensor": "ONNX_TYPE_SPARSETENSOR",
}


def session_ports(session: Any) -> Ports:
    """What a loaded `onnxruntime.InferenceSession` takes and gives; its overridable initializers are defaults."""
    return Ports(
        _ports(session.get_inputs()),
        _ports(session.get_overridable_initializers()),
        _ports(session.get_outputs()),
    )


def _ports(arguments: Iterable[Any]) -> dict[str, Port]:
    return {argument.name: _port(argument) for argument in arguments}


def _port(argument: Any) -> Port:
    # a variable dimension is its name, or None
    shape = tuple(dim if isinstance(dim, int) and dim >= 0 else -1 for dim in argument.shape)
    datatype = _DATATYPES.get(argument.type)
    if datatype is not None:
        return Port(argument.name, datatype, shape)
    container = _CONTAINERS.get(argument.type.partition("(")[0])
    if container is None:
        return Port(
            argument.name, None, shape, f"unsupported datatype '{argument.type}' for I/O '{argument.name}'"
        )
    refusal = f"Unsupported ONNX Type '{container}' for I/O '{argument.name}', expected 'ONNX_TYPE_TENSOR'."
    if argument.type.startswith("seq(map("):
        refusal += (
            " It is the ZipMap that skl2onnx puts behind a classifier's probabilities; convert the model without it: "
            'skl2onnx.to_onnx(model, X[:1], options={"zipmap": False})'
        )
    return Port(argument.name, None, shape, refusal)
