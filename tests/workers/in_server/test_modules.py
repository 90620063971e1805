"""Modules of instances, apart from each other and from those of the interpreter."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from halimede.workers.in_server.modules import ModelModules


@contextmanager
def modules(directory: Path, **files: str) -> Iterator[tuple[ModelModules, ModuleType]]:
    """An instance with those files, and the module `model`."""
    directory.mkdir(exist_ok=True)
    for name, source in files.items():
        (directory / f"{name}.py").write_text(source)
    made = ModelModules("m", [directory], {"given": ModuleType("given")}, print)
    try:
        yield made, made.load(directory / "model.py")
    finally:
        made.close()


def test_instances_have_modules_of_the_same_name_with_other_contents(tmp_path: Path) -> None:
    with (
        modules(tmp_path / "a", model="import helper", helper="value = 1") as (_, first),
        modules(tmp_path / "b", model="import helper", helper="value = 2") as (_, second),
    ):
        assert (first.helper.value, second.helper.value) == (1, 2)
        assert "helper" not in sys.modules


def test_functions_import_what_lies_beside_them_whenever_they_run(tmp_path: Path) -> None:
    source = "def late():\n    from helper import value\n    return value"
    with modules(tmp_path / "a", model=source, helper="value = 1") as (_, module):
        assert module.late() == 1


def test_packages_beside_the_model_are_found_with_what_they_hold(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("from . import inner")
    (tmp_path / "parts" / "inner.py").write_text("import parts\nvalue = 5")
    source = "import parts.inner\nimport parts.inner as alias\nfrom parts.inner import *"
    with modules(tmp_path, model=source) as (_, module):
        assert module.parts.inner is module.alias
        assert module.value == 5


def test_the_interpreters_modules_go_first(tmp_path: Path) -> None:
    with modules(tmp_path, model="import json, colorsys", json="", colorsys="") as (_, module):
        assert module.json is sys.modules["json"]
        assert module.colorsys is sys.modules["colorsys"]


def test_given_modules_take_the_place_of_others(tmp_path: Path) -> None:
    with modules(tmp_path, model="import given as one\ndef late():\n    import given\n    return given") as (
        _,
        module,
    ):
        assert module.late() is module.one


def test_what_is_missing_is_an_import_error(tmp_path: Path) -> None:
    with (
        pytest.raises(ModuleNotFoundError, match="No module named 'nowhere'"),
        modules(tmp_path, model="import helper", helper="import nowhere"),
    ):
        pass


def test_names_that_the_code_refers_to_are_known(tmp_path: Path) -> None:
    with modules(tmp_path, model="import helper", helper="class A:\n    def f(self, x): return x.exec()") as (
        made,
        _,
    ):
        assert {"helper", "exec"} <= made.names
        assert "sleep" not in made.names


def test_a_file_that_changed_is_read_again_and_nothing_is_left(tmp_path: Path) -> None:
    for value in (1, 2, 3):
        with modules(tmp_path, model="from helper import value", helper=f"value = {value}") as (made, module):
            assert module.value == value
        assert not [name for name in sys.modules if name.startswith(made.name)]
    assert not list(tmp_path.rglob("*.pyc"))


def test_what_the_interpreter_knows_of_other_directories_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.path_importer_cache, "/missing.zip", None)
    with modules(tmp_path / "a", model=""):
        assert "/missing.zip" in sys.path_importer_cache  # two threads that removed it would fail


class _Importing(str):
    """The name of a module, at whose sight another thread imports one."""

    __slots__ = ()

    def startswith(self, *_: object) -> bool:
        sys.modules["imported_meanwhile"] = ModuleType("imported_meanwhile")
        return False


def test_an_instance_closes_while_another_thread_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "imported_meanwhile", ModuleType("x"))
    del sys.modules["imported_meanwhile"]
    with modules(tmp_path / "a", model="") as (made, _):
        monkeypatch.setitem(sys.modules, _Importing("importing"), ModuleType("importing"))
    assert made.name not in sys.modules


@pytest.mark.parametrize(
    "source",
    [
        "import importlib\nfound = importlib.import_module('helper')",
        "from importlib import import_module\nfound = import_module('helper')",
        "import importlib.util as util\nimport importlib\nfound = importlib.import_module('helper')",
        "import importlib.util\nfound = importlib.import_module('parts.helper')",
        "import importlib, parts\nfound = importlib.import_module('.helper', parts.__name__)",
    ],
)
def test_modules_beside_the_model_are_found_by_name_too(tmp_path: Path, source: str) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "helper.py").write_text("value = 7")
    with modules(tmp_path, model=source, helper="value = 7") as (_, module):
        assert module.found.value == 7
        assert "helper" not in sys.modules


def test_other_modules_are_imported_by_name_as_ever(tmp_path: Path) -> None:
    source = """
import importlib, importlib.machinery
json, given = importlib.import_module("json"), importlib.import_module("given")
loader = importlib.machinery.SourceFileLoader
"""
    with modules(tmp_path, model=source) as (_, module):
        assert module.json is sys.modules["json"]
        assert module.given.__name__ == "given"
        assert module.loader is sys.modules["importlib.machinery"].SourceFileLoader
