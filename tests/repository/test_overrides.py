import tempfile
from pathlib import Path

import pytest

from halimede.config.override import ConfigOverride
from halimede.core.errors import InvalidArgumentError
from halimede.repository.overrides import Override, parse_parameters, remove, write_files


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def test_parameters_spell_an_override() -> None:
    assert parse_parameters({}) == Override()
    assert not parse_parameters({}).given
    override = parse_parameters({"config": "{}", "file:1/model.onnx": b"x"})
    assert override == Override(ConfigOverride("{}"), {"1/model.onnx": b"x"})
    assert override.given
    override = parse_parameters({"config": "{}", "file:/1/model.onnx": b"x", "file://labels.txt": b"y"})
    assert override == Override(ConfigOverride("{}"), {"1/model.onnx": b"x", "labels.txt": b"y"})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"file:1/model.onnx": b""},
            "Load parameter 'config' must be specified for model file override",
        ),
        ({"config": b"{}"}, "Load parameter 'config' must be a string that holds JSON"),
        ({"config": "{}", "file:1/m": "text"}, "Load parameter 'file:1/m' must be the bytes of the file"),
        ({"other": "x"}, "unexpected load parameter 'other', expected 'config' or 'file:<path>'"),
        (
            {"config": "{}", "file:../evil": b""},
            "file name '../evil' must be relative to the model directory",
        ),
        ({"config": "{}", "file:1/../../evil": b""}, "file name '1/../../evil' must be relative"),
        ({"config": "{}", "file:": b""}, "file name '' must be relative"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, str | bytes], message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_parameters(parameters)
    assert caught.value.message.startswith(message)


def test_files_are_written_and_removed(temporary: Path) -> None:
    directory = write_files({"1/model.onnx": b"one", "labels.txt": b"two", "2/deep/er/x": b""})
    assert directory.parent == temporary
    files = {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
    assert files == {"1/model.onnx": b"one", "labels.txt": b"two", "2/deep/er/x": b""}
    remove(directory)
    remove(directory)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    "files",
    [
        {"1/model": b"x", "n" * 300: b""},
        {"1": b"a file", "1/model": b"and a directory"},
        {"1/a/b": b"", "1/a": b""},
    ],
)
def test_files_that_cannot_be_written_leave_nothing_behind(temporary: Path, files: dict[str, bytes]) -> None:
    with pytest.raises(OSError, match=r"too long|Not a directory|File exists|Is a directory"):
        write_files(files)
    assert list(temporary.iterdir()) == []
