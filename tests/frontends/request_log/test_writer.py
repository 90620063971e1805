import logging
import os
import threading
from pathlib import Path

import pytest

from halimede.frontends.request_log.writer import LineWriter


def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    path.write_bytes(b"before\n")
    writer = LineWriter(path)
    writer.write(b"one\ntwo\n")
    writer.write(b"three\n")
    writer.close(10)
    assert path.read_bytes() == b"before\none\ntwo\nthree\n"


def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        LineWriter(tmp_path)


def wait_for(path: Path, content: bytes) -> None:
    while not path.exists() or path.read_bytes() != content:
        pass


@pytest.mark.timeout(30)
def test_a_file_that_was_moved_is_begun_anew(tmp_path: Path) -> None:
    path, moved = tmp_path / "access.log", tmp_path / "access.log.1"
    writer = LineWriter(path)
    writer.write(b"one\n")
    wait_for(path, b"one\n")
    path.rename(moved)
    writer.write(b"two\n")
    writer.close(10)
    assert moved.read_bytes() == b"one\n"
    assert path.read_bytes() == b"two\n"


def test_a_file_that_was_deleted_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    writer = LineWriter(path)
    path.unlink()
    writer.write(b"two\n")
    writer.close(10)
    assert path.read_bytes() == b"two\n"


def test_a_reader_that_is_too_slow_costs_lines_and_not_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    writer = LineWriter(pipe)
    line = b"x" * (1 << 20) + b"\n"
    for _ in range(40):
        writer.write(line)
    os.set_blocking(reader, True)
    received = bytearray()

    def read() -> None:
        while data := os.read(reader, 1 << 20):
            received.extend(data)

    thread = threading.Thread(target=read)
    thread.start()
    with caplog.at_level(logging.WARNING, "halimede"):
        writer.close(30)
    thread.join(30)
    os.close(reader)
    kept = received.count(b"\n")
    assert len(received) == kept * len(line), "a line was broken"
    assert 7 <= kept < 40
    assert f"access log: {40 - kept} lines were dropped" in caplog.text
