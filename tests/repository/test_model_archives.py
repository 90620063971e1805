"""Archives of models, as the server extracts them."""

import os
import sys
import threading
from pathlib import Path

import pytest

from halimede.core.errors import (
    AlreadyExistsError,
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfMemoryError,
)
from halimede.core.steps import watched_by
from halimede.repository import archives, model_archives
from halimede.repository.archives import Rules
from halimede.repository.model_archives import MODEL, extract_model
from halimede.repository.private_directories import PrivateDirectory
from tests.repository.archive_entries import Entry, archive, directory, file, sparse, symlink
from tests.support.steps import SeenSteps


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory in which models are extracted; nothing but them is there."""
    path = tmp_path / "place"
    path.mkdir()
    return path


def write(tmp_path: Path, *entries: Entry, mode: str = "w:gz") -> Path:
    path = tmp_path / "model.tar.gz"
    path.write_bytes(archive(*entries, mode=mode))
    return path


def error_of(path: Path, place: Path, kind: type[HalimedeError], rules: Rules = MODEL) -> str:
    """The error of extracting it; nothing is left."""
    with pytest.raises(kind) as caught:
        extract_model(path, place / "model", rules)
    assert type(caught.value) is kind
    assert list(place.iterdir()) == []
    return caught.value.message


@pytest.mark.parametrize("mode", ["w:gz", "w", "w:xz", "w:bz2"])
def test_both_layouts_are_extracted_whatever_compresses_them(tmp_path: Path, place: Path, mode: str) -> None:
    flat = [directory("./"), file("./config.pbtxt", b"name: 'm'"), file("./1/model.onnx")]
    extract_model(write(tmp_path, *flat, mode=mode), place / "flat")
    nested = [directory("m/1", 0), file("m/1/weights"), symlink("m/2", "1")]
    extract_model(write(tmp_path, *nested, mode=mode), place / "nested")
    assert sorted(str(each.relative_to(place)) for each in place.rglob("*")) == [
        "flat",
        "flat/1",
        "flat/1/model.onnx",
        "flat/config.pbtxt",
        "nested",
        "nested/m",
        "nested/m/1",
        "nested/m/1/weights",
        "nested/m/2",
    ]
    assert (place / "nested/m/2/weights").read_bytes() == b"data"


def test_an_empty_directory_is_filled(tmp_path: Path, place: Path) -> None:
    (place / "model").mkdir()
    extract_model(write(tmp_path, file("a")), place / "model")
    assert (place / "model/a").read_bytes() == b"data"


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path, place: Path) -> None:
    (place / "model").mkdir()
    (place / "model/mine").touch()
    (place / "link").symlink_to("nowhere")
    path = write(tmp_path, file("a"))
    for name in ("model", "link", "model/mine"):
        with pytest.raises(AlreadyExistsError, match=f"there is something at '{place / name}' already"):
            extract_model(path, place / name)
    assert sorted(each.name for each in place.iterdir()) == ["link", "model"]
    assert [each.name for each in (place / "model").iterdir()] == ["mine"]


def test_a_directory_that_somebody_fills_meanwhile_is_left_alone(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = model_archives._run  # noqa: SLF001 - what happens in the middle of it

    def run_beside_another(*arguments: object) -> None:
        whole(*arguments)  # type: ignore[arg-type]  # passed on
        (place / "model").mkdir()
        (place / "model/mine").touch()

    monkeypatch.setattr(model_archives, "_run", run_beside_another)
    with pytest.raises(AlreadyExistsError, match="Directory not empty"):
        extract_model(write(tmp_path, file("a")), place / "model")
    assert [str(each.relative_to(place)) for each in sorted(place.rglob("*"))] == ["model", "model/mine"]


def test_archives_are_extracted_side_by_side(tmp_path: Path, place: Path) -> None:
    path = write(tmp_path, file("a", os.urandom(1_000_000)))
    threads = [threading.Thread(target=extract_model, args=(path, place / str(i))) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.name for each in place.iterdir()) == ["0", "1", "2", "3"]
    assert {(place / str(i) / "a").read_bytes() for i in range(4)} == {(place / "0/a").read_bytes()}


def test_a_missing_archive_is_not_found(tmp_path: Path, place: Path) -> None:
    path = tmp_path / "no.tar.gz"
    assert error_of(path, place, NotFoundError) == f"there is no model archive '{path}'"


def test_what_is_no_file_is_refused_at_once(tmp_path: Path, place: Path) -> None:
    pipe = tmp_path / "pipe.tar.gz"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero")):
        assert error_of(path, place, InvalidArgumentError) == f"model archive '{path}' is no file"
    path = pipe / "x.tar.gz"
    assert (
        error_of(path, place, InvalidArgumentError) == f"cannot read model archive '{path}': Not a directory"
    )
    assert "embedded null" in error_of(Path("a\0b"), place, InvalidArgumentError)


def test_an_archive_that_may_not_be_read_is_refused(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # whoever runs the tests may be one whom modes don't keep from reading
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path, file("a"))
    monkeypatch.setattr(os, "open", refuse)
    assert (
        error_of(path, place, InvalidArgumentError)
        == f"cannot read model archive '{path}': Permission denied"
    )


@pytest.mark.parametrize("entries", [[], [directory("./")]])
def test_an_empty_archive_is_refused(tmp_path: Path, place: Path, entries: list[Entry]) -> None:
    path = write(tmp_path, *entries)
    text = error_of(path, place, InvalidArgumentError)
    assert text == f"model archive '{path}' is empty" or (
        not entries
        and text == f"model archive '{path}' cannot be extracted: it is no tar archive: empty file"
    )


def test_an_empty_file_is_refused(tmp_path: Path, place: Path) -> None:
    path = tmp_path / "empty.tar.gz"
    path.touch()
    assert "it is no tar archive: empty file" in error_of(path, place, InvalidArgumentError)


def test_a_truncated_archive_is_refused(tmp_path: Path, place: Path) -> None:
    path = write(tmp_path, file("m/1/model.onnx", os.urandom(100_000)))
    path.write_bytes(path.read_bytes()[:50_000])
    text = error_of(path, place, InvalidArgumentError)
    assert text.startswith(f"model archive '{path}' cannot be extracted: it is truncated or damaged: ")


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (file("../../outside"), "Path contains '..': '../../outside'"),
        (file("/tmp/outside"), "Path is absolute: '/tmp/outside'"),
        (symlink("m", "../.."), "Path contains '..' and leaves the directory: '../..', to which 'm' links"),
        (symlink("bin/python", "/usr"), "Path is absolute: '/usr', to which 'bin/python' links"),
    ],
)
def test_a_hostile_archive_is_refused_by_naming_the_entry(
    tmp_path: Path, place: Path, entry: Entry, text: str
) -> None:
    path = write(tmp_path, file("config.pbtxt"), entry)
    assert (
        error_of(path, place, InvalidArgumentError) == f"model archive '{path}' cannot be extracted: {text}"
    )


def test_a_bomb_is_no_reason_to_make_room(tmp_path: Path, place: Path) -> None:
    text = error_of(write(tmp_path, sparse("hole", 10**17)), place, InvalidArgumentError)
    assert "'hole' takes what is in it to more than 1,073,741,824 bytes" in text


def test_a_file_larger_than_the_disk_is_out_of_memory(tmp_path: Path, place: Path) -> None:
    path = write(tmp_path, file("m/1/a"), sparse("m/1/model.onnx", 10**17))
    text = error_of(path, place, OutOfMemoryError, Rules())
    assert text.startswith(
        f"model archive '{path}' cannot be extracted: the disk has no room: 'm/1/model.onnx' needs "
        "100,000,000,000,000,000 bytes after the 4 that came before it, and "
    )


def test_a_reserve_is_kept_on_the_disk(tmp_path: Path, place: Path) -> None:
    text = error_of(write(tmp_path, file("a")), place, OutOfMemoryError, Rules(reserve=1 << 60))
    assert text.endswith(f"bytes are free, of which {1 << 60:,} are to stay free")


def test_an_archive_that_changes_meanwhile_is_refused(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, file("a"))
    whole = model_archives._run  # noqa: SLF001 - what happens in the middle of it

    def run_then_touch(*arguments: object) -> None:
        whole(*arguments)  # type: ignore[arg-type]  # passed on
        os.utime(path, (1, 1))

    monkeypatch.setattr(model_archives, "_run", run_then_touch)
    assert (
        error_of(path, place, InvalidArgumentError)
        == f"model archive '{path}' was changed while it was extracted"
    )


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ("import os; os.kill(os.getpid(), 9)", "its program ended with -9"),
        ("raise OSError('oh')", "OSError: oh"),
    ],
)
def test_a_program_that_fails_is_an_internal_error(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, program: str, text: str
) -> None:
    monkeypatch.setattr(archives, "_PROGRAM", program)
    path = write(tmp_path, file("a"))
    assert error_of(path, place, InternalError) == f"model archive '{path}' cannot be extracted: {text}"


def test_a_program_that_cannot_be_started_is_an_internal_error(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    text = error_of(write(tmp_path, file("a")), place, InternalError)
    assert text == "cannot run '/nonexistent/python' to extract an archive: No such file or directory"


def test_a_place_that_is_not_there_is_an_internal_error(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match=r"cannot make the directory '.*/no/model': No such file"):
        extract_model(write(tmp_path, file("a")), tmp_path / "no/model")


def test_a_disk_without_room_for_a_directory_is_out_of_memory(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> PrivateDirectory:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PrivateDirectory, "make", refuse)
    text = error_of(write(tmp_path, file("a")), place, OutOfMemoryError)
    assert text == f"cannot make the directory '{place / 'model'}': No space left on device"


def test_what_a_killed_server_has_half_extracted_goes_with_the_next_extraction(
    tmp_path: Path, place: Path
) -> None:
    left = PrivateDirectory.make(place, ".halimede-extracting-")
    (left.path / "content").mkdir()
    os.utime(left.path, (1, 1))  # no longer young
    path = write(tmp_path, file("a"))
    extract_model(path, place / "one")
    assert left.path.exists()  # its server lives
    os.close(left.lock)
    extract_model(path, place / "two")
    assert sorted(each.name for each in place.iterdir()) == ["one", "two"]


def test_how_far_an_extraction_is_can_be_watched(tmp_path: Path, place: Path) -> None:
    path = write(tmp_path, file("m/1/weights", os.urandom(3_000_000)))
    seen = SeenSteps()
    with watched_by(seen):
        extract_model(path, place / "model")
    size = path.stat().st_size
    assert seen.ended_steps == [("Extracting model.tar.gz", size, size)]
