"""Small ONNX models, built on the spot, and repositories that hold them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Dims = Sequence[int | str | None]
Ports = Mapping[str, tuple[int, Dims | None]]

FLOAT = TensorProto.FLOAT
FLOAT16 = TensorProto.FLOAT16
BFLOAT16 = TensorProto.BFLOAT16
DOUBLE = TensorProto.DOUBLE
BOOL = TensorProto.BOOL
INT8 = TensorProto.INT8
INT32 = TensorProto.INT32
INT64 = TensorProto.INT64
UINT8 = TensorProto.UINT8
STRING = TensorProto.STRING


def write_model(
    repository: Path,
    name: str,
    onnx_model: onnx.ModelProto | None,
    config_text: str = "",
    version: int = 1,
) -> Path:
    """The model's directory, with the model as a version of it and, unless empty, its `config.pbtxt`.

    Without an `onnx_model` the version directory stays empty, as the test backends have it.
    """
    directory = repository / name
    version_directory = directory / str(version)
    version_directory.mkdir(parents=True, exist_ok=True)
    if onnx_model is not None:
        onnx.save(onnx_model, str(version_directory / "model.onnx"))
    if config_text:
        (directory / "config.pbtxt").write_text(config_text)
    return directory


def build(
    nodes: Sequence[onnx.NodeProto],
    inputs: Ports,
    outputs: Ports,
    initializers: Sequence[TensorProto] = (),
) -> onnx.ModelProto:
    """A checked model of `nodes`; `inputs` and `outputs` map each name to its element type and dims.

    A dim is a size, or a name or None for a variable one; dims of None are of unknown rank.
    """
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in outputs.items()],
        list(initializers),
    )
    # versions that the oldest supported onnxruntime reads
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def identity(
    datatype: int = FLOAT, dims: Dims = (16,), *, batching: bool = True, count: int = 1
) -> onnx.ModelProto:
    """INPUT0 … → OUTPUT0 …, unchanged. With `batching` a variable dimension leads `dims`."""
    shape = ["batch", *dims] if batching else list(dims)
    return build(
        [helper.make_node("Identity", [f"INPUT{index}"], [f"OUTPUT{index}"]) for index in range(count)],
        {f"INPUT{index}": (datatype, shape) for index in range(count)},
        {f"OUTPUT{index}": (datatype, shape) for index in range(count)},
    )


def string_identity(dims: Dims = (2,), *, batching: bool = True) -> onnx.ModelProto:
    """INPUT0 → OUTPUT0, strings."""
    return identity(STRING, dims, batching=batching)


def add_sub(datatype: int = FLOAT, dims: Dims = (16,), *, batching: bool = True) -> onnx.ModelProto:
    """OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 − INPUT1."""
    shape = ["batch", *dims] if batching else list(dims)
    return build(
        [
            helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
            helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
        ],
        dict.fromkeys(("INPUT0", "INPUT1"), (datatype, shape)),
        dict.fromkeys(("OUTPUT0", "OUTPUT1"), (datatype, shape)),
    )


def gather_by_index() -> onnx.ModelProto:
    """OUTPUT0 = the element of INPUT0 (FP32[batch, 4]) that INDEX (INT64[batch, 1]) names; a bad one fails."""
    return build(
        [helper.make_node("GatherElements", ["INPUT0", "INDEX"], ["OUTPUT0"], axis=1)],
        {"INPUT0": (FLOAT, ["batch", 4]), "INDEX": (INT64, ["batch", 1])},
        {"OUTPUT0": (FLOAT, ["batch", 1])},
    )


def with_default_input() -> onnx.ModelProto:
    """OUTPUT0 = INPUT0 + BIAS, FP32[2] without batching; BIAS may be left out and is then [10, 20]."""
    return build(
        [helper.make_node("Add", ["INPUT0", "BIAS"], ["OUTPUT0"])],
        {"INPUT0": (FLOAT, [2]), "BIAS": (FLOAT, [2])},
        {"OUTPUT0": (FLOAT, [2])},
        [numpy_helper.from_array(np.array([10, 20], np.float32), "BIAS")],
    )


def sequence_output() -> onnx.ModelProto:
    """A model whose output is a sequence, which is no tensor."""
    graph = helper.make_graph(
        [helper.make_node("SequenceConstruct", ["INPUT0"], ["OUTPUT0"])],
        "test",
        [helper.make_tensor_value_info("INPUT0", FLOAT, [2])],
        [helper.make_tensor_sequence_value_info("OUTPUT0", FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def ragged_sum() -> onnx.ModelProto:
    """OUTPUT (FP32[batch, 1]) sums the piece of RAGGED (FP32[n], flat) of each request.

    OFFSETS (FP32[batch + 1]) holds the accumulated element counts with a leading zero.
    """
    counts = [
        helper.make_node("Cast", ["OFFSETS"], ["offsets"], to=INT64),
        helper.make_node("Constant", [], ["zero"], value_ints=[0]),
        helper.make_node("Constant", [], ["one"], value_ints=[1]),
        helper.make_node("Constant", [], ["end"], value_ints=[2**31]),
        helper.make_node("Constant", [], ["start"], value_floats=[0.0]),
        # sums of all prefixes, of which the offsets then pick one each
        helper.make_node("Constant", [], ["axis"], value_int=0),
        helper.make_node("CumSum", ["RAGGED", "axis"], ["running"]),
        helper.make_node("Concat", ["start", "running"], ["prefixes"], axis=0),
        helper.make_node("Gather", ["prefixes", "offsets"], ["bounds"]),
        helper.make_node("Slice", ["bounds", "one", "end"], ["upper"]),
        helper.make_node("Constant", [], ["last"], value_ints=[-1]),
        helper.make_node("Slice", ["bounds", "zero", "last"], ["lower"]),
        helper.make_node("Sub", ["upper", "lower"], ["sums"]),
        helper.make_node("Unsqueeze", ["sums", "one"], ["OUTPUT"]),
    ]
    return build(
        counts,
        {"RAGGED": (FLOAT, ["n"]), "OFFSETS": (FLOAT, ["m"])},
        {"OUTPUT": (FLOAT, ["batch", 1])},
    )


def resnet(
    blocks: Sequence[int] = (3, 4, 6, 3), width: int = 64, classes: int = 1000, seed: int = 0
) -> onnx.ModelProto:
    """A ResNet of bottleneck blocks with random weights; by default it has the shape of ResNet-50.

    INPUT (FP32[batch, 3, 224, 224]) → OUTPUT (FP32[batch, classes]). The batch normalisations are folded
    into the convolutions, as exporters leave them.
    """
    random = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    weights: list[TensorProto] = []

    def weight(array: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]") -> str:
        name = f"w{len(weights)}"
        weights.append(numpy_helper.from_array(array, name))
        return name

    def node(operator: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        output = output or f"t{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def convolution(value: str, channels: tuple[int, int], kernel: int, stride: int = 1) -> str:
        into, out = channels
        scale = np.float32(np.sqrt(2 / (into * kernel * kernel)))
        kernels = random.standard_normal((out, into, kernel, kernel), np.float32) * scale
        return node(
            "Conv",
            [value, weight(kernels), weight(np.zeros(out, np.float32))],
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
        )

    value = node("Relu", [convolution("INPUT", (3, width), 7, 2)])
    value = node("MaxPool", [value], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = width
    for stage, count in enumerate(blocks):
        inner = width << stage
        for index in range(count):
            stride = 2 if stage and not index else 1
            shortcut = value if index else convolution(value, (channels, 4 * inner), 1, stride)
            value = node("Relu", [convolution(value, (channels, inner), 1)])
            value = node("Relu", [convolution(value, (inner, inner), 3, stride)])
            value = convolution(value, (inner, 4 * inner), 1)
            # a small residual keeps the activations of an untrained network finite
            value = node("Mul", [value, weight(np.full(1, 0.1, np.float32))])
            value = node("Relu", [node("Add", [value, shortcut])])
            channels = 4 * inner
    value = node("Flatten", [node("GlobalAveragePool", [value])])
    dense = random.standard_normal((channels, classes), np.float32) * np.float32(channels**-0.5)
    node("Gemm", [value, weight(dense), weight(np.zeros(classes, np.float32))], "OUTPUT")
    return build(
        nodes,
        {"INPUT": (FLOAT, ["batch", 3, 224, 224])},
        {"OUTPUT": (FLOAT, ["batch", classes])},
        weights,
    )


def segments() -> onnx.ModelProto:
    """SUM (FP32[requests, 1]) sums the pieces of VALUES (FP32[n], flat) that end at ENDS (INT32[requests]).

    TWICE (FP32[n]) is two times VALUES.
    """
    nodes = [
        helper.make_node("Add", ["VALUES", "VALUES"], ["TWICE"]),
        helper.make_node("Constant", [], ["axis"], value_int=0),
        helper.make_node("Constant", [], ["nothing"], value_floats=[0.0]),
        helper.make_node("Constant", [], ["zero"], value_ints=[0]),
        helper.make_node("Constant", [], ["one"], value_ints=[1]),
        helper.make_node("Constant", [], ["last"], value_ints=[-1]),
        helper.make_node("CumSum", ["VALUES", "axis"], ["running"]),
        helper.make_node("Concat", ["nothing", "running"], ["prefixes"], axis=0),
        helper.make_node("Gather", ["prefixes", "ENDS"], ["upper"]),
        helper.make_node("Concat", ["nothing", "upper"], ["bounds"], axis=0),
        helper.make_node("Slice", ["bounds", "zero", "last"], ["lower"]),
        helper.make_node("Sub", ["upper", "lower"], ["sums"]),
        helper.make_node("Unsqueeze", ["sums", "one"], ["SUM"]),
    ]
    return build(
        nodes,
        {"VALUES": (FLOAT, ["n"]), "ENDS": (INT32, ["requests"])},
        {"SUM": (FLOAT, ["requests", 1]), "TWICE": (FLOAT, ["n"])},
    )


def without_zeros() -> onnx.ModelProto:
    """OUTPUT0 (FP32[m]) is INPUT0 (FP32[n]) without its zeros."""
    nodes = [
        helper.make_node("Cast", ["INPUT0"], ["there"], to=onnx.TensorProto.BOOL),
        helper.make_node("Compress", ["INPUT0", "there"], ["OUTPUT0"], axis=0),
    ]
    return build(nodes, {"INPUT0": (FLOAT, ["n"])}, {"OUTPUT0": (FLOAT, ["m"])})


def accumulator(datatype: int = FLOAT, dims: Dims = (2,), *, batching: bool = True) -> onnx.ModelProto:
    """OUTPUT = SUM_OUT = INPUT + SUM_IN, and COUNT_OUT = COUNT_IN + 1 (INT32[1])."""
    lead: list[int | str | None] = ["batch"] if batching else []
    shape, one = [*lead, *dims], [*lead, 1]
    return build(
        [
            helper.make_node("Add", ["INPUT", "SUM_IN"], ["SUM_OUT"]),
            helper.make_node("Identity", ["SUM_OUT"], ["OUTPUT"]),
            helper.make_node("Add", ["COUNT_IN", "one"], ["COUNT_OUT"]),
        ],
        {"INPUT": (datatype, shape), "SUM_IN": (datatype, shape), "COUNT_IN": (INT32, one)},
        {"OUTPUT": (datatype, shape), "SUM_OUT": (datatype, shape), "COUNT_OUT": (INT32, one)},
        [numpy_helper.from_array(np.array([1], np.int32), "one")],
    )


def controls(kinds: Mapping[str, int], *, batching: bool = True) -> onnx.ModelProto:
    """Each of the inputs, of one element a request, as the output ``<name>_SEEN``; VALUE (FP32[1]) as RESULT."""
    shape: Dims = ["batch", 1] if batching else [1]
    nodes = [helper.make_node("Identity", [name], [f"{name}_SEEN"]) for name in kinds]
    return build(
        [helper.make_node("Identity", ["VALUE"], ["RESULT"]), *nodes],
        {"VALUE": (FLOAT, shape), **{name: (kind, shape) for name, kind in kinds.items()}},
        {"RESULT": (FLOAT, shape), **{f"{name}_SEEN": (kind, shape) for name, kind in kinds.items()}},
    )


def growing(*, batching: bool = True) -> onnx.ModelProto:
    """OUTPUT = ALL_OUT = ALL_IN followed by INPUT along the last dimension, which varies; FP32."""
    lead: list[int | str | None] = ["batch"] if batching else []
    axis = len(lead)
    return build(
        [
            helper.make_node("Concat", ["ALL_IN", "INPUT"], ["ALL_OUT"], axis=axis),
            helper.make_node("Identity", ["ALL_OUT"], ["OUTPUT"]),
        ],
        {"INPUT": (FLOAT, [*lead, 1]), "ALL_IN": (FLOAT, [*lead, "n"])},
        {"OUTPUT": (FLOAT, [*lead, None]), "ALL_OUT": (FLOAT, [*lead, None])},
    )


def accumulated_by_index() -> onnx.ModelProto:
    """SUM_OUT = SUM_IN + INPUT0 (FP32[batch, 4]); OUTPUT0 = the element of it that INDEX names; a bad one fails."""
    return build(
        [
            helper.make_node("Add", ["INPUT0", "SUM_IN"], ["SUM_OUT"]),
            helper.make_node("GatherElements", ["SUM_OUT", "INDEX"], ["OUTPUT0"], axis=1),
        ],
        {"INPUT0": (FLOAT, ["batch", 4]), "SUM_IN": (FLOAT, ["batch", 4]), "INDEX": (INT64, ["batch", 1])},
        {"OUTPUT0": (FLOAT, ["batch", 1]), "SUM_OUT": (FLOAT, ["batch", 4])},
    )


def restartable_accumulator() -> onnx.ModelProto:
    """OUTPUT = SUM_OUT = INPUT + (1 − START) · SUM_IN, FP32[batch, 2]."""
    return build(
        [
            helper.make_node("Sub", ["one", "START"], ["keep"]),
            helper.make_node("Mul", ["keep", "SUM_IN"], ["before"]),
            helper.make_node("Add", ["INPUT", "before"], ["SUM_OUT"]),
            helper.make_node("Identity", ["SUM_OUT"], ["OUTPUT"]),
        ],
        {"INPUT": (FLOAT, ["batch", 2]), "START": (FLOAT, ["batch", 1]), "SUM_IN": (FLOAT, ["batch", 2])},
        {"OUTPUT": (FLOAT, ["batch", 2]), "SUM_OUT": (FLOAT, ["batch", 2])},
        [numpy_helper.from_array(np.array([1], np.float32), "one")],
    )


def large_state(elements: int) -> onnx.ModelProto:
    """SUM_OUT (FP32[batch, elements]) = SUM_IN + INPUT (FP32[batch, 1]); OUTPUT is the largest of its elements."""
    return build(
        [
            helper.make_node("Add", ["SUM_IN", "INPUT"], ["SUM_OUT"]),
            helper.make_node("ReduceMax", ["SUM_OUT"], ["OUTPUT"], axes=[1], keepdims=1),
        ],
        {"INPUT": (FLOAT, ["batch", 1]), "SUM_IN": (FLOAT, ["batch", elements])},
        {"OUTPUT": (FLOAT, ["batch", 1]), "SUM_OUT": (FLOAT, ["batch", elements])},
    )
