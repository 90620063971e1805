from pathlib import Path

import pytest

from halimede.core.errors import InternalError
from halimede.repository.labels import read_labels


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("zero\none\n", ["zero", "one"]),
        ("zero\none", ["zero", "one"]),
        ("zero\r\none\r\n", ["zero", "one"]),
        ("zero\n\ntwo\n", ["zero", "", "two"]),
        ("a\x0cb c\ntwo\n", ["a\x0cb c", "two"]),
        ("", []),
        ("\n", [""]),
    ],
)
def test_one_label_a_line(tmp_path: Path, text: str, labels: list[str]) -> None:
    (tmp_path / "labels.txt").write_bytes(text.encode())
    assert read_labels(tmp_path, "labels.txt") == labels


def test_unusable_label_files_are_refused(tmp_path: Path) -> None:
    model = tmp_path / "m"
    model.mkdir()
    (tmp_path / "secret").write_text("x")
    (model / "binary").write_bytes(b"\xff\xfe")
    for name, why in (
        ("../secret", "must be relative to the model directory and stay inside it"),
        (str(tmp_path / "secret"), "must be relative to the model directory and stay inside it"),
        ("missing", "No such file or directory"),
        ("binary", "it is not UTF-8 text"),
    ):
        with pytest.raises(InternalError, match=why) as caught:
            read_labels(model, name)
        path = f"{model}/{name.lstrip('/')}"
        assert caught.value.message.startswith(f"failed to open text file for read {path}: ")
