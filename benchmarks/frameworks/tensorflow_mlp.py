"""TensorFlow: a signature of a SavedModel, and a frozen graph as a function."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from benchmarks.frameworks.framework import MLP_FEATURES, Call, Size
from benchmarks.frameworks.inputs import numbers
from benchmarks.frameworks.mlp import layers


class Network(tf.Module):
    """The network of `mlp`."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.layers = [(tf.Variable(matrix), tf.Variable(bias)) for matrix, bias in layers(size)]

    def __call__(self, data: Any) -> dict[str, Any]:
        """Run it."""
        for number, (matrix, bias) in enumerate(self.layers):
            data = tf.linalg.matmul(data, matrix) + bias
            if number < len(self.layers) - 1:
                data = tf.nn.relu(data)
        return {"OUTPUT__0": tf.identity(data, "OUTPUT__0")}


def build(kind: str, size: Size, directory: Path) -> None:
    module = Network(size)
    signature = tf.TensorSpec((None, MLP_FEATURES), tf.float32, "INPUT__0")
    function = tf.function(module.__call__).get_concrete_function(signature)
    if kind == "savedmodel":
        tf.saved_model.save(module, str(directory / "model.savedmodel"), {"serving_default": function})
        return
    frozen = convert_variables_to_constants_v2(function)
    (directory / "model.graphdef").write_bytes(frozen.graph.as_graph_def().SerializeToString())


def load(kind: str, _size: Size, directory: Path, threads: int) -> Callable[[int], Call]:
    return savedmodel(directory, threads) if kind == "savedmodel" else graphdef(directory, threads)


def savedmodel(directory: Path, threads: int) -> Callable[[int], Call]:
    """The signature as a function of tensors."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    model = tf.saved_model.load(str(directory / "model.savedmodel"))
    signature = model.signatures["serving_default"]

    def call_for(rows: int) -> Call:
        tensor = tf.constant(numbers(rows, MLP_FEATURES))
        return lambda: (model, signature(INPUT__0=tensor)["OUTPUT__0"].numpy())  # it keeps the variables

    return call_for


def graphdef(directory: Path, threads: int) -> Callable[[int], Call]:
    """A session of the graph, of which one tensor is fed and one fetched."""
    v1 = tf.compat.v1
    graph = tf.Graph()
    with graph.as_default():
        v1.import_graph_def(v1.GraphDef.FromString((directory / "model.graphdef").read_bytes()), name="")
    settings = v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    run = v1.Session(graph=graph, config=settings).make_callable("OUTPUT__0:0", ["INPUT__0:0"])
    return lambda rows: partial(run, numbers(rows, MLP_FEATURES))
