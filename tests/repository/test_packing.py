import io
import tarfile
from pathlib import Path

import pytest

from halimede.core.errors import InvalidArgumentError
from halimede.repository.packing import PackedEntry, is_left_out, list_entries, write_archive


def write(*entries: PackedEntry) -> tuple[bytes, list[int]]:
    """The archive, and what was told of how far it is."""
    output, told = io.BytesIO(), list[int]()
    write_archive(entries, output, told.append)
    return output.getvalue(), told


def test_entries_come_sorted_with_parents_first(tmp_path: Path) -> None:
    for name in ("b/x", "a-b", "a/z", "a/B"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "c").symlink_to("a/z")
    found = list_entries(tmp_path, "m")
    assert [(each.name, each.kind, each.size, each.target) for each in found] == [
        ("m", tarfile.DIRTYPE, 0, ""),
        ("m/a", tarfile.DIRTYPE, 0, ""),
        ("m/a/B", tarfile.REGTYPE, 3, ""),
        ("m/a/z", tarfile.REGTYPE, 3, ""),
        ("m/a-b", tarfile.REGTYPE, 3, ""),
        ("m/b", tarfile.DIRTYPE, 0, ""),
        ("m/b/x", tarfile.REGTYPE, 3, ""),
        ("m/c", tarfile.SYMTYPE, 0, "a/z"),
    ]


def test_only_what_is_named_is_packed_at_the_top(tmp_path: Path) -> None:
    for name in ("a/b", "b/a"):
        (tmp_path / name).mkdir(parents=True)
    assert [each.name for each in list_entries(tmp_path, only={"a"})] == ["a", "a/b"]


def test_what_is_left_out_goes_by_its_name() -> None:
    names = ("a~", "~a", ".a.swp", "a.swp", ".git", "git", "._a", ".#a", "#a#")
    assert [name for name in names if is_left_out(name)] == ["a~", ".a.swp", ".git", "._a", ".#a", "#a#"]


def test_how_many_bytes_have_been_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(100_000))
    _, told = write(*list_entries(tmp_path))
    assert sum(told) == 100_000
    assert len(told) > 1


def test_nothing_says_when_or_by_whom_it_was_packed(tmp_path: Path) -> None:
    data, _ = write(PackedEntry("d", tmp_path, tarfile.DIRTYPE))
    # RFC 1952: no name, no time, unknown system
    assert data[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"


def test_what_vanishes_meanwhile_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    entries = list_entries(tmp_path)
    (tmp_path / "f").unlink()
    with pytest.raises(InvalidArgumentError, match=f"cannot read '{tmp_path}/f': No such file or directory"):
        write(*entries)
    with pytest.raises(InvalidArgumentError, match=f"cannot read '{tmp_path}/g': No such file or directory"):
        list_entries(tmp_path / "g")


def test_a_directory_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=f"cannot read '{tmp_path}': Is a directory"):
        write(PackedEntry("f", tmp_path, tarfile.REGTYPE))


def test_a_directory_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(InvalidArgumentError, match=f"cannot read '{tmp_path}': Permission denied"):
        list_entries(tmp_path)
