from pathlib import Path

import pytest

from halimede.backends import isolation
from halimede.backends.base import ModelSource
from halimede.backends.isolation import runs_in_process
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import InvalidArgumentError


def source(backend: str, choice: str | None = None) -> ModelSource:
    config = ModelConfig(name="m", backend=backend)
    if choice is not None:
        config.parameters["isolation"].string_value = choice
    return ModelSource("m", 1, Path("/models/m"), config)


def test_the_parameter_says_where_instances_run() -> None:
    assert runs_in_process(source("onnxruntime", "process"))
    assert not runs_in_process(source("onnxruntime", "thread"))


def test_without_the_parameter_the_backend_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not runs_in_process(source("onnxruntime"))
    monkeypatch.setattr(isolation, "DEFAULTS", {"fragile": lambda source: source.version == 1})
    assert runs_in_process(source("fragile"))
    assert not runs_in_process(source("fragile", "thread"))
    assert not runs_in_process(source("onnxruntime"))


def test_a_platform_stands_for_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "DEFAULTS", {"pytorch": lambda source: True})
    config = ModelConfig(name="m", platform="pytorch_libtorch")
    assert runs_in_process(ModelSource("m", 1, Path("/models/m"), config))


def test_another_value_is_refused() -> None:
    expected = "model 'm': parameter 'isolation' must be one of 'process', 'thread', got 'container'"
    with pytest.raises(InvalidArgumentError, match=expected):
        runs_in_process(source("onnxruntime", "container"))


def test_python_models_always_have_processes() -> None:
    assert runs_in_process(source("python"))
    assert runs_in_process(source("python", "process"))
    with pytest.raises(
        InvalidArgumentError, match="'isolation' cannot be 'thread' for a model of the backend"
    ):
        runs_in_process(source("python", "thread"))
