"""Backends that are written in Python: `--backend-directory`."""

import json
from collections.abc import Iterator

import numpy as np
import pytest

from tests.python_models.support import Models, serve_models

MULTIPLIER = """
import json
import os
import triton_python_backend_utils as pb_utils

import tools
import decimal

class TritonPythonModel:
    def initialize(self, args):
        with open(os.path.join(pb_utils.get_model_dir(), "model.json")) as file:
            self.factor = json.load(file)["factor"]
        self.name = __name__

    def execute(self, requests):
        if self.name not in ("multiplier.model", "decimal_backend.model"):
            raise AssertionError(self.name)
        assert decimal.Decimal(1) == 1
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("OUT", tools.times(request.inputs()[0].as_numpy(), self.factor))]
            )
            for request in requests
        ]
"""
CONFIG = """
backend: "BACKEND"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    backends = tmp_path_factory.mktemp("backends")
    for name in ("multiplier", "decimal"):
        (backends / name).mkdir()
        (backends / name / "model.py").write_text(MULTIPLIER)
        (backends / name / "tools.py").write_text("def times(array, factor):\n    return array * factor\n")
    with serve_models(tmp_path_factory.mktemp("models"), f"--backend-directory={backends}") as models:
        yield models


def write(models: Models, backend: str, factor: int = 1) -> str:
    """A new model of a backend, that is not loaded: its name."""
    name = models.new_name()
    directory = models.repository / name / "1"
    directory.mkdir(parents=True)
    (directory.parent / "config.pbtxt").write_text(CONFIG.replace("BACKEND", backend))
    (directory / "model.json").write_text(json.dumps({"factor": factor}))
    return name


def test_model_of_the_backend_has_files_of_its_own(models: Models) -> None:
    threefold, fourfold = (write(models, "multiplier", factor) for factor in (3, 4))
    models.http.load_model(threefold)
    models.http.load_model(fourfold)
    ones = np.ones(4, np.float32)
    assert models.infer(threefold, ones).tolist() == [3, 3, 3, 3]
    assert models.infer(fourfold, ones).tolist() == [4, 4, 4, 4]


def test_backend_called_like_a_package_can_import_that(models: Models) -> None:
    name = write(models, "decimal", 2)
    models.http.load_model(name)
    assert models.infer(name, np.ones(4, np.float32)).tolist() == [2, 2, 2, 2]


def test_backend_that_is_not_there_is_named(models: Models) -> None:
    name = write(models, "divider")
    with pytest.raises(Exception, match="unable to find backend library for backend 'divider'"):
        models.http.load_model(name)
