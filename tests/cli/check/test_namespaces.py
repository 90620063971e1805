import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from halimede.cli.check.command import command
from tests.support import onnx_models

STEP = """
platform: "ensemble" max_batch_size: 0
input {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1, 16 ] }}
output {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1, 16 ] }}
ensemble_scheduling {{ step {{
  model_name: "{0}" model_version: {1}
  input_map {{ key: "INPUT0" value: "INPUT0" }} output_map {{ key: "OUTPUT0" value: "OUTPUT0" }}
}} }}
"""


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    a, b = tmp_path / "a", tmp_path / "b"
    for repository in (a, b):
        onnx_models.write_model(repository, "same", onnx_models.identity())
    return a, b


def report(*places: Path, namespacing: bool = True) -> dict[str, Any]:
    flags = ["--model-namespacing"] if namespacing else []
    result = CliRunner().invoke(command, [*map(str, places), "--format=json", *flags])
    found: dict[str, Any] = json.loads(result.output)
    assert result.exit_code == bool(found["problems"])
    return found


def test_equal_names_are_a_problem_only_without_namespacing(places: tuple[Path, Path]) -> None:
    assert len(report(*places, namespacing=False)["problems"]) == 2
    assert report(*places)["problems"] == []


def test_ensembles_are_held_against_models_of_their_own_repository(places: tuple[Path, Path]) -> None:
    a, b = places
    onnx_models.write_model(a, "same", onnx_models.identity(), version=3)
    for repository in places:
        onnx_models.write_model(repository, "e", None, STEP.format("same", 3))
    (problem,) = report(*places)["problems"]
    assert problem["file"] == str(b / "e" / "config.pbtxt")
    assert problem["model"] == "e"
    assert problem["message"].endswith(f"depends on '{b}::same' whose required version 3 is not loaded.")
    assert problem["fix"] == "model_version: -1"


def test_a_step_that_several_repositories_have_is_told(places: tuple[Path, Path], tmp_path: Path) -> None:
    onnx_models.write_model(tmp_path / "c", "e", None, STEP.format("same", -1))
    (problem,) = report(*places, tmp_path / "c")["problems"]
    assert problem["message"].endswith("contains models that are not available or ambiguous: same")
