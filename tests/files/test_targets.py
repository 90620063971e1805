import re
from pathlib import Path

import pytest

from halimede.files.targets import TargetError, functions_in, read_target
from halimede.functions.declaration import DeclarationError

MODULE = """
from halimede import model, serve


def classify(x: float) -> float:
    return x


@model(name="other")
class Embedder:
    def __call__(self, x: float) -> float:
        return x


def _private(x: float) -> float:
    return x


number = 3
embedder = Embedder()
serve(classify)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with some files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "resnet50.onnx").touch()
    (tmp_path / "iris").mkdir()
    (tmp_path / "iris" / "xgboost.json").touch()
    (tmp_path / "a=b.onnx").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("given", "name", "path"),
    [
        ("resnet50.onnx", "resnet50", "resnet50.onnx"),
        ("classifier=./resnet50.onnx", "classifier", "resnet50.onnx"),
        ("iris/xgboost.json", "iris", "iris/xgboost.json"),
        ("./iris/", "iris", "iris"),
        ("a=b.onnx", "a_b", "a=b.onnx"),
    ],
)
@pytest.mark.usefixtures("here")
def test_a_path_is_a_model_of_its_name(given: str, name: str, path: str) -> None:
    target = read_target(given)
    assert target.name == name
    assert target.what == Path(path)


def test_a_function_is_found_by_module_or_by_file(here: Path) -> None:
    (here / "served_module.py").write_text(MODULE)
    (here / "sub").mkdir()
    (here / "sub" / "served_file.py").write_text(MODULE)
    for given, name in (
        ("served_module:classify", "classify"),
        ("served_module:Embedder", "other"),
        ("mine=served_module:classify", "mine"),
        ("served_module:embedder", "other"),
        ("sub/served_file.py:classify", "classify"),
    ):
        target = read_target(given)
        assert target.name == name
        assert callable(target.what)
    assert functions_in(here / "served_module.py") == ["classify", "Embedder"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("resnet5.onnx", "'resnet5.onnx' is neither a file or directory nor module:function; did you mean"),
        ("x=nothing", "write the path of a model, such as ./nothing.onnx, or nothing:NAME"),
        ("no_such_module:f", "there is no module 'no_such_module'"),
        ("bad_module:f", "module 'bad_module' cannot be imported: ZeroDivisionError: division by zero"),
        ("good_module:clasify", "module 'good_module' has no 'clasify'; did you mean 'classify'?"),
        ("good_module:number", "'good_module:number' is neither a function nor a class, but of type int"),
        ("nowhere/app.py:f", "'nowhere/app.py' is neither a file or directory nor module:function"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_told_with_what_may_be_meant(here: Path, given: str, text: str) -> None:
    (here / "bad_module.py").write_text("1 / 0\n")
    (here / "good_module.py").write_text(MODULE)
    with pytest.raises(TargetError, match=re.escape(text)):
        read_target(given)


def test_an_object_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(DeclarationError, match="an object of class 'object' has no method __call__"):
        read_target(object())
