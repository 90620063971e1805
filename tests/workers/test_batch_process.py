"""What is handed to a process that writes, also when that dies."""

import logging
import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from halimede.workers.batch_process import BatchProcess
from tests.support.waiting import wait_until


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The file to which the process writes."""
    return tmp_path / "written"


@pytest.fixture
def process(written: Path) -> Iterator[BatchProcess]:
    found = BatchProcess("tests.workers.batch_writer", [str(written)], name="writer", records="texts")
    yield found
    found.kill()


def write(process: BatchProcess, *texts: str) -> None:
    process.write(pickle.dumps(texts), len(texts))


def test_all_that_waits_is_written_before_the_end(process: BatchProcess, written: Path) -> None:
    for number in range(100):
        write(process, f"a{number}", f"b{number}")
    assert process.close(60)
    assert written.read_text().split() == [f"{letter}{number}" for number in range(100) for letter in "ab"]
    assert process.dropped == 0


def test_a_process_that_ends_is_followed_by_another(
    process: BatchProcess, written: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(process, "one")
    write(process, "end")
    assert process._process.wait(60) == 3  # noqa: SLF001 - whether its process has ended
    write(process, "two")
    assert process.close(60)
    assert written.read_text().split() == ["one", "two"]
    assert "writer: its process ended with status 3; another is started" in caplog.text


def test_what_nobody_can_write_is_counted_and_the_next_is_written(
    process: BatchProcess, written: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    command = process._command  # noqa: SLF001 - a program that cannot be started
    write(process, "end")
    assert process._process.wait(60) == 3  # noqa: SLF001 - whether its process has ended
    monkeypatch.setattr(process, "_command", ["/nowhere/python"])
    write(process, "lost", "lost too")
    wait_until(lambda: process.dropped == 2, "the texts to be counted")
    assert "no other can be started: [Errno 2] No such file or directory" in caplog.text
    monkeypatch.setattr(process, "_command", command)
    write(process, "next")
    assert process.close(60)
    assert written.read_text().split() == ["next"]
    assert "writer: 2 texts were dropped" in caplog.text


def test_a_process_that_takes_longer_to_end_is_waited_for(process: BatchProcess, written: Path) -> None:
    write(process, "one")
    wait_until(written.exists, "the process to run")
    pid = process._process.pid  # noqa: SLF001 - the process that is stopped
    os.kill(pid, signal.SIGSTOP)
    write(process, "two")
    assert not process.close(0.01)
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the process to be waited for")
    assert written.read_text().split() == ["one", "two"]


def test_a_process_that_is_killed_is_followed_by_none(
    process: BatchProcess, caplog: pytest.LogCaptureFixture
) -> None:
    pid = process._process.pid  # noqa: SLF001 - the process that is stopped
    os.kill(pid, signal.SIGSTOP)
    write(process, "x" * (1 << 20))  # more than a pipe holds
    write(process, "next")
    assert not process.close(0.01)
    process.kill()
    assert not Path(f"/proc/{pid}").exists()
    assert "another is started" not in caplog.text


def test_a_batch_that_fails_in_an_unforeseen_way_is_lost_alone(
    process: BatchProcess, written: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, failures = process._send, [RuntimeError("unforeseen")]  # noqa: SLF001 - nothing else fails so

    def fail(batch: bytes) -> bool:
        if failures:
            raise failures.pop()
        return send(batch)

    monkeypatch.setattr(process, "_send", fail)
    write(process, "one", "two")
    write(process, "three")
    assert process.close(60)
    assert written.read_text().split() == ["three"]
    assert process.dropped == 2
    assert "writer: 2 texts are lost" in caplog.messages


def test_a_line_that_cannot_be_used_hinders_no_other(written: Path, caplog: pytest.LogCaptureFixture) -> None:
    numbers: list[int] = []
    process = BatchProcess(
        "tests.workers.batch_writer",
        [str(written)],
        name="writer",
        records="texts",
        on_line=lambda line: numbers.append(int(line)),
    )
    try:
        write(process, "print:1", "print:a warning of a library", "print:2")
        wait_until(lambda: numbers == [1, 2], "the lines to be read")
    finally:
        process.kill()
    assert "writer: a line of its process cannot be used: b'a warning of a library\\n'" in caplog.messages
