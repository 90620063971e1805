"""Small TensorFlow models, written where the server looks for them, and loaded."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from halimede.backends.base import BackendOptions, ModelSource
from halimede.backends.tensorflow.runtime import tf, v1
from tests.backends.helpers import Loaded, source_of

SAVED = 'platform: "tensorflow_savedmodel"\n'
FROZEN = 'platform: "tensorflow_graphdef"\n'

Function = Callable[..., Mapping[str, Any]]


def spec(name: str, shape: Sequence[int | None] | None = (None, 2), dtype: Any = tf.float32) -> Any:
    """An input."""
    return tf.TensorSpec(shape, dtype, name)


def saved(
    directory: Path,
    function: Function,
    inputs: Sequence[Any],
    text: str = "",
    module: Any = None,
    signature: str = "serving_default",
) -> ModelSource:
    """The source of a SavedModel with one signature, the function."""
    source = source_of(directory, SAVED + text)
    module = module or tf.Module()
    concrete = tf.function(function, input_signature=list(inputs)).get_concrete_function()
    tf.saved_model.save(module, str(source.version_directory / "model.savedmodel"), {signature: concrete})
    return source


def load_saved(
    directory: Path,
    function: Function,
    inputs: Sequence[Any],
    text: str = "",
    module: Any = None,
    options: BackendOptions | None = None,
) -> Loaded:
    """The same, loaded."""
    return Loaded(saved(directory, function, inputs, text, module), options)


def frozen(directory: Path, build: Callable[[], object], text: str) -> ModelSource:
    """The source of a frozen graph, as `build` adds operators to it."""
    source = source_of(directory, FROZEN + text)
    graph = tf.Graph()
    with graph.as_default():
        build()
    (source.version_directory / "model.graphdef").write_bytes(graph.as_graph_def().SerializeToString())
    return source


def add_sub(a: Any, b: Any) -> dict[str, Any]:
    """Sum and difference."""
    return {"sum": a + b, "difference": a - b}


ADD_SUB = (spec("a"), spec("b"))


class Affine(tf.Module):
    """``y = x w + b`` with variables; w is ``rows × rows`` of ones, b is 0, 1, ...."""

    def __init__(self, rows: int = 2) -> None:
        super().__init__()
        self.w = tf.Variable(tf.ones([rows, rows]))
        self.b = tf.Variable(tf.range(float(rows)))

    def __call__(self, x: Any) -> dict[str, Any]:
        """Its output."""
        return {"y": x @ self.w + self.b}


class Counter(tf.Module):
    """Adds up its inputs over all runs."""

    def __init__(self) -> None:
        super().__init__()
        self.total = tf.Variable(tf.zeros([2]))

    def __call__(self, x: Any) -> dict[str, Any]:
        """The total so far."""
        return {"total": self.total.assign_add(tf.reduce_sum(x, 0))}


def affine_graph() -> None:
    """``y = 2 x + 1`` over placeholder ``x``, FP32 [-1, 2]."""
    x = v1.placeholder(tf.float32, [None, 2], "x")
    tf.identity(2 * x + 1, "y")
