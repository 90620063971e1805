"""TensorFlow models whose sequences have states and control inputs."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(  # which imports it without Keras
    "halimede.backends.tensorflow.runtime", reason="needs TensorFlow: pip install 'halimede[tensorflow]'"
)

from halimede.backends.tensorflow.runtime import v1
from tests.backends.helpers import Loaded
from tests.backends.sequences import ACCUMULATOR, check_accumulator
from tests.frameworks.tensorflow.tensorflow_models import frozen, load_saved, spec

TENSORS = """
    max_batch_size: 4
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 2 ] }
"""
INPUTS = (spec("INPUT"), spec("START", (None, 1)), spec("SUM_IN"))


def accumulate(INPUT: Any, START: Any, SUM_IN: Any) -> dict[str, Any]:  # noqa: N803 - names of the model's inputs
    total = INPUT + (1 - START) * SUM_IN
    return {"OUTPUT": total * 1, "SUM_OUT": total}


def test_states_and_controls_of_a_saved_model(tmp_path: Path) -> None:
    check_accumulator(load_saved(tmp_path, accumulate, INPUTS, TENSORS + ACCUMULATOR))


def test_tensors_are_completed_without_states_and_controls(tmp_path: Path) -> None:
    check_accumulator(load_saved(tmp_path, accumulate, INPUTS, ACCUMULATOR))


def test_states_and_controls_of_a_frozen_graph(tmp_path: Path) -> None:
    def build() -> None:
        given = [
            v1.placeholder("float32", [None, width], name)
            for name, width in (("INPUT", 2), ("START", 1), ("SUM_IN", 2))
        ]
        total = v1.identity(given[0] + (1 - given[1]) * given[2], "SUM_OUT")
        v1.identity(total, "OUTPUT")

    check_accumulator(Loaded(frozen(tmp_path, build, TENSORS + ACCUMULATOR)))
