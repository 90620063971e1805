import errno
import io
import json
import os
import pickle
from pathlib import Path

import pytest

from halimede.engine.tracing.trace_writing import TraceFiles, append_to_array, write_batches

Record = tuple[str, bool, list[tuple[object, ...]]]


def record(path: Path, *numbers: int, fresh: bool = False) -> Record:
    """A client's request whose traces, with these numbers, go to a file."""
    traces: list[tuple[object, ...]] = [(number, 0, "m", 1, "", [], [], None) for number in numbers]
    return str(path), fresh, traces


def write(*batches: list[Record]) -> None:
    stream = b"".join(pickle.dumps(batch) for batch in batches)
    write_batches(io.BytesIO(stream), TraceFiles())


def numbers(path: Path) -> list[int]:
    return [each["id"] for each in json.loads(path.read_bytes())]


def test_a_file_is_a_whole_array_after_each_batch(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write([record(path, 1, fresh=True)])
    assert numbers(path) == [1]
    write([record(path, 2), record(path, 3)])
    assert numbers(path) == [1, 2, 3]


def test_what_was_in_a_file_before_it_is_begun_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text('[{"id":99},{"id":100}]')
    write([record(path, 1, fresh=True)])
    assert numbers(path) == [1]


def test_a_batch_may_go_to_several_files(tmp_path: Path) -> None:
    one, two = tmp_path / "t.0", tmp_path / "t.1"
    write([record(one, 1, fresh=True), record(one, 2), record(two, 3, fresh=True), record(one, 4)])
    assert numbers(one) == [1, 2, 4]
    assert numbers(two) == [3]


def test_traces_of_a_request_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write([record(path, 3, 1, 2, fresh=True)])
    assert numbers(path) == [1, 2, 3]


def test_a_file_that_was_deleted_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write([record(path, 1, fresh=True)])
    path.unlink()
    write([record(path, 2)])
    assert numbers(path) == [2]


def test_traces_of_which_nothing_is_shown_leave_a_whole_array(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    for fresh in (True, False):
        append_to_array(str(path), b"", fresh=fresh)
        assert numbers(path) == []
    append_to_array(str(path), b'{"id":1}', fresh=False)
    append_to_array(str(path), b"", fresh=False)
    assert numbers(path) == [1]


def fail_after(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk be full once a file has so many bytes."""
    real = os.pwrite

    def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
        view = data[: max(0, size - offset)]
        if not view:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, view, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)


def test_a_full_disk_leaves_what_was_written_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.json"
    append_to_array(str(path), b'{"id":1}', fresh=True)
    fail_after(15, monkeypatch)
    with pytest.raises(OSError, match="No space left"):
        append_to_array(str(path), b'{"id":2}', fresh=False)
    assert numbers(path) == [1]


def test_a_disk_that_is_full_at_once_leaves_an_empty_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.json"
    fail_after(4, monkeypatch)
    with pytest.raises(OSError, match="No space left"):
        append_to_array(str(path), b'{"id":1}', fresh=True)
    assert path.read_bytes() == b""
    monkeypatch.undo()
    append_to_array(str(path), b'{"id":2}', fresh=False)
    assert numbers(path) == [2]


def test_traces_that_cannot_be_written_are_counted_and_told(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "below" / "trace.json"
    files = TraceFiles()
    files.add(str(path), "{}", 2, fresh=True)
    files.add(str(path), "{}", 3, fresh=False)
    told = capfd.readouterr()
    assert told.out == "2\n3\n"
    assert told.err == (
        f"tracing: cannot write to {path}: No such file or directory; traces are dropped until that goes well\n"
    )
    path.parent.mkdir()
    files.add(str(path), "{}", 1, fresh=False)
    assert json.loads(path.read_bytes()) == [{}]
    assert capfd.readouterr().err == "tracing: 5 traced requests were dropped, as they could not be written\n"


def test_traces_that_were_dropped_last_are_told_at_the_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write([record(tmp_path / "below" / "t", 1, fresh=True)])
    assert capfd.readouterr().err.endswith(
        "tracing: 1 traced requests were dropped, as they could not be written\n"
    )
