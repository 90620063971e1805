from pathlib import Path

import onnx
import pytest

from halimede.cli.main import main
from tests.support.onnx_models import FLOAT, build


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture
def onnx_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    model = build(
        [onnx.helper.make_node("Add", ["x", "x"], ["y"])],
        {"x": (FLOAT, ["n", 2])},
        {"y": (FLOAT, ["n", 2])},
    )
    path = tmp_path / "double.onnx"
    onnx.save(model, str(path))
    return path


def test_a_file_becomes_a_repository_that_check_finds_sound(
    onnx_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("init", "double.onnx") == 0
    out = capsys.readouterr().out
    assert out.splitlines() == [
        "models/double: ONNX model",
        "  1/double.onnx",
        "  config.pbtxt",
        "check it: halimede check models",
        "serve it: halimede serve --model-repository=models",
    ]
    text = Path("models/double/config.pbtxt").read_text()
    assert 'input { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }' in text
    assert 'default_model_filename: "double.onnx"' in text
    assert "# instance_group [ { count: 2 kind: KIND_CPU } ]" in text
    assert run("check", "models") == 0
    assert Path("models/double/1/double.onnx").read_bytes() == onnx_file.read_bytes()
    assert not Path("models/double/1/double.onnx").is_symlink()


def test_what_is_commented_out_is_right_when_it_is_taken_in(onnx_file: Path) -> None:
    assert run("init", "double.onnx") == 0
    config = Path("models/double/config.pbtxt")
    lines = []
    for line in config.read_text().splitlines():
        body = line.removeprefix("# ")
        code = body.startswith(("instance_group", "response_cache", "model_warmup", "  ", "}", "parameters"))
        lines.append(body if code else line)
    config.write_text("\n".join(lines))
    assert "\nmodel_warmup [ {\n" in config.read_text()
    assert run("check", "models") == 0


@pytest.mark.usefixtures("onnx_file")
def test_names_links_and_repositories_may_be_chosen() -> None:
    assert run("init", "twice=double.onnx", "--link", "--model-repository=served/here") == 0
    link = Path("served/here/twice/1/double.onnx")
    assert link.is_symlink()
    assert link.is_file()


@pytest.mark.usefixtures("onnx_file")
def test_a_python_file_is_copied_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "embed.py").write_text(
        "class TritonPythonModel:\n    def execute(self, requests):\n        return []\n"
    )
    assert run("init", "embed.py") == 0
    assert sorted(each.name for each in Path("models/embed/1").iterdir()) == ["embed.py"]
    out = capsys.readouterr().out
    assert "still to be done: " in out
    text = Path("models/embed/config.pbtxt").read_text()
    assert '# input { name: "INPUT__0" data_type: TYPE_FP32 dims: [ 4 ] }' in text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("double.onx", "did you mean 'double.onnx'?"),
        ("notes.txt", "is no model file that is known here"),
        ("app.py:f", "'app.py:f' is a function, which needs no repository: serve it with `halimede serve app.py:f`"),
        ("ready", "has the layout of a repository's model already: move it into 'models'"),
        ("there=double.onnx", "'models/there' is there already; give the model another name, such as other=double"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("onnx_file")
def test_misuse_is_one_line(
    tmp_path: Path, given: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "app.py").write_text("def f(x: float) -> float:\n    return x\n")
    (tmp_path / "ready" / "1").mkdir(parents=True)
    (tmp_path / "models" / "there").mkdir(parents=True)
    assert run("init", given) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1


def test_optional_inputs_and_streams_stay_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.py").write_text(
        "class TritonPythonModel:\n"
        "    @staticmethod\n"
        "    def auto_complete_config(config):\n"
        "        config.add_input({'name': 'x', 'data_type': 'TYPE_FP32', 'dims': [1]})\n"
        "        config.add_input({'name': 'n', 'data_type': 'TYPE_FP32', 'dims': [1], 'optional': True})\n"
        "        config.add_output({'name': 'y', 'data_type': 'TYPE_FP32', 'dims': [1]})\n"
        "        config.set_model_transaction_policy({'decoupled': True})\n"
        "        return config\n"
        "    def execute(self, requests):\n"
        "        return None\n"
    )
    assert run("init", "words.py") == 0
    text = Path("models/words/config.pbtxt").read_text()
    assert "model_transaction_policy { decoupled: true }" in text
    assert 'input { name: "n" data_type: TYPE_FP32 dims: [ 1 ] optional: true }' in text
    assert 'input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] }' in text
