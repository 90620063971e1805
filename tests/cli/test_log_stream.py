"""A log that nobody reads, or only later."""

import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import TextIO

import pytest

from halimede.cli.log_stream import MAX_WAITING, LogStream
from tests.support.waiting import wait_until

LINES = [f"line {number} {'x' * (number % 300)}\n" for number in range(2_000)]
"""More than a pipe holds, and less than may wait."""


class Pipe:
    """A pipe, its end for the log, and what was read of it."""

    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        self.stream: TextIO = open(writing, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - a descriptor, closed below
        self.log = LogStream(self.stream)

    def read(self, size: int) -> str:
        """So many bytes; waits for them."""
        data = b""
        while len(data) < size:
            data += os.read(self.reading, size - len(data))
        return data.decode()

    def close(self) -> None:
        """Close both ends."""
        os.close(self.reading)
        self.log.close()
        self.stream.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


@pytest.mark.parametrize("blocking", [True, False])
def test_lines_that_are_read_late_come_in_order(pipe: Pipe, blocking: bool) -> None:
    os.set_blocking(pipe.stream.fileno(), blocking)  # which other programs that have the pipe may change
    for line in LINES:
        pipe.log.write(line)
    pipe.log.write("last\n")
    whole = "".join(LINES) + "last\n"
    assert len(whole) > 4 * 65_536
    assert pipe.read(len(whole)) == whole


def test_a_line_that_finds_room_is_written_at_once(pipe: Pipe) -> None:
    os.set_blocking(pipe.reading, False)
    for text in ("one\n", "zwei ü\n", "three\n"):
        pipe.log.write(text)
        assert os.read(pipe.reading, 100) == text.encode()


def test_more_than_may_wait_is_dropped_and_counted(pipe: Pipe) -> None:
    line = "y" * 999 + "\n"
    count = 3 * MAX_WAITING // len(line)
    for _ in range(count):
        pipe.log.write(line)
    data = b""
    while not data.endswith(b"in time\n"):
        data += os.read(pipe.reading, 65_536)
    kept, _, note = data.decode().rpartition("… ")
    dropped = int(note.split()[0])
    assert kept == line * (count - dropped)
    assert dropped > count // 2
    pipe.log.write("after\n")
    assert pipe.read(6) == "after\n"


def test_a_reader_that_leaves_is_no_failure(pipe: Pipe) -> None:
    for line in LINES:
        pipe.log.write(line)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, pipe.reading)  # the only reading end of the pipe is gone
    os.close(nowhere)
    wait_until(lambda: pipe.log._thread is None, "what waits to be given up")  # noqa: SLF001 - nothing else tells
    pipe.log.write("to nobody\n")


def test_a_reader_that_leaves_while_there_are_no_descriptors_is_no_failure(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in LINES:
        pipe.log.write(line)
    nowhere = os.open(os.devnull, os.O_RDONLY)

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        os.dup2(nowhere, pipe.reading)  # the only reading end of the pipe is gone
        wait_until(lambda: pipe.log._thread is None, "what waits to be given up")  # noqa: SLF001 - nothing else tells
        pipe.log.write("to nobody\n")
    os.close(nowhere)
    pipe.log.write("to nobody\n")  # which is the system's null device by now
    assert str(Path(f"/proc/self/fd/{pipe.stream.fileno()}").readlink()) == os.devnull


def test_only_what_may_have_to_wait_for_a_reader_is_written_so(pipe: Pipe, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        assert not LogStream.suits(file)
    assert LogStream.suits(pipe.stream)


def test_a_server_whose_log_nobody_reads_answers(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "halimede", "serve", f"--model-repository={tmp_path}", "--http-address=127.0.0.1",
        "--http-port=0", "--allow-grpc=false", "--allow-metrics=false", "--log-verbose=1",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            lines = iter(server.stdout.readline, "")
            started = next(
                found for line in lines if (found := re.search(r"HTTPService at ([0-9.:]+)", line))
            )
            with closing(HTTPConnection(started[1], timeout=60)) as client:
                for _ in range(2_000):
                    client.request("GET", f"/v2/models/{'x' * 200}")
                    response = client.getresponse()
                    response.read()
                    assert response.status == 404
        finally:
            server.terminate()
            assert server.wait(30) == 0
