"""Requests of different shapes in one batch of an OpenVINO model."""

from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("openvino", reason="needs OpenVINO: pip install 'halimede[openvino]'")

from halimede.core.datatypes import BF16, FP16, INT64, Datatype
from halimede.core.errors import InternalError, InvalidArgumentError
from tests.backends.helpers import floats, request, wire
from tests.frameworks.openvino.test_openvino import load_ir, parameter, write_ir
from tests.support import onnx_models
from tests.support.ragged import SEGMENTS, check_segments
from tests.support.server import start_server

RAGGED = """
    max_batch_size: 8
    input { name: "INPUT0" data_type: TYPE_FP32 dims: [-1, -1] allow_ragged_batch: true }
    output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [-1, -1] }
    batch_output { target_name: "OUTPUT0" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "INPUT0" }
"""


@pytest.mark.parametrize("place", ["thread", "process"])
def test_requests_of_different_shapes_share_a_batch(tmp_path: Path, place: str) -> None:
    text = SEGMENTS + parameter("isolation", place)
    write_ir(tmp_path, onnx_models.segments())
    (tmp_path / "model.onnx").unlink()
    (tmp_path / "m" / "config.pbtxt").write_text('backend: "openvino"' + text)
    with start_server(tmp_path) as server:
        check_segments(server.http, "m")


def test_inputs_that_are_reshaped_stay_flat_if_they_are_ragged(tmp_path: Path) -> None:
    flat = onnx_models.identity(dims=["n"], batching=False)
    model = load_ir(tmp_path, flat, RAGGED + parameter("RESHAPE_IO_LAYERS", "YES"))
    values = [np.arange(6, dtype=np.float32).reshape(1, 2, 3), np.ones((2, 1, 1), np.float32)]
    answers = model.run(*[request({"INPUT0": each}) for each in values])
    assert [answer.outputs["OUTPUT0"].array.tolist() for answer in answers] == [
        each.tolist() for each in values
    ]


def test_flat_input_of_one_size_takes_any(tmp_path: Path) -> None:
    model = load_ir(tmp_path, onnx_models.identity(dims=[8], batching=False), RAGGED)
    values = [np.ones((1, 2, 3), np.float32), np.zeros((1, 0, 4), np.float32), np.ones((2, 1, 1), np.float32)]
    answers = model.run(*[request({"INPUT0": each}) for each in values])
    assert [answer.outputs["OUTPUT0"].array.tolist() for answer in answers] == [
        each.tolist() for each in values
    ]


@pytest.mark.parametrize("datatype", [FP16, BF16, INT64], ids=str)
def test_ragged_inputs_have_any_datatype(tmp_path: Path, datatype: Datatype) -> None:
    number = {FP16: 10, BF16: 16, INT64: 7}[datatype]
    flat = onnx_models.identity(number, dims=["n"], batching=False)
    model = load_ir(tmp_path, flat, RAGGED.replace("TYPE_FP32", datatype.config_name))
    values = [np.arange(4).reshape(1, 2, 2).astype(datatype.numpy), np.ones((1, 1, 1), datatype.numpy)]
    answers = model.run(*[request({"INPUT0": wire(each, datatype)}) for each in values])
    assert [answer.outputs["OUTPUT0"].array.tolist() for answer in answers] == [
        each.tolist() for each in values
    ]


def test_ragged_inputs_are_refused_for_a_model_of_one_batch_size(tmp_path: Path) -> None:
    text = RAGGED + parameter("SKIP_OV_DYNAMIC_BATCHSIZE", "YES")
    with pytest.raises(InvalidArgumentError, match=r"'INPUT0' is ragged, so that .* remove the parameter"):
        load_ir(tmp_path, onnx_models.identity(dims=["n"], batching=False), text)


def test_a_flat_input_is_not_taken_for_rows_that_are_filled_up(tmp_path: Path) -> None:
    two = onnx.numpy_helper.from_array(np.array([2, 4], np.int64), "S")
    stuck = onnx_models.build(
        [onnx.helper.make_node("Reshape", ["INPUT0", "S"], ["OUTPUT0"])],
        {"INPUT0": (onnx_models.FLOAT, [8])},
        {"OUTPUT0": (onnx_models.FLOAT, [2, 4])},
        initializers=[two],
    )
    model = load_ir(tmp_path, stuck, RAGGED)
    assert model(INPUT0=np.arange(8, dtype=np.float32).reshape(1, 2, 4))["OUTPUT0"].shape == (1, 2, 4)
    with pytest.raises(InternalError, match="openvino error"):
        model(INPUT0=np.ones((1, 1, 7), np.float32))


def test_an_output_that_is_scattered_may_have_any_shape(tmp_path: Path) -> None:
    text = """
        max_batch_size: 8
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [2] }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [2] }
        batch_output { target_name: "OUTPUT0" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: "INPUT0" }
    """
    model = load_ir(tmp_path, onnx_models.identity(dims=[2]), text)
    assert model(INPUT0=floats([1, 2], [3, 4]))["OUTPUT0"].tolist() == [[1, 2], [3, 4]]
