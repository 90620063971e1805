"""The models that are measured, written as repositories under build/bench."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks.tools import ROOT

REPOSITORIES = ROOT / "build" / "bench"
RESNET_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))  # blocks, channels inside a block
RESNET_EXPANSION = 4
DENSE_ROWS, DENSE_COLUMNS, DENSE_UNITS = 2500, 1000, 256


def repository(name: str, config: str, model: onnx.ModelProto | None = None) -> Path:
    """A repository of one model, made anew."""
    directory = REPOSITORIES / name
    shutil.rmtree(directory, ignore_errors=True)
    (directory / name / "1").mkdir(parents=True)
    (directory / name / "config.pbtxt").write_text(config)
    if model is not None:
        onnx.save(model, directory / name / "1" / "model.onnx")
    return directory


def onnx_identity() -> Path:
    """`onnx_identity`: FP32 [16] through ONNX Runtime."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])],
        "identity",
        [helper.make_tensor_value_info("INPUT0", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info("OUTPUT0", TensorProto.FLOAT, ["batch", 16])],
    )
    config = """backend: "onnxruntime"
max_batch_size: 32
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] }
dynamic_batching { }
"""
    return repository("onnx_identity", config, checked(graph))


def large_identity() -> Path:
    """`large_identity`: FP32 of any length through the identity backend."""
    config = """backend: "identity"
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
"""
    return repository("large_identity", config)


def dense(isolation: str = "thread") -> Path:
    """`dense_…`: FP32 [2500, 1000], 10 MB, times a matrix, through ONNX Runtime, isolated in that way."""
    weights = np.random.default_rng(0).random((DENSE_COLUMNS, DENSE_UNITS), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["INPUT0", "weights"], ["OUTPUT0"])],
        "dense",
        [helper.make_tensor_value_info("INPUT0", TensorProto.FLOAT, [DENSE_ROWS, DENSE_COLUMNS])],
        [helper.make_tensor_value_info("OUTPUT0", TensorProto.FLOAT, [DENSE_ROWS, DENSE_UNITS])],
        [numpy_helper.from_array(weights, "weights")],
    )
    config = f"""backend: "onnxruntime"
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ {DENSE_ROWS}, {DENSE_COLUMNS} ] }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ {DENSE_ROWS}, {DENSE_UNITS} ] }}
instance_group {{ count: 1 kind: KIND_CPU }}
parameters {{ key: "isolation" value {{ string_value: "{isolation}" }} }}
"""
    return repository(f"dense_{isolation}", config, checked(graph))


def cached_identity() -> Path:
    """`cached_identity`: FP32 of any length through the identity backend, with the response cache."""
    config = """backend: "identity"
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }
response_cache { enable: true }
"""
    return repository("cached_identity", config)


def resnet50(parameters: Mapping[str, str] | None = None) -> Path:
    """`resnet50`: the layers of ResNet-50, batch norms folded in, with random weights.

    Args:
        parameters: further ones of its configuration.
    """
    config = """backend: "onnxruntime"
max_batch_size: 8
input { name: "image" data_type: TYPE_FP32 dims: [ 3, 224, 224 ] }
output { name: "scores" data_type: TYPE_FP32 dims: [ 1000 ] }
instance_group { count: 1 kind: KIND_CPU }
dynamic_batching { }
"""
    for key, value in (parameters or {}).items():
        config += f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
    return repository("resnet50", config, resnet50_model())


def images(count: int) -> NDArray[np.float32]:
    """Input of the network: [count, 3, 224, 224] from 0 to 1. Others, such as denormals, take another time."""
    return np.random.default_rng(0).random((count, 3, 224, 224), np.float32)


def image_data() -> Path:
    """A directory with the file `image`: one image as raw bytes."""
    directory = REPOSITORIES / "resnet50-data"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "image").write_bytes(images(1).tobytes())
    return directory


class Layers:
    """A graph in the making: each call adds a layer and gives the name of its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def add(self, operator: str, inputs: list[str], **attributes: Any) -> str:
        """A layer without weights."""
        output = f"{operator}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def weight(self, *shape: int) -> str:
        """Random weights that keep the size of what flows through."""
        scale = (2 / int(np.prod(shape[1:]))) ** 0.5 if len(shape) > 1 else 0.01
        values: NDArray[np.float32] = self.random.standard_normal(shape, np.float32) * np.float32(scale)
        name = f"weight{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def convolution(self, data: str, wide: tuple[int, int], kernel: int, stride: int = 1) -> str:
        """A convolution from wide[0] to wide[1] channels, with bias."""
        weights = [self.weight(wide[1], wide[0], kernel, kernel), self.weight(wide[1])]
        return self.add(
            "Conv", [data, *weights], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[kernel // 2] * 4
        )

    def bottleneck(self, data: str, channels: int, inner: int, stride: int) -> str:
        """A residual block of three convolutions, with a projection where the shape changes."""
        outer = inner * RESNET_EXPANSION
        path = self.add("Relu", [self.convolution(data, (channels, inner), 1)])
        path = self.add("Relu", [self.convolution(path, (inner, inner), 3, stride)])
        path = self.convolution(path, (inner, outer), 1)
        if channels != outer or stride != 1:
            data = self.convolution(data, (channels, outer), 1, stride)
        return self.add("Relu", [self.add("Add", [path, data])])


def resnet50_model() -> onnx.ModelProto:
    """The network: `image` [batch, 3, 224, 224] → `scores` [batch, 1000], 25.5 million weights."""
    layers = Layers()
    data = layers.add("Relu", [layers.convolution("image", (3, 64), 7, 2)])
    data = layers.add("MaxPool", [data], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, (blocks, inner) in enumerate(RESNET_STAGES):
        for block in range(blocks):
            data = layers.bottleneck(data, channels, inner, 2 if stage and not block else 1)
            channels = inner * RESNET_EXPANSION
    data = layers.add("Flatten", [layers.add("GlobalAveragePool", [data])])
    layers.nodes.append(
        helper.make_node(
            "Gemm", [data, layers.weight(1000, channels), layers.weight(1000)], ["scores"], transB=1
        )
    )
    graph = helper.make_graph(
        layers.nodes,
        "resnet50",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 224, 224])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 1000])],
        layers.weights,
    )
    return checked(graph)


def numbered(name: str, count: int, megabytes: int) -> Path:
    """Models `m0`, `m1`, …: FP32 [n] and a number that is the least of many equal ones, which take so much."""
    directory = REPOSITORIES / name
    shutil.rmtree(directory, ignore_errors=True)
    port = helper.make_tensor_value_info
    for number in range(count):
        weights = np.full(megabytes * 250_000, number, np.float32)
        graph = helper.make_graph(
            [
                helper.make_node("Gather", ["weights", "index"], ["number"]),
                helper.make_node("Add", ["INPUT0", "number"], ["OUTPUT0"]),
            ],
            f"m{number}",
            [port("INPUT0", TensorProto.FLOAT, ["n"]), port("index", TensorProto.INT64, [1])],
            [port("OUTPUT0", TensorProto.FLOAT, ["n"])],
            [numpy_helper.from_array(weights, "weights")],
        )
        version = directory / f"m{number}" / "1"
        version.mkdir(parents=True)
        (version / "model.onnx").write_bytes(checked(graph).SerializeToString())
    return directory


def checked(graph: onnx.GraphProto) -> onnx.ModelProto:
    """The graph as a model that ONNX Runtime 1.18 reads."""
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model
