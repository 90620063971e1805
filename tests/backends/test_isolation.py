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
    expected = "model 'm': parameter 'isolation' must be one of 'none', 'process', 'thread', got 'container'"
    with pytest.raises(InvalidArgumentError, match=expected):
        runs_in_process(source("onnxruntime", "container"))


@pytest.mark.parametrize("word", ["none", "thread"])
def test_two_words_mean_the_process_of_the_server(word: str) -> None:
    assert not runs_in_process(source("tensorflow", word))


def test_python_models_have_processes_unless_they_say_otherwise() -> None:
    assert runs_in_process(source("python"))
    assert runs_in_process(source("python", "process"))
    assert not runs_in_process(source("python", "none"))
