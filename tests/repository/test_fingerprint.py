import os
from collections.abc import Callable
from pathlib import Path

import pytest

from halimede.repository.fingerprint import fingerprint


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "m"
    for version in ("1", "2"):
        (directory / version).mkdir(parents=True)
        (directory / version / "model.onnx").write_bytes(b"weights")
    (directory / "config.pbtxt").write_text("backend: 'x'")
    (directory / "labels.txt").write_text("a\nb\n")
    return directory


def _touch(path: Path) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - 1_000_000_000))


def test_nothing_changed(model: Path) -> None:
    assert fingerprint(model) == fingerprint(model)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda model: _touch(model / "config.pbtxt"), "config"),
        (lambda model: _touch(model), "config"),
        (lambda model: _touch(model / "labels.txt"), "shared"),
        (lambda model: _touch(model / "2" / "model.onnx"), "versions"),
        (lambda model: (model / "2" / "model.onnx").rename(model / "2" / "other.onnx"), "versions"),
        (lambda model: (model / "2" / "sub").mkdir(), "versions"),
        (lambda model: (model / "2" / "model.onnx").unlink(), "versions"),
    ],
)
def test_a_change_shows_where_it_was_made(model: Path, change: Callable[[Path], None], where: str) -> None:
    mtime = model.stat().st_mtime_ns
    before = fingerprint(model)
    change(model)
    if where != "config":
        os.utime(model, ns=(mtime, mtime))
    after = fingerprint(model)
    changed = {
        part for part in ("config", "shared", "versions") if getattr(before, part) != getattr(after, part)
    }
    assert changed == {where}
    if where == "versions":
        assert before.versions[1] == after.versions[1]


def test_version_that_comes_or_goes_is_seen(model: Path) -> None:
    (model / "3").mkdir()
    assert set(fingerprint(model).versions) == {1, 2, 3}
    (model / "3").rmdir()
    assert set(fingerprint(model).versions) == {1, 2}


def test_byte_code_caches_change_nothing(model: Path) -> None:
    before = fingerprint(model)
    (model / "1" / "__pycache__").mkdir()
    (model / "1" / "__pycache__" / "model.pyc").write_bytes(b"")
    assert fingerprint(model) == before


def test_same_size_replacement_by_an_older_file_is_seen(model: Path) -> None:
    before = fingerprint(model)
    (model / "1" / "model.onnx").write_bytes(b"WEIGHTS")
    os.utime(model / "1" / "model.onnx", (1, 1))
    assert fingerprint(model) != before


def test_links_are_followed_and_circles_end(model: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "weights").write_bytes(b"1")
    (model / "1" / "shared").symlink_to(shared)
    (model / "1" / "circle").symlink_to(model)
    (model / "dangling").symlink_to(tmp_path / "nowhere")
    before = fingerprint(model)
    assert fingerprint(model) == before
    (shared / "weights").write_bytes(b"22")
    after = fingerprint(model)
    assert after.versions[1] != before.versions[1]
    assert after.versions[2] == before.versions[2]


def test_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fingerprint(tmp_path / "nowhere")
