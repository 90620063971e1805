from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "halimede.backends.tensorflow.runtime", reason="needs TensorFlow: pip install 'halimede[tensorflow]'"
)

from halimede.backends.base import BackendOptions
from halimede.backends.tensorflow.runtime import SavedModelProto, tf, v1
from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError
from tests.backends.helpers import Loaded, floats
from tests.frameworks.tensorflow.tensorflow_models import (
    ADD_SUB,
    add_sub,
    affine_graph,
    frozen,
    load_saved,
    saved,
    spec,
)


def tensors(entries: Any) -> list[tuple[str, int, list[int]]]:
    return [(entry.name, entry.data_type, list(entry.dims)) for entry in entries]


def test_signature_completes_the_whole_configuration(tmp_path: Path) -> None:
    config = load_saved(tmp_path, add_sub, ADD_SUB).config
    assert (config.max_batch_size, config.HasField("dynamic_batching")) == (4, True)
    assert tensors(config.input) == [("a", 11, [2]), ("b", 11, [2])]
    assert tensors(config.output) == [("difference", 11, [2]), ("sum", 11, [2])]


def test_default_max_batch_size_is_the_command_lines(tmp_path: Path) -> None:
    options = BackendOptions({"default-max-batch-size": "1"})
    config = load_saved(tmp_path, add_sub, ADD_SUB, options=options).config
    assert (config.max_batch_size, config.HasField("dynamic_batching")) == (1, False)


def test_listed_outputs_are_completed_and_no_others_added(tmp_path: Path) -> None:
    model = load_saved(tmp_path, add_sub, ADD_SUB, 'output { name: "sum" }')
    assert tensors(model.config.output) == [("sum", 11, [2])]
    assert model.config.max_batch_size == 4
    assert list(model(a=floats([1, 2]), b=floats([3, 4]))) == ["sum"]


def test_listed_inputs_are_completed_and_missing_ones_added(tmp_path: Path) -> None:
    text = 'max_batch_size: 2 input { name: "b" data_type: TYPE_FP32 }'
    config = load_saved(tmp_path, add_sub, ADD_SUB, text).config
    assert tensors(config.input) == [("b", 11, [2]), ("a", 11, [2])]
    assert config.max_batch_size == 2


def test_listed_dims_say_whether_the_first_is_the_batch(tmp_path: Path) -> None:
    whole = 'input { name: "a" dims: [-1, 2] }'
    config = load_saved(tmp_path / "whole", add_sub, ADD_SUB, whole).config
    assert (config.max_batch_size, tensors(config.output)[0]) == (0, ("difference", 11, [-1, 2]))
    rows = 'input { name: "a" dims: [2] }'
    config = load_saved(tmp_path / "rows", add_sub, ADD_SUB, rows).config
    assert (config.max_batch_size, tensors(config.output)[0]) == (4, ("difference", 11, [2]))


def test_output_without_a_batch_dimension_is_no_hindrance_if_it_is_not_served(tmp_path: Path) -> None:
    def function(x: Any) -> dict[str, Any]:
        return {"y": x + 1, "mean": tf.reduce_mean(x)}

    assert load_saved(tmp_path / "all", function, [spec("x")]).config.max_batch_size == 0
    one = load_saved(tmp_path / "one", function, [spec("x")], 'output { name: "y" }')
    assert one.config.max_batch_size == 4


def test_batching_that_the_model_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="model does not support batching while non-zero max_batch_size"):
        load_saved(tmp_path, add_sub, [spec("a", (1, 2)), spec("b", (1, 2))], "max_batch_size: 8")


def test_unknown_rank_is_what_the_configuration_says(tmp_path: Path) -> None:
    def function(x: Any) -> dict[str, Any]:
        return {"y": x + 1}

    with pytest.raises(
        InvalidArgumentError, match=r"how many dimensions input 'x' has; list it in config.pbtxt"
    ):
        load_saved(tmp_path / "bare", function, [spec("x", None)])
    text = """
        max_batch_size: 8
        input { name: "x" data_type: TYPE_FP32 dims: [3] }
        output { name: "y" data_type: TYPE_FP32 dims: [3] }
    """
    model = load_saved(tmp_path / "listed", function, [spec("x", None)], text)
    assert model(x=floats([1, 2, 3], [4, 5, 6]))["y"].tolist() == [[2, 3, 4], [5, 6, 7]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'input { name: "c" data_type: TYPE_FP32 dims: [2] }',
            "configuration expects 3 inputs, model provides 2",
        ),
        (
            'output { name: "total" data_type: TYPE_FP32 dims: [2] }',
            "unexpected inference output 'total', allowed outputs are: difference, sum",
        ),
        (
            'input { name: "a" data_type: TYPE_INT32 dims: [2] }',
            "configuration expects datatype TYPE_INT32 for input 'a', model provides TYPE_FP32",
        ),
        (
            'max_batch_size: 4 input { name: "a" data_type: TYPE_FP32 dims: [3] }',
            r"tensor 'a': the model expects 2 dimensions \(shape \[-1,2\]\) .* complete shape \[-1,3\]",
        ),
        (
            'max_batch_size: 4 output { name: "sum" data_type: TYPE_FP32 dims: [2, 1] }',
            r"tensor 'sum': the model expects 2 dimensions \(shape \[-1,2\]\) .* specifies 3 dimensions",
        ),
    ],
)
def test_contradiction_of_a_signature_is_told_with_both_sides(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        load_saved(tmp_path, add_sub, ADD_SUB, text)


X = 'input { name: "x" data_type: TYPE_FP32 dims: [2] } '
Y = 'output { name: "y" data_type: TYPE_FP32 dims: [2] } '


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"must list input and output; placeholders of the graph: x$"),
        (X, r"must list input and output; placeholders of the graph: x$"),
        (Y, "configuration expects 0 inputs, model provides 1"),
        (X.replace("x", "z") + Y, "input 'z': the graph has no operator 'z'; placeholders of the graph: x$"),
        (X.replace('"x"', '"x:1"') + Y, "input 'x:1': the operator 'x' has 1 outputs, from ':0'"),
        (X + Y.replace('"y"', '"y:0:0"'), "unexpected inference output 'y:0:0'"),
        (X + Y.replace('"y"', '"w"'), "unexpected inference output 'w': the graph has no operator 'w'$"),
        (X.replace("FP32", "INT8") + Y, "expects datatype TYPE_INT8 for input 'x', model provides TYPE_FP32"),
        (
            "max_batch_size: 4 " + X + Y.replace("FP32", "FP64"),
            "expects datatype TYPE_FP64 for output 'y', model provides TYPE_FP32",
        ),
        (
            "max_batch_size: 4 " + X.replace("[2]", "[3]") + Y,
            r"tensor 'x': the model expects 2 dimensions \(shape \[-1,2\]\)",
        ),
    ],
)
def test_contradiction_of_a_graph_is_told_with_both_sides(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(HalimedeError, match=message):
        Loaded(frozen(tmp_path, affine_graph, text))


def test_graph_may_be_looser_than_its_configuration(tmp_path: Path) -> None:
    def build() -> None:
        x = v1.placeholder(tf.float32, None, "x")
        tf.reshape(x, v1.placeholder_with_default([-1, 2], [None]), "y")

    text = "max_batch_size: 4 " + X + Y
    model = Loaded(frozen(tmp_path, build, text))
    assert model(x=floats([1, 2], [3, 4]))["y"].tolist() == [[1, 2], [3, 4]]


def test_sparse_input_is_refused(tmp_path: Path) -> None:
    source = saved(tmp_path, add_sub, ADD_SUB)
    file = source.version_directory / "model.savedmodel" / "saved_model.pb"
    description = SavedModelProto.FromString(file.read_bytes())
    inputs = description.meta_graphs[0].signature_def["serving_default"].inputs
    inputs["a"].coo_sparse.values_tensor_name = inputs["a"].name
    file.write_bytes(description.SerializeToString())
    with pytest.raises(InvalidArgumentError, match="'a' of the model is a sparse tensor"):
        Loaded(source)


def test_complex_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="unsupported datatype 'complex64' of output 'y'"):
        load_saved(tmp_path, lambda x: {"y": tf.cast(x, tf.complex64)}, [spec("x")])


def test_reshape_shows_clients_and_model_different_shapes(tmp_path: Path) -> None:
    text = """
        max_batch_size: 4
        input { name: "x" data_type: TYPE_FP32 dims: [4] reshape { shape: [2, 2] } }
        output { name: "y" data_type: TYPE_FP32 dims: [1, 4] reshape { shape: [2, 2] } }
    """
    model = load_saved(tmp_path, lambda x: {"y": x + 1}, [spec("x", (None, 2, 2))], text)
    assert model(x=np.array([[1, 2, 3, 4]], np.float32))["y"].tolist() == [[[2, 3, 4, 5]]]


def test_decoupled_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="gives each request one response"):
        load_saved(tmp_path, add_sub, ADD_SUB, "model_transaction_policy { decoupled: true }")
