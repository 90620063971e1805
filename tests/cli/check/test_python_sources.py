from pathlib import Path

import pytest

from halimede.cli.check.python_sources import source_problems


def problems(path: Path, own_python: bool = False) -> list[tuple[int, str]]:
    return [(line, problem.message) for line, problem in source_problems("m", path, own_python)]


@pytest.mark.parametrize(
    "source",
    [
        "class TritonPythonModel:\n    pass\n",
        "from shared import TritonPythonModel\n",
        "from shared import Model as TritonPythonModel\n",
        "from shared import *\n",
        "class Model:\n    pass\nTritonPythonModel = Model\n",
        "try:\n    import torch\n    class TritonPythonModel: ...\nexcept ImportError:\n    raise\n",
    ],
)
def test_file_that_gives_the_class_is_sound(tmp_path: Path, source: str) -> None:
    path = tmp_path / "model.py"
    path.write_text(source)
    assert problems(path) == []


def test_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    assert problems(path) == [(0, f"Python model file not found in '{path}'")]


def test_syntax_error_has_its_line_unless_the_model_brings_another_python(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("x = 1\ndef f(:\n")
    [(line, message)] = problems(path)
    assert line == 2
    assert message.startswith("SyntaxError: ")
    assert problems(path, own_python=True) == []


def test_file_without_the_class(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("class Model: ...\n")
    assert problems(path) == [(0, "the file defines no class TritonPythonModel")]
