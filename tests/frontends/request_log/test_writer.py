import logging
import os
import pickle
import signal
import threading
from pathlib import Path

import pytest

from halimede.frontends.request_log.entry import Entry
from halimede.frontends.request_log.line_file import LineFile
from halimede.frontends.request_log.writer import open_writer


def batch(*paths: str) -> bytes:
    """A batch of requests of these paths."""
    return pickle.dumps((0, [Entry("HTTP", "c", "GET", path, None, 0).values() for path in paths]))


def paths(log: bytes) -> list[str]:
    """The paths in lines of text."""
    return [line.split('"')[1].removeprefix("GET ") for line in log.decode().splitlines()]


def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(b'"GET before"\n')
    writer = open_writer("text", path)
    writer.write(batch("/1", "/2"), 2)
    writer.write(batch("/3"), 1)
    writer.close(30)
    assert paths(path.read_bytes()) == ["before", "/1", "/2", "/3"]


def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        open_writer("text", tmp_path)


def test_a_file_that_was_moved_is_begun_anew(tmp_path: Path) -> None:
    path, moved = tmp_path / "access.log", tmp_path / "access.log.1"
    file = LineFile(path)
    file.write(b"one\n")
    path.rename(moved)
    file.write(b"two\n")
    assert moved.read_bytes() == b"one\n"
    assert path.read_bytes() == b"two\n"


def test_a_file_that_was_deleted_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    file = LineFile(path)
    path.unlink()
    file.write(b"two\n")
    assert path.read_bytes() == b"two\n"


def test_a_file_that_cannot_be_written_any_more_is_told_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "below" / "access.log"
    path.parent.mkdir()
    file = LineFile(path)
    path.unlink()
    path.parent.rmdir()
    file.write(b"lost\n")
    file.write(b"lost\n")
    assert capfd.readouterr().err == f"access log: cannot write to {path}: No such file or directory\n"
    path.parent.mkdir()
    file.write(b"kept\n")
    assert path.read_bytes() == b"kept\n"


@pytest.mark.timeout(60)
def test_a_process_that_dies_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "access.log"
    writer = open_writer("text", path)
    os.kill(writer._process.pid, signal.SIGKILL)  # noqa: SLF001 - a crash of the process is simulated
    os.waitid(os.P_PID, writer._process.pid, os.WEXITED | os.WNOWAIT)  # noqa: SLF001 - a crash of the process is simulated
    with caplog.at_level(logging.ERROR, "halimede"):
        writer.write(batch("/1"), 1)
        writer.close(30)
    assert paths(path.read_bytes()) == ["/1"]
    assert "access log: its process ended with status -9; another is started" in caplog.text


def test_a_reader_that_is_too_slow_costs_lines_and_not_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    end = os.open(pipe, os.O_WRONLY)  # so that the pipe does not end before the process has opened it
    writer = open_writer("text", pipe)
    long = batch(*(f"/{number:04}" + "x" * 1000 for number in range(1000)))
    for _ in range(40):
        writer.write(long, 1000)
    os.set_blocking(reader, True)
    received = bytearray()

    def read() -> None:
        while data := os.read(reader, 1 << 20):
            received.extend(data)

    with caplog.at_level(logging.WARNING, "halimede"):
        thread = threading.Thread(target=read)
        thread.start()
        writer.close(60)
    os.close(end)
    thread.join(60)
    os.close(reader)
    kept = received.count(b"\n")
    assert {len(line) for line in received.splitlines()} == {len(received) // kept - 1}, "a line was broken"
    assert 7000 <= kept < 40_000
    assert f"access log: {40_000 - kept} lines were dropped" in caplog.text
