"""ONNX Runtime: an `InferenceSession`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks.frameworks.framework import MLP_FEATURES, Call, Size
from benchmarks.frameworks.inputs import numbers
from benchmarks.frameworks.mlp import layers
from benchmarks.models import checked


def build(_kind: str, size: Size, directory: Path) -> None:
    onnx.save(network(size), directory / "model.onnx")


def network(size: Size) -> onnx.ModelProto:
    """The network of `mlp` as ONNX."""
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    data, every = "INPUT__0", layers(size)
    for number, (matrix, bias) in enumerate(every):
        names = [f"matrix{number}", f"bias{number}"]
        weights += [numpy_helper.from_array(matrix, names[0]), numpy_helper.from_array(bias, names[1])]
        last = number == len(every) - 1
        output = "OUTPUT__0" if last else f"sums{number}"
        nodes.append(helper.make_node("Gemm", [data, *names], [output]))
        if not last:
            data = f"values{number}"
            nodes.append(helper.make_node("Relu", [output], [data]))
    port = helper.make_tensor_value_info
    inputs = [port("INPUT__0", TensorProto.FLOAT, ["rows", MLP_FEATURES])]
    outputs = [port("OUTPUT__0", TensorProto.FLOAT, ["rows", 10])]
    return checked(helper.make_graph(nodes, "mlp", inputs, outputs, weights))


def load(_kind: str, _size: Size, directory: Path, threads: int) -> Callable[[int], Call]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        str(directory / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )
    return lambda rows: partial(session.run, None, {"INPUT__0": numbers(rows, MLP_FEATURES)})
