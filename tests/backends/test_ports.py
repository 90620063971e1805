import logging
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from halimede.backends.base import BackendOptions
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError
from tests.backends.helpers import floats, load, request
from tests.support import onnx_models
from tests.support.onnx_models import FLOAT, INT32


def completed(directory: Path, text: str = "", **model: object) -> ModelConfig:
    """The completed configuration of an add_sub model."""
    return load(directory, text, onnx_models.add_sub(**model)).config  # type: ignore[arg-type]  # keyword arguments pass through


def test_empty_configuration_is_filled_in_with_batching(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", [name], [name.lower()]) for name in ("B", "A")]
    model = onnx_models.build(
        nodes,
        {"B": (FLOAT, ["batch", "length"]), "A": (INT32, ["batch", 3])},
        {"b": (FLOAT, ["batch", "length"]), "a": (INT32, ["batch", 3])},
    )
    config = load(tmp_path, "", model).config
    assert config.max_batch_size == 4
    assert config.HasField("dynamic_batching")
    assert [(entry.name, list(entry.dims)) for entry in config.input] == [("A", [3]), ("B", [-1])]
    assert [(entry.name, list(entry.dims)) for entry in config.output] == [("a", [3]), ("b", [-1])]
    assert config.input[0].data_type == 8


def test_default_max_batch_size_is_a_backend_setting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "halimede")
    options = BackendOptions({"default-max-batch-size": "16"})
    config = load(tmp_path, "", onnx_models.add_sub(), options).config
    assert config.max_batch_size == 16
    assert "autofilled max_batch_size to 16 for model 'm'" in caplog.text
    assert [record.levelname for record in caplog.records] == ["INFO"]
    with pytest.raises(InvalidArgumentError, match="default-max-batch-size must be an integer of at least 0"):
        load(tmp_path, "", onnx_models.add_sub(), BackendOptions({"default-max-batch-size": "many"}))


def test_batch_size_of_one_or_none_gets_no_dynamic_batcher(tmp_path: Path) -> None:
    assert not completed(tmp_path, "max_batch_size: 1").HasField("dynamic_batching")
    none = load(tmp_path, "", onnx_models.add_sub(), BackendOptions({"default-max-batch-size": "0"})).config
    assert none.max_batch_size == 0
    assert not none.HasField("dynamic_batching")
    assert list(none.input[0].dims) == [-1, 16]


def test_chosen_scheduler_is_left_alone(tmp_path: Path) -> None:
    config = completed(tmp_path, "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 7 }")
    assert config.max_batch_size == 8
    assert config.dynamic_batching.max_queue_delay_microseconds == 7


def test_model_without_batching_keeps_its_whole_shape(tmp_path: Path) -> None:
    config = completed(tmp_path, batching=False)
    assert config.max_batch_size == 0
    assert list(config.input[0].dims) == [16]
    assert config.WhichOneof("scheduling_choice") is None


def test_batch_size_for_a_model_without_batching_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InternalError) as caught:
        completed(tmp_path, "max_batch_size: 8", batching=False)
    assert caught.value.message == (
        "autofill failed for model 'm': model does not support batching while non-zero max_batch_size is specified"
    )


def test_only_the_missing_side_is_filled_in(tmp_path: Path) -> None:
    text = 'output { name: "OUTPUT1" data_type: TYPE_FP32 dims: [16] label_filename: "labels.txt" }'
    config = completed(tmp_path, text)
    assert [entry.name for entry in config.input] == ["INPUT0", "INPUT1"]
    assert [entry.name for entry in config.output] == ["OUTPUT1"]
    assert config.output[0].label_filename == "labels.txt"


def test_listed_inputs_and_outputs_leave_everything_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = """
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [2, 16] }
        input { name: "INPUT1" data_type: TYPE_FP32 dims: [2, 16] }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1, 16] }
    """
    with caplog.at_level(logging.INFO, "halimede"):
        config = completed(tmp_path, text)
    assert config.max_batch_size == 0
    assert config.WhichOneof("scheduling_choice") is None
    assert (
        "skipping model configuration auto-complete for 'm': inputs and outputs already specified"
        in caplog.text
    )


def test_scalars_become_one_element(tmp_path: Path) -> None:
    batched = load(tmp_path / "batched", "", onnx_models.identity(dims=())).config
    assert list(batched.input[0].dims) == [1]
    assert batched.input[0].HasField("reshape")
    assert list(batched.input[0].reshape.shape) == []
    single = load(tmp_path / "single", "", onnx_models.identity(dims=(), batching=False)).config
    assert list(single.output[0].dims) == [1]
    assert not single.output[0].HasField("reshape")


@pytest.mark.parametrize("dims", ["2", "1, 3", "-1"])
def test_scalars_are_one_element_in_the_configuration(tmp_path: Path, dims: str) -> None:
    tensor = f"data_type: TYPE_FP32 dims: [{dims}]"
    text = f'input {{ name: "INPUT0" {tensor} }} output {{ name: "OUTPUT0" {tensor} }}'
    with pytest.raises(InvalidArgumentError) as caught:
        load(tmp_path, text, onnx_models.identity(dims=(), batching=False))
    assert caught.value.message == (
        "unable to load model 'm', scalar tensor 'INPUT0', should only provide 1 in the model configuration when the "
        f"model doesn't support batching. Model configuration provided: [{dims.replace(' ', '')}]."
    )


@pytest.mark.parametrize("dims", ["1", "1, 1"])
def test_scalars_may_be_listed_as_one_element(tmp_path: Path, dims: str) -> None:
    tensor = f"data_type: TYPE_FP32 dims: [{dims}]"
    text = f'input {{ name: "INPUT0" {tensor} }} output {{ name: "OUTPUT0" {tensor} }}'
    assert load(tmp_path, text, onnx_models.identity(dims=(), batching=False)).config.max_batch_size == 0


def test_sequence_outputs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        load(tmp_path, "", onnx_models.sequence_output())
    assert caught.value.message == (
        "Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE' for I/O 'OUTPUT0', expected 'ONNX_TYPE_TENSOR'."
    )


IO = """
    input {{ name: "{0}" data_type: TYPE_{1} dims: {2} {3} }}
    output {{ name: "{4}" data_type: TYPE_{5} dims: {6} }}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            IO.format("OTHER", "FP32", "[16]", "", "OUTPUT0", "FP32", "[16]"),
            "unable to load model 'm', unexpected inference input 'OTHER', allowed inputs are: INPUT0",
        ),
        (
            IO.format("INPUT0", "FP32", "[16]", "", "OTHER", "FP32", "[16]"),
            "unable to load model 'm', unexpected inference output 'OTHER', allowed outputs are: OUTPUT0",
        ),
        (
            IO.format("INPUT0", "INT8", "[16]", "", "OUTPUT0", "FP32", "[16]"),
            (
                "unable to load model 'm', configuration expects datatype TYPE_INT8 for input 'INPUT0', "
                "model provides TYPE_FP32"
            ),
        ),
        (
            IO.format("INPUT0", "FP32", "[16]", "", "OUTPUT0", "INT32", "[16]"),
            (
                "unable to load model 'm', configuration expects datatype TYPE_INT32 for output 'OUTPUT0', "
                "model provides TYPE_FP32"
            ),
        ),
        (
            IO.format("INPUT0", "FP32", "[4, 4]", "", "OUTPUT0", "FP32", "[16]"),
            (
                "model 'm', tensor 'INPUT0': the model expects 2 dimensions (shape [-1,16]) but the model "
                "configuration specifies 3 dimensions (an initial batch dimension because max_batch_size > 0 followed "
                "by the explicit tensor shape, making complete shape [-1,4,4]): write dims: [ 16 ]"
            ),
        ),
        (
            IO.format("INPUT0", "FP32", "[16]", "", "OUTPUT0", "FP32", "[-1]"),
            (
                "model 'm', tensor 'OUTPUT0': the model expects 2 dimensions (shape [-1,16]) but the model "
                "configuration specifies 2 dimensions (an initial batch dimension because max_batch_size > 0 followed "
                "by the explicit tensor shape, making complete shape [-1,-1]): dimension 1 is 16 in the model and "
                "-1 in the configuration; write dims: [ 16 ]"
            ),
        ),
        (
            IO.format("INPUT0", "FP32", "[16]", "optional: true", "OUTPUT0", "FP32", "[16]"),
            (
                "unable to load model 'm', input 'INPUT0' is optional; optional inputs are supported only for models "
                "that do not batch (max_batch_size: 0)"
            ),
        ),
        (
            IO.format("INPUT0", "FP32", "[-1]", "allow_ragged_batch: true", "OUTPUT0", "FP32", "[16]"),
            (
                "unable to load model 'm', ragged input 'INPUT0' must have shape [-1] in the model, but the model "
                "provides [-1,16]"
            ),
        ),
    ],
)
def test_contradictions_with_a_batching_model_are_told(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(HalimedeError) as caught:
        load(tmp_path, "max_batch_size: 4" + text, onnx_models.identity())
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            IO.format("INPUT0", "FP32", "[2]", "", "OUTPUT0", "FP32", "[2]"),
            "unable to load model 'm', configuration expects 1 inputs, model provides 2",
        ),
        (
            IO.format("INPUT0", "FP32", "[2]", "", "OUTPUT0", "FP32", "[2]")
            + "input { name: 'INPUT1' data_type: TYPE_FP32 dims: [2, 1] }",
            (
                "model 'm', tensor 'INPUT1': the model expects 1 dimensions (shape [2]) but the model configuration "
                "specifies 2 dimensions (shape [2,1]): write dims: [ 2 ]"
            ),
        ),
        (
            IO.format("INPUT0", "FP32", "[2]", "optional: true", "OUTPUT0", "FP32", "[2]")
            + "input { name: 'INPUT1' data_type: TYPE_FP32 dims: [2] }",
            (
                "unable to load model 'm', input 'INPUT0' is optional in the configuration, but the model has no "
                "default for it"
            ),
        ),
        (
            "max_batch_size: 2"
            + IO.format("INPUT0", "FP32", "[2]", "", "OUTPUT0", "FP32", "[2]")
            + "input { name: 'INPUT1' data_type: TYPE_FP32 dims: [2] }",
            (
                "model 'm', tensor 'INPUT0': for the model to support batching the shape should have at least 1 "
                "dimension and the first dimension must be -1; but shape expected by the model is [2]"
            ),
        ),
    ],
)
def test_contradictions_with_a_model_without_batching_are_told(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(HalimedeError) as caught:
        load(tmp_path, text, onnx_models.add_sub(dims=(2,), batching=False))
    assert caught.value.message == message


def test_default_does_not_stand_in_for_a_required_input(tmp_path: Path) -> None:
    text = IO.format("BIAS", "FP32", "[2]", "", "OUTPUT0", "FP32", "[2]")
    with pytest.raises(
        InvalidArgumentError, match="the model requires input 'INPUT0', which the configuration"
    ):
        load(tmp_path, text, onnx_models.with_default_input())


def test_variable_output_of_a_batch_output_is_flat(tmp_path: Path) -> None:
    text = """
        max_batch_size: 4
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [-1] allow_ragged_batch: true }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1] }
        batch_output { target_name: "OUTPUT0" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "INPUT0" }
    """
    load(tmp_path / "flat", text, onnx_models.identity(dims=["n"], batching=False))
    with pytest.raises(InvalidArgumentError, match="ragged input 'INPUT0' must have shape"):
        load(tmp_path / "square", text, onnx_models.identity(dims=["n"]))


def test_scattered_output_may_have_any_shape_in_the_model(tmp_path: Path) -> None:
    text = """
        max_batch_size: 4
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [-1] }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1] }
        batch_output { target_name: "OUTPUT0" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "INPUT0" }
    """
    model = load(tmp_path, text, onnx_models.identity(dims=["n"]))
    answers = model.run(request({"INPUT0": floats([1, 2])}), request({"INPUT0": floats([3, 4])}))
    assert [answer.outputs["OUTPUT0"].array.tolist() for answer in answers] == [[[1, 2]], [[3, 4]]]


RAGGED = """
    max_batch_size: 8
    input {{ name: "RAGGED" data_type: TYPE_FP32 dims: [-1] {ragged} }}
    output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: [1] }}
    batch_input {{ kind: {kind} target_name: "{target}" data_type: {datatype} source_input: "RAGGED" }}
"""
OFFSETS = {
    "ragged": "allow_ragged_batch: true",
    "kind": "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO",
    "target": "OFFSETS",
    "datatype": "TYPE_FP32",
}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"ragged": ""},
            (
                "unable to load model 'm', input 'RAGGED' is flat in the model (shape [-1]), as one is in which "
                "requests of different shapes are joined, and batch_input or batch_output refer to it: say "
                "allow_ragged_batch: true"
            ),
        ),
        (
            {"target": "COUNTS"},
            "unable to load model 'm', unexpected inference input 'COUNTS', allowed inputs are: OFFSETS, RAGGED",
        ),
        (
            {"datatype": "TYPE_INT32"},
            (
                "unable to load model 'm', configuration expects datatype TYPE_INT32 for input 'OFFSETS', model "
                "provides TYPE_FP32"
            ),
        ),
        (
            {"kind": "BATCH_ITEM_SHAPE"},
            (
                "unable to load model 'm', batch input 'OFFSETS' of kind BATCH_ITEM_SHAPE has shape [-1,1], but the "
                "model provides [-1]"
            ),
        ),
    ],
)
def test_contradictions_of_batch_inputs_are_told(tmp_path: Path, wrong: dict[str, str], message: str) -> None:
    with pytest.raises(HalimedeError) as caught:
        load(tmp_path, RAGGED.format(**(OFFSETS | wrong)), onnx_models.ragged_sum())
    assert caught.value.message == message


def test_an_unlisted_output_that_is_cut_has_the_dims_of_its_input_before_its_own(tmp_path: Path) -> None:
    text = """
        max_batch_size: 8
        input { name: "VALUES" data_type: TYPE_FP32 dims: [-1, 3] allow_ragged_batch: true }
        batch_input {
            kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ENDS" data_type: TYPE_INT32 source_input: "VALUES"
        }
        batch_output { target_name: "TWICE" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "VALUES" }
    """
    model = load(tmp_path, text, onnx_models.segments())
    outputs = [(entry.name, list(entry.dims), entry.HasField("reshape")) for entry in model.config.output]
    assert outputs == [("SUM", [1], False), ("TWICE", [-1, 3], False)]
    assert model(VALUES=np.ones((1, 2, 3), np.float32))["TWICE"].shape == (1, 2, 3)
