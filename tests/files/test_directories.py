import json
import re
from pathlib import Path

import onnx
import pytest
from google.protobuf import text_format

from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.model_files import advice
from halimede.files.directories import link_model
from halimede.files.repository import given_repository
from halimede.files.targets import TargetError
from tests.support.onnx_models import FLOAT, build

XGBOOST = '{"learner": {}}'
PYTHON = "class TritonPythonModel:\n    pass\n"


def files_of(directory: Path) -> list[str]:
    """The files below a directory, links followed."""
    found = []
    for each in sorted(directory.iterdir()):
        found += [f"{each.name}/{name}" for name in files_of(each)] if each.is_dir() else [each.name]
    return found


def test_a_file_becomes_a_version(tmp_path: Path) -> None:
    (tmp_path / "iris.json").write_text(XGBOOST)
    repository = tmp_path / "repository"
    repository.mkdir()
    assert link_model(repository, "iris", tmp_path / "iris.json") == "trees"
    assert files_of(repository) == ["iris/1/iris.json"]


def test_weights_beside_an_onnx_file_come_with_it(tmp_path: Path) -> None:
    weights = onnx.helper.make_tensor("w", FLOAT, [4, 4], bytes(64), raw=True)
    model = build(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        {"x": (FLOAT, ["n", 4])},
        {"y": (FLOAT, ["n", 4])},
        [weights],
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "unrelated.bin").touch()
    onnx.save(
        model,
        str(tmp_path / "big.onnx"),
        save_as_external_data=True,
        location="data/weights.bin",
        size_threshold=0,
    )
    repository = tmp_path / "repository"
    repository.mkdir()
    link_model(repository, "big", tmp_path / "big.onnx")
    assert files_of(repository) == ["big/1/big.onnx", "big/1/data/weights.bin"]


def test_a_python_file_keeps_what_lies_beside_it(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "embed.py").write_text(PYTHON)
    (source / "helper.py").touch()
    repository = tmp_path / "repository"
    repository.mkdir()
    assert link_model(repository, "embed", source / "embed.py") == "Python model"
    assert files_of(repository / "embed" / "1") == ["embed.py", "helper.py"]
    config = text_format.Parse((repository / "embed" / "config.pbtxt").read_text(), ModelConfig())
    assert (config.backend, config.default_model_filename) == ("python", "embed.py")


def test_a_model_directory_may_get_another_name(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "1").mkdir(parents=True)
    (source / "1" / "model.py").write_text(PYTHON)
    (source / "config.pbtxt").write_text('name: "source"\nbackend: "python"\n')
    repository = tmp_path / "repository"
    repository.mkdir()
    assert link_model(repository, "other", source) == "model directory"
    config = text_format.Parse((repository / "other" / "config.pbtxt").read_text(), ModelConfig())
    assert (config.name, config.backend) == ("", "python")
    assert (repository / "other" / "1" / "model.py").is_file()


def test_a_saved_model_and_a_directory_with_one_model_are_versions(tmp_path: Path) -> None:
    saved, plain = tmp_path / "saved", tmp_path / "plain"
    for each in (saved, plain):
        each.mkdir()
    (saved / "saved_model.pb").touch()
    (plain / "net.onnx").touch()
    (plain / "labels.txt").touch()
    repository = tmp_path / "repository"
    repository.mkdir()
    assert link_model(repository, "saved", saved) == "TensorFlow model"
    assert link_model(repository, "plain", plain) == "ONNX model"
    assert files_of(repository) == [
        "plain/1/labels.txt",
        "plain/1/net.onnx",
        "plain/config.pbtxt",
        "saved/1/model.savedmodel/saved_model.pb",
    ]


@pytest.mark.parametrize(
    ("files", "given", "text"),
    [
        ({"notes.txt": "hello"}, "notes.txt", "is no model file that is known here. Known are files of ONNX"),
        ({"m.pkl": ""}, "m.pkl", "cannot be served (pickles are never loaded"),
        ({"m.safetensors": ""}, "m.safetensors", "it holds weights without the program that uses them"),
        ({"app.py": "def f(x: int) -> int: ..."}, "app.py", "has no class TritonPythonModel; to serve a function"),
        ({"app.py": "x = 1"}, "app.py", "has neither a class TritonPythonModel nor a function to serve"),
        ({"d/a.onnx": "", "d/b.onnx": ""}, "d", "has several models; name those to serve"),
        ({"d/a/1/model.onnx": "", "d/b/1/model.onnx": ""}, "d", "is a repository of several models; serve it"),
        ({"d/model.safetensors": ""}, "d", "it holds weights without the program that uses them"),
        ({"d/readme": ""}, "d", "has no model: neither config.pbtxt nor a version such as 1/"),
    ],
)  # fmt: skip
def test_what_is_no_model_is_told_with_what_would_be(
    tmp_path: Path, files: dict[str, str], given: str, text: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    with pytest.raises(TargetError, match=re.escape(text)), given_repository([tmp_path / given]):
        pass


def test_two_models_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.onnx").touch()
    paths = [tmp_path / name / "net.onnx" for name in ("a", "b")]
    with (
        pytest.raises(TargetError, match=r"would both be model 'net'; name one: other_name="),
        given_repository(paths),
    ):
        pass


def test_the_repository_is_removed_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").touch()
    with given_repository([tmp_path / "net.onnx"]) as repository:
        assert [(each.name, each.kind) for each in repository.models] == [("net", "ONNX model")]
        assert repository.directory.is_dir()
    assert not repository.directory.exists()
    assert (tmp_path / "net.onnx").is_file()


def write_language_model(directory: Path, *files: str, architecture: str = "LlamaForCausalLM") -> Path:
    """A directory as `save_pretrained` writes it, but for the content of its files."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    for each in ("tokenizer.json", *files):
        (directory / each).touch()
    return directory


@pytest.mark.parametrize(
    ("file", "architecture", "backend"),
    [
        ("model.safetensors", "LlamaForCausalLM", "transformers"),
        ("model-00001-of-00002.safetensors", "GPT2LMHeadModel", "transformers"),
        ("openvino_model.xml", "Qwen2ForCausalLM", "openvino_genai"),
    ],
)
def test_a_directory_of_a_language_model_is_served_as_it_is(
    tmp_path: Path, file: str, architecture: str, backend: str
) -> None:
    source = write_language_model(tmp_path / "llama", file, architecture=architecture)
    repository = tmp_path / "repository"
    repository.mkdir()
    assert link_model(repository, "llama", source) == "language model"
    config = text_format.Parse((repository / "llama" / "config.pbtxt").read_text(), ModelConfig())
    assert config == ModelConfig(backend=backend)
    assert (repository / "llama" / "1").resolve() == source


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("pytorch_model.bin", "has pickled weights, which are never loaded.*save_pretrained"),
        ("notes.txt", "has a config.json of a language model and no weights, such as model.safetensors"),
    ],
)
def test_a_language_model_whose_weights_cannot_be_loaded(tmp_path: Path, file: str, reason: str) -> None:
    source = write_language_model(tmp_path / "llama", file)
    with pytest.raises(TargetError, match=reason):
        link_model(tmp_path, "other", source)


def test_weights_of_a_language_model_stand_for_a_part_of_its_directory(tmp_path: Path) -> None:
    source = write_language_model(tmp_path / "llama", "model.safetensors")
    with pytest.raises(TargetError, match=f"is a part of the model in its directory: serve that, {source}$"):
        link_model(tmp_path, "other", source / "model.safetensors")


def test_advice_for_a_language_model_in_a_repository_names_its_backend(tmp_path: Path) -> None:
    write_language_model(tmp_path / "llama" / "1", "model.safetensors")
    found = advice(tmp_path / "llama")
    assert found is not None
    assert found.fix == 'backend: "transformers"'
    bare = write_language_model(tmp_path / "bare", "model.safetensors")
    found = advice(bare)
    assert found is not None
    assert found.reason == f"{bare} itself is a language model of transformers"
