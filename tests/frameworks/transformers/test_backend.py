"""Directories of `transformers`, opened by the backend."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs transformers: pip install 'halimede[transformers]'")

from halimede.backends.base import BackendOptions, InstanceSpec, ModelSource
from halimede.backends.isolation import runs_in_process
from halimede.backends.transformers.backend import TransformersModel
from halimede.config.parse import parse_text
from halimede.core.errors import HalimedeError, InvalidArgumentError, NotFoundError, UnsupportedError
from tests.frameworks.transformers import tiny_models


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A model, whose version directory it is."""
    tiny_models.save("llama", tmp_path / "1")
    return tmp_path / "1"


def source(directory: Path, **parameters: str) -> ModelSource:
    text = "".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }} '
        for key, value in parameters.items()
    )
    config = parse_text(f'name: "m" backend: "transformers" {text}', "test")
    return ModelSource("m", 1, directory.parent, config)


def opened(directory: Path, **parameters: str) -> TransformersModel:
    return TransformersModel(source(directory, **parameters), BackendOptions())


def refusal(directory: Path, **parameters: str) -> HalimedeError:
    with pytest.raises(HalimedeError) as caught:
        opened(directory, **parameters).create_instance(InstanceSpec("m_0"))
    return caught.value


def change(path: Path, **members: Any) -> None:
    document = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(document | members))


def test_a_directory_is_all_that_is_needed(directory: Path) -> None:
    model = opened(directory)
    model.complete_config()
    model.check_config()
    model.create_instance(InstanceSpec("m_0")).close()
    model.close()


def test_it_runs_in_processes_of_its_own_only(directory: Path) -> None:
    assert runs_in_process(source(directory))
    assert runs_in_process(source(directory, isolation="process"))
    with pytest.raises(UnsupportedError, match="runs models in processes of their own only"):
        runs_in_process(source(directory, isolation="none"))


def test_without_config_json_the_error_says_so(directory: Path) -> None:
    (directory / "config.json").unlink()
    error = refusal(directory)
    assert isinstance(error, NotFoundError)
    assert "config.json': a model directory of transformers has one" in error.message


def test_an_unknown_kind_of_model_is_refused(directory: Path) -> None:
    change(directory / "config.json", model_type="crystal_ball")
    error = refusal(directory)
    assert isinstance(error, InvalidArgumentError)
    assert "crystal_ball" in error.message


@pytest.mark.parametrize("content", [None, b"{", b"{}"])
def test_a_tokenizer_that_cannot_be_loaded_is_refused(directory: Path, content: bytes | None) -> None:
    if content is None:
        (directory / "tokenizer.json").unlink()
    else:
        (directory / "tokenizer.json").write_bytes(content)
    assert refusal(directory).message.startswith(f"cannot load the tokenizer in '{directory}': ")


@pytest.mark.parametrize("content", [None, b"nothing"])
def test_weights_that_cannot_be_loaded_are_refused(directory: Path, content: bytes | None) -> None:
    if content is None:
        (directory / "model.safetensors").unlink()
    else:
        (directory / "model.safetensors").write_bytes(content)
    assert refusal(directory).message.startswith(f"cannot load the model in '{directory}': ")


def test_pickled_weights_are_not_loaded(directory: Path) -> None:
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    assert refusal(directory).message.startswith(f"cannot load the model in '{directory}': ")


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"max_num_seqs": "0"}, "'max_num_seqs' must be an integer of at least 1, got '0'"),
        ({"max_model_len": "129"}, "'max_model_len' is 129, but the model's context holds 128 tokens"),
        ({"max_num_batched_tokens": "x"}, "'max_num_batched_tokens' must be an integer of at least 1"),
        ({"dtype": "int4"}, "'dtype' must be one of 'auto', 'float32', 'bfloat16', 'float16', got 'int4'"),
    ],
)
def test_wrong_parameters_are_refused_by_name(directory: Path, parameters: dict[str, str], told: str) -> None:
    assert told in refusal(directory, **parameters).message


def test_a_file_with_wrong_defaults_is_refused(directory: Path) -> None:
    path = directory / "generation_config.json"
    change(path, temperature=-1)
    assert refusal(directory).message == (
        f"'{path}': sampling_parameters: 'temperature' must be a number from 0 to 100, got '-1'"
    )
    path.write_text("[]")
    assert refusal(directory).message == f"'{path}' must be a JSON object"


def test_a_model_that_does_not_say_its_context_needs_the_parameter(tmp_path: Path) -> None:
    tiny_models.save("bloom", tmp_path / "1")
    document = json.loads((tmp_path / "1" / "config.json").read_text())
    document.pop("max_position_embeddings", None)
    (tmp_path / "1" / "config.json").write_text(json.dumps(document))
    assert "set the parameter 'max_model_len'" in refusal(tmp_path / "1").message
    opened(tmp_path / "1", max_model_len="64").close()
