"""OpenVINO models whose sequences have states and control inputs."""

from pathlib import Path

import pytest

pytest.importorskip("openvino", reason="needs OpenVINO: pip install 'halimede[openvino]'")

from tests.backends.sequences import ACCUMULATOR, check_accumulator
from tests.frameworks.openvino.test_openvino import load_ir, load_onnx, parameter
from tests.support import onnx_models

TENSORS = """
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 2 ] }
"""


def test_states_and_controls_of_an_onnx_file(tmp_path: Path) -> None:
    text = "max_batch_size: 4" + TENSORS + ACCUMULATOR
    check_accumulator(load_onnx(tmp_path, onnx_models.restartable_accumulator(), text))


def test_tensors_are_completed_without_states_and_controls(tmp_path: Path) -> None:
    check_accumulator(load_ir(tmp_path, onnx_models.restartable_accumulator(), ACCUMULATOR))


def test_batches_that_are_filled_up_keep_no_more_rows_than_they_have(tmp_path: Path) -> None:
    text = "max_batch_size: 4" + TENSORS + ACCUMULATOR + parameter("ENABLE_BATCH_PADDING", "YES")
    check_accumulator(load_ir(tmp_path, onnx_models.restartable_accumulator(), text))
