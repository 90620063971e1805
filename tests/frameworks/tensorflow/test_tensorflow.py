import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "halimede.backends.tensorflow.runtime", reason="needs TensorFlow: pip install 'halimede[tensorflow]'"
)

from halimede.backends.base import BackendOptions, InstanceSpec
from halimede.backends.tensorflow import session as tensorflow_session
from halimede.backends.tensorflow.backend import TensorFlowModel
from halimede.backends.tensorflow.errors import tensorflow_error
from halimede.backends.tensorflow.instance import TensorFlowInstance
from halimede.backends.tensorflow.runtime import tf, v1
from halimede.core.datatypes import ALL, BF16, BYTES, FP32, Datatype
from halimede.core.errors import InternalError, OutOfMemoryError
from halimede.core.tensors import Tensor
from tests.backends.helpers import Loaded, add_at_once, floats, gather_one_bad_row, request, strings, wire
from tests.frameworks.tensorflow.tensorflow_models import (
    ADD_SUB,
    Affine,
    Counter,
    add_sub,
    affine_graph,
    frozen,
    load_saved,
    saved,
    spec,
)

NUMBERS = [datatype for datatype in ALL if datatype not in (BYTES, BF16)]


def identity(x: Any) -> dict[str, Any]:
    return {"y": tf.identity(x)}


def state(model: Loaded) -> Any:
    assert isinstance(model.backend, TensorFlowModel)
    return model.backend._sessions[0].state  # noqa: SLF001 - that sessions are shared shows in memory only


def kinds(model: Loaded) -> set[str]:
    """Types of the operators that the session has."""
    assert isinstance(model.backend, TensorFlowModel)
    return {each.type for each in model.backend._sessions[0]._session.graph.get_operations()}  # noqa: SLF001 - TensorFlow's own session, whose graph and options nothing else shows


def test_saved_model_needs_no_configuration(tmp_path: Path) -> None:
    model = load_saved(tmp_path, add_sub, ADD_SUB)
    outputs = model(a=floats([1, 2]), b=floats([10, 20]))
    assert list(outputs) == ["difference", "sum"]
    assert (outputs["sum"].tolist(), outputs["difference"].tolist()) == ([[11, 22]], [[-9, -18]])


def test_frozen_graph_runs_with_names_of_operators_and_of_tensors(tmp_path: Path) -> None:
    def build() -> None:
        x = v1.placeholder(tf.float32, [None, 2], "x")
        first, second = tf.split(x, 2, 1, name="halves")
        tf.identity(first, "first")
        del second

    text = """
        max_batch_size: 4
        input { name: "x:0" data_type: TYPE_FP32 dims: [2] }
        output { name: "halves:1" data_type: TYPE_FP32 dims: [1] }
        output { name: "first" data_type: TYPE_FP32 dims: [1] }
    """
    model = Loaded(frozen(tmp_path, build, text))
    (response,) = model.run(request({"x:0": floats([1, 2], [3, 4])}))
    outputs = {name: tensor.array.tolist() for name, tensor in response.outputs.items()}
    assert outputs == {"halves:1": [[2], [4]], "first": [[1], [3]]}


def test_model_that_keras_exports_answers_as_in_keras(tmp_path: Path) -> None:
    script = """
import sys
import keras
import numpy as np
keras.utils.set_random_seed(1)
layers = keras.layers
model = keras.Sequential([
    keras.Input((8, 8, 3), name="image"),
    layers.Conv2D(4, 3), layers.BatchNormalization(), layers.ReLU(),
    layers.GlobalAveragePooling2D(), layers.Dense(3, "softmax"),
])
model.export(sys.argv[1] + "/model.savedmodel", verbose=False)
np.save(sys.argv[1] + "/y.npy", model(np.linspace(-1, 1, 384, dtype=np.float32).reshape(2, 8, 8, 3)))
"""
    source = saved(tmp_path, add_sub, ADD_SUB)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    command = [sys.executable, "-c", script, str(source.version_directory)]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=100)
    model = Loaded(source)
    assert [(each.name, list(each.dims)) for each in model.config.input] == [("image", [8, 8, 3])]
    image = np.linspace(-1, 1, 384, dtype=np.float32).reshape(2, 8, 8, 3)
    expected = np.load(source.version_directory / "y.npy")
    np.testing.assert_allclose(model(image=image)["output_0"], expected, rtol=1e-5)


def test_a_row_that_cannot_be_computed_fails_alone(tmp_path: Path) -> None:
    def gather(x: Any, index: Any) -> dict[str, Any]:
        return {"y": tf.gather(x, index, batch_dims=1)}

    model = load_saved(tmp_path, gather, [spec("x", (None, 4)), spec("index", (None, 1), tf.int64)])
    answers, error = gather_one_bad_row(model, "x", "index", "y")
    assert answers == [[[11]], [[13]]]
    assert "is not in [0, 4)" in error


def test_a_batch_runs_once_and_each_request_gets_its_rows(tmp_path: Path) -> None:
    model = load_saved(tmp_path, identity, [spec("x")])
    responses = model.run(
        request({"x": floats([1, 2])}),
        request({"x": floats([3, 4], [5, 6])}),
        request({"x": floats([7, 8])}),
    )
    assert [response.outputs["y"].array.tolist() for response in responses] == [
        [[1, 2]],
        [[3, 4], [5, 6]],
        [[7, 8]],
    ]


def test_only_wanted_outputs_are_answered(tmp_path: Path) -> None:
    model = load_saved(tmp_path, add_sub, ADD_SUB)
    inputs = {"a": floats([1, 2]), "b": floats([10, 20])}
    assert list(model(("sum",), **inputs)) == ["sum"]
    both, one = model.run(request(dict(inputs)), request(dict(inputs), ("difference",)))
    assert (list(both.outputs), list(one.outputs)) == (["difference", "sum"], ["difference"])


@pytest.mark.parametrize("datatype", NUMBERS, ids=lambda datatype: datatype.name)
def test_every_datatype_passes_unchanged_single_and_batched(tmp_path: Path, datatype: Datatype) -> None:
    model = load_saved(tmp_path, identity, [spec("x", (None, 3), tf.as_dtype(datatype.numpy))])
    assert model.config.input[0].data_type == datatype.number
    first = wire(np.array([[0, 1, 100]]).astype(datatype.numpy))
    (response,) = model.run(request({"x": first}))
    assert response.outputs["y"].datatype is datatype
    assert bytes(response.outputs["y"].data) == bytes(first.data)
    responses = model.run(request({"x": first}), request({"x": first}))
    assert [bytes(each.outputs["y"].data) for each in responses] == [bytes(first.data)] * 2


def test_bf16_values_are_bf16_to_the_model(tmp_path: Path) -> None:
    model = load_saved(
        tmp_path, lambda x: {"wide": tf.cast(x, tf.float32), "same": x + 0}, [spec("x", dtype=tf.bfloat16)]
    )
    outputs = model(x=wire(np.array([[0x3F80, 0xC000]], "<u2"), BF16))
    assert outputs["wide"].tolist() == [[1.0, -2.0]]
    assert outputs["same"].tolist() == [[0x3F80, 0xC000]]


def test_strings_of_any_bytes_pass_both_ways(tmp_path: Path) -> None:
    model = load_saved(
        tmp_path, lambda x: {"y": tf.strings.join([x, "!"])}, [spec("x", (None, 2), tf.string)]
    )
    assert model.config.input[0].data_type == BYTES.number
    assert model(x=strings([b"a", b"\xff\x00"]))["y"].tolist() == [[b"a!", b"\xff\x00!"]]
    responses = model.run(request({"x": strings([b"a", b""])}), request({"x": strings([b"b", b"c"])}))
    assert [each.outputs["y"].array.tolist() for each in responses] == [[[b"a!", b"!"]], [[b"b!", b"c!"]]]


def test_scalars_are_one_element_to_clients(tmp_path: Path) -> None:
    rows = load_saved(tmp_path / "rows", identity, [spec("x", (None,))])
    assert list(rows.config.input[0].dims) == [1]
    assert rows(x=floats([7], [8]))["y"].tolist() == [[7], [8]]
    alone = load_saved(
        tmp_path / "alone",
        lambda x, s: {"y": x + 1, "t": tf.strings.join([s, "!"]), "h": tf.cast(x, tf.bfloat16)},
        [spec("x", ()), spec("s", (), tf.string)],
    )
    assert (alone.config.max_batch_size, list(alone.config.input[0].dims)) == (0, [1])
    outputs = alone(x=np.array([7], np.float32), s=np.array([b"a"], np.object_))
    assert {name: array.tolist() for name, array in outputs.items()} == {
        "y": [8],
        "t": [b"a!"],
        "h": [0x40E0],
    }


def test_model_without_batching_takes_and_gives_whole_shapes(tmp_path: Path) -> None:
    model = load_saved(tmp_path, lambda x: {"y": tf.transpose(x)}, [spec("x", (2, 3))])
    assert (model.config.max_batch_size, list(model.config.output[0].dims)) == (0, [3, 2])
    assert model(x=floats([1, 2, 3], [4, 5, 6]))["y"].tolist() == [[1, 4], [2, 5], [3, 6]]


def test_empty_tensors_pass(tmp_path: Path) -> None:
    model = load_saved(tmp_path, identity, [spec("x", (None, None))])
    assert model(x=np.zeros((1, 0), np.float32))["y"].shape == (1, 0)


def test_unaligned_views_are_read_right(tmp_path: Path) -> None:
    model = load_saved(tmp_path, add_sub, ADD_SUB)
    tensor = Tensor(FP32, (1, 2), memoryview(b"x" + floats([1, 2]).tobytes())[1:])
    assert model(a=tensor, b=floats([10, 20]))["sum"].tolist() == [[11, 22]]


def test_output_is_never_memory_of_an_input(tmp_path: Path) -> None:
    model = load_saved(tmp_path, identity, [spec("x", (None, 1024))])
    memory = np.zeros(4096 + 64, np.uint8)
    aligned = memory[-memory.ctypes.data % 64 :][:4096]
    output = model(x=Tensor(FP32, (1, 1024), aligned.data))["y"]
    memory[:] = 255
    assert not output.any()


def test_outputs_outlive_the_next_run_and_the_model(tmp_path: Path) -> None:
    model = load_saved(tmp_path, add_sub, ADD_SUB)
    first = model(a=floats([1, 2]), b=floats([10, 20]))["sum"]
    second = model(a=floats([5, 5]), b=floats([5, 5]))["sum"]
    model.close()
    del model
    gc.collect()
    assert (first.tolist(), second.tolist()) == ([[11, 22]], [[10, 10]])


def test_variables_that_are_only_read_become_constants(tmp_path: Path) -> None:
    affine = Affine()
    model = load_saved(tmp_path, affine.__call__, [spec("x")], module=affine)
    assert model(x=floats([1, 2]))["y"].tolist() == [[3, 4]]
    assert (state(model).variable_bytes, state(model).is_constant) == (24, True)
    assert "VarHandleOp" not in kinds(model)
    assert model.instance.repeatable


@pytest.mark.parametrize(
    ("most", "level", "constant"), [(24, 0, True), (23, 0, False), (23, 1, True), (24, -1, False)]
)
def test_size_and_graph_level_decide_whether_variables_become_constants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, level: int, constant: bool
) -> None:
    monkeypatch.setattr(tensorflow_session, "_MAX_CONSTANT", most)
    affine = Affine()
    text = f"optimization {{ graph {{ level: {level} }} }}"
    model = load_saved(tmp_path, affine.__call__, [spec("x")], text, affine)
    assert model(x=floats([1, 2]))["y"].tolist() == [[3, 4]]
    assert ("VarHandleOp" not in kinds(model)) == constant


def test_variables_that_cannot_become_constants_stay_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def convert(*arguments: object) -> None:
        raise ValueError("Cannot find the Placeholder op")

    monkeypatch.setattr(v1.graph_util, "convert_variables_to_constants", convert)
    affine = Affine()
    model = load_saved(tmp_path, affine.__call__, [spec("x")], module=affine)
    assert model(x=floats([1, 2]))["y"].tolist() == [[3, 4]]


def test_one_tensor_may_be_two_outputs(tmp_path: Path) -> None:
    text = """
        max_batch_size: 4
        input { name: "x" data_type: TYPE_FP32 dims: [2] }
        output { name: "y" data_type: TYPE_FP32 dims: [2] }
        output { name: "y:0" data_type: TYPE_FP32 dims: [2] }
    """
    (response,) = Loaded(frozen(tmp_path, affine_graph, text)).run(request({"x": floats([1, 2])}))
    assert [tensor.array.tolist() for tensor in response.outputs.values()] == [[[3, 5]], [[3, 5]]]


def test_model_that_writes_its_variables_keeps_doing_so(tmp_path: Path) -> None:
    counter = Counter()
    model = load_saved(tmp_path, counter.__call__, [spec("x")], "max_batch_size: 0", counter)
    assert not model.instance.repeatable
    assert model(x=floats([1, 2]))["total"].tolist() == [1, 2]
    assert model(x=floats([1, 2]))["total"].tolist() == [2, 4]


def test_lookup_table_is_initialised(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("cat\ndog\n")
    module = tf.Module()
    initializer = tf.lookup.TextFileInitializer(
        str(words),
        tf.string,
        tf.lookup.TextFileIndex.WHOLE_LINE,
        tf.int64,
        tf.lookup.TextFileIndex.LINE_NUMBER,
    )
    module.table = tf.lookup.StaticHashTable(initializer, -1)
    model = load_saved(
        tmp_path / "m",
        lambda x: {"y": module.table.lookup(x)},
        [spec("x", (None, 3), tf.string)],
        module=module,
    )
    words.unlink()  # the SavedModel has it among its assets
    assert model(x=strings([b"dog", b"cat", b"cow"]))["y"].tolist() == [[1, 0, -1]]
    assert model.instance.repeatable


def test_loops_and_branches_of_tensorflow_2_run(tmp_path: Path) -> None:
    def function(x: Any) -> dict[str, Any]:
        doubled = tf.while_loop(lambda a: tf.norm(a, 1) < 100.0, lambda a: [a * 2], [x])[0]
        return {"y": tf.cond(tf.reduce_sum(x) > 0.0, lambda: doubled, lambda: -x)}

    model = load_saved(tmp_path, function, [spec("x", (2,))])
    assert model(x=np.array([1, 1], np.float32))["y"].tolist() == [64, 64]
    assert model(x=np.array([-100, -1], np.float32))["y"].tolist() == [100, 1]


def test_loops_of_tensorflow_1_run(tmp_path: Path) -> None:
    def build() -> None:
        v1.disable_control_flow_v2()
        try:
            x = v1.placeholder(tf.float32, [2], "x")
            tf.identity(v1.while_loop(lambda a: tf.reduce_sum(a) < 100.0, lambda a: [a * 2], [x]), "y")
        finally:
            v1.enable_control_flow_v2()

    text = 'input { name: "x" data_type: TYPE_FP32 dims: [2] } output { name: "y" data_type: TYPE_FP32 dims: [2] }'
    model = Loaded(frozen(tmp_path, build, text))
    assert model(x=np.array([1, 1], np.float32))["y"].tolist() == [64, 64]


def test_ragged_batch_is_flat_with_offsets(tmp_path: Path) -> None:
    def build() -> None:
        flat = v1.placeholder(tf.float32, [None], "RAGGED")
        ends = v1.placeholder(tf.float32, [None], "ENDS")
        ids = tf.searchsorted(tf.cast(ends, tf.int32), tf.range(tf.shape(flat)[0]), side="right")
        sums = tf.math.unsorted_segment_sum(flat, ids, tf.shape(ends)[0])
        tf.reshape(sums, [-1, 1], "SUM")

    text = """
        max_batch_size: 8
        input { name: "RAGGED" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }
        output { name: "SUM" data_type: TYPE_FP32 dims: [1] }
        batch_input {
            kind: BATCH_ACCUMULATED_ELEMENT_COUNT
            target_name: "ENDS" data_type: TYPE_FP32 source_input: "RAGGED"
        }
    """
    model = Loaded(frozen(tmp_path, build, text))
    responses = model.run(request({"RAGGED": floats([1, 2, 3])}), request({"RAGGED": floats([10])}))
    assert [response.outputs["SUM"].array.tolist() for response in responses] == [[[6]], [[10]]]


def test_placeholder_with_default_may_be_left_out(tmp_path: Path) -> None:
    def build() -> None:
        x = v1.placeholder(tf.float32, [2], "x")
        scale = v1.placeholder_with_default(tf.constant([3.0]), [1], "scale")
        tf.multiply(x, scale, "y")

    text = """
        input { name: "x" data_type: TYPE_FP32 dims: [2] }
        input { name: "scale" data_type: TYPE_FP32 dims: [1] optional: true }
        output { name: "y" data_type: TYPE_FP32 dims: [2] }
    """
    model = Loaded(frozen(tmp_path, build, text))
    x = np.array([1, 2], np.float32)
    assert model(x=x)["y"].tolist() == [3, 6]
    assert model(x=x, scale=np.array([10], np.float32))["y"].tolist() == [10, 20]


def test_instances_run_side_by_side_on_one_session(tmp_path: Path) -> None:
    model = load_saved(tmp_path, add_sub, ADD_SUB, options=BackendOptions(cpu_threads=2))
    instances = [model.backend.create_instance(InstanceSpec(f"m_{i}", i)) for i in range(4)]
    assert isinstance(model.backend, TensorFlowModel)
    assert len(model.backend._sessions) == 1  # noqa: SLF001 - that sessions are shared shows in memory only
    add_at_once(model, instances, "a", "b", "sum")


def test_run_that_fails_is_an_error_and_the_next_one_runs(tmp_path: Path) -> None:
    model = load_saved(
        tmp_path, lambda a, b: {"y": a + b}, [spec("a", (None, None)), spec("b", (None, None))]
    )
    assert isinstance(model.instance, TensorFlowInstance)
    with pytest.raises(
        InternalError, match=r"^tensorflow error: .*[Ii]ncompatible shapes: \[1,2\] vs. \[1,3\]"
    ):
        model(a=floats([1, 2]), b=floats([1, 2, 3]))
    assert model(a=floats([1, 2]), b=floats([1, 2]))["y"].tolist() == [[2, 4]]


def test_error_text_is_one_line_without_the_code_that_built_the_graph() -> None:
    error = tf.errors.InvalidArgumentError(
        None, None, "bad\n\t [[{{node a}}]]\n\nOriginal stack trace for 'a':\n  File x"
    )
    found = tensorflow_error(error)
    assert (type(found), found.message) == (InternalError, "tensorflow error: bad [[{{node a}}]]")


@pytest.mark.parametrize(
    "error",
    [MemoryError(), tf.errors.ResourceExhaustedError(None, None, "too much"), RuntimeError("std::bad_alloc")],
)
def test_want_of_memory_is_told_apart(error: Exception) -> None:
    assert isinstance(tensorflow_error(error), OutOfMemoryError)
