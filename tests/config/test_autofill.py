"""Backends told by file names."""

from pathlib import Path

import pytest

from halimede.config.autofill import autofill
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.parse import parse_text
from halimede.core.errors import InvalidArgumentError


def filled(text: str, directory: Path, *files: str) -> tuple[str, str, str]:
    """Backend, platform and model file name after auto-completion."""
    for file in files:
        path = directory / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.endswith("/"):
            path.mkdir()
        else:
            path.touch()
    config = parse_text(text, "m")
    autofill(config, directory.name, directory)
    assert config.name == directory.name
    return config.backend, config.platform, config.default_model_filename


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["1/model.onnx"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        (["1/model.onnx/"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        (["1/model.savedmodel/"], ("tensorflow", "tensorflow_savedmodel", "model.savedmodel")),
        (["1/model.graphdef"], ("tensorflow", "tensorflow_graphdef", "model.graphdef")),
        (["1/model.plan"], ("tensorrt", "tensorrt_plan", "model.plan")),
        (["1/model.xml"], ("openvino", "", "model.xml")),
        (["1/model.pt"], ("pytorch", "pytorch_libtorch", "model.pt")),
        (["1/model.pt2"], ("pytorch", "torch_aoti", "model.pt2")),
        (["1/model.py"], ("python", "", "model.py")),
        (["1/model.dali"], ("dali", "", "model.dali")),
        (["1/dali.py"], ("dali", "", "dali.py")),
        (["1/model.py", "1/model.onnx"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        (["1/model.savedmodel", "1/model.py"], ("python", "", "model.py")),
        # the first version as text, not as number; what is no version does not count
        (["9/model.py", "10/model.onnx", "01/model.plan", "a/x"], ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
    ],
)  # fmt: skip
def test_backend_is_told_by_the_file(
    tmp_path: Path, files: list[str], expected: tuple[str, str, str]
) -> None:
    assert filled("", tmp_path, *files) == expected


@pytest.mark.parametrize(
    ("text", "files", "expected"),
    [
        ('backend: "pytorch" runtime: "model.py"', ["1/model.pt", "1/model.py"], "model.py"),
        ('backend: "pytorch" runtime: "model.py"', ["1/model.pt"], "model.pt"),
        ('backend: "pytorch"', ["1/model.pt", "1/model.py"], "model.pt"),
        ('backend: "pytorch"', ["1/model.py"], "model.py"),
    ],
)
def test_a_module_of_python_code_is_told_by_its_runtime_or_its_file(
    tmp_path: Path, text: str, files: list[str], expected: str
) -> None:
    assert filled(text, tmp_path, *files) == ("pytorch", "pytorch_libtorch", expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('backend: "onnxruntime"', ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ('platform: "onnxruntime_onnx"', ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        (
            'backend: "onnxruntime" default_model_filename: "a.onnx"',
            ("onnxruntime", "onnxruntime_onnx", "a.onnx"),
        ),
        ('default_model_filename: "model.onnx"', ("onnxruntime", "onnxruntime_onnx", "model.onnx")),
        ('default_model_filename: "a.onnx"', ("", "", "a.onnx")),
        ('platform: "pytorch_libtorch"', ("pytorch", "pytorch_libtorch", "model.pt")),
        ('platform: "libtorch"', ("pytorch", "libtorch", "model.pt")),
        ('platform: "torch_aoti" backend: "pytorch"', ("pytorch", "torch_aoti", "model.pt2")),
        ('backend: "pytorch"', ("pytorch", "pytorch_libtorch", "model.pt")),
        ('backend: "tensorflow"', ("tensorflow", "", "")),
        ('platform: "tensorflow_graphdef"', ("tensorflow", "tensorflow_graphdef", "model.graphdef")),
        ('backend: "python"', ("python", "", "model.py")),
        (
            'platform: "onnxruntime_onnx" backend: "python"',
            ("python", "onnxruntime_onnx", "model.py"),
        ),
        ('backend: "identity"', ("identity", "", "")),
        ('backend: "fil" platform: "anything"', ("fil", "anything", "")),
        ('platform: "ensemble"', ("", "ensemble", "")),
        ("ensemble_scheduling { }", ("", "", "")),
    ],
)
def test_backend_and_platform_complete_each_other(
    tmp_path: Path, text: str, expected: tuple[str, str, str]
) -> None:
    assert filled(text, tmp_path) == expected


def test_backend_decides_between_files(tmp_path: Path) -> None:
    told = filled('backend: "pytorch"', tmp_path, "1/model.onnx", "1/model.pt2")
    assert told == ("pytorch", "torch_aoti", "model.pt2")


def test_backend_is_told_by_the_models_name(tmp_path: Path) -> None:
    directory = tmp_path / "model.identity"
    directory.mkdir()
    assert filled("", directory) == ("identity", "", "model.identity")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            (
                "Invalid model name: Could not determine backend for model 'm' with no backend in model configuration. "
                "Expected model name of the form 'model.<backend_name>'."
            ),
        ),
        (
            'name: "other"',
            "unexpected directory name 'm' for model 'other', directory name must equal model name",
        ),
        ('platform: "onnx"', "unexpected platform type 'onnx' for m"),
        (
            'platform: "onnxruntime_onnx" backend: "pytorch"',
            "unexpected 'platform' and 'backend' pair, got:onnxruntime_onnx, pytorch",
        ),
        (
            'platform: "onnx" backend: "onnxruntime"',
            "unexpected 'platform' and 'backend' pair, got:onnx, onnxruntime",
        ),
    ],
)
def test_contradictions_are_told(tmp_path: Path, text: str, message: str) -> None:
    config: ModelConfig = parse_text(text, "m")
    with pytest.raises(InvalidArgumentError) as caught:
        autofill(config, "m", tmp_path / "m")
    assert caught.value.message == message


def test_files_tell_the_backend_where_no_directory_is_a_versions(tmp_path: Path) -> None:
    (tmp_path / "m" / "01").mkdir(parents=True)
    (tmp_path / "m" / "01" / "model.py").touch()
    config = ModelConfig()
    autofill(config, "m", tmp_path / "m")
    assert config.backend == "python"


@pytest.mark.parametrize("backend", ["python", "of_our_own"])
def test_platform_says_nothing_beside_a_backend_that_is_tied_to_none(tmp_path: Path, backend: str) -> None:
    config: ModelConfig = parse_text(f'platform: "onnxruntime_onnx" backend: "{backend}"', "m")
    autofill(config, "m", tmp_path / "m")
    assert (config.backend, config.platform) == (backend, "onnxruntime_onnx")


def test_name_that_no_text_can_hold_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="model name must be UTF-8"):
        autofill(ModelConfig(), "m\udcff", tmp_path)
