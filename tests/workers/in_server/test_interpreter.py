"""The thread that sees who holds the interpreter."""

import os
import time
from types import SimpleNamespace

import pytest

from halimede.workers.in_server import interpreter
from halimede.workers.in_server.interpreter import NOTED_NS, InterpreterWatch
from tests.support.waiting import wait_until


def test_a_lack_of_descriptors_does_not_end_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[object] = []

    def fail(path: object, _: int) -> int:
        asked.append(path)
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(interpreter, "os", SimpleNamespace(open=fail, pread=os.pread, O_RDONLY=os.O_RDONLY))
    watch = InterpreterWatch()

    def hold() -> bool:
        """Hold the interpreter for a while, as an execution."""
        execution = watch.begin("m")
        end = time.thread_time_ns() + 2 * NOTED_NS
        sum(range(1_000_000))  # in one call, which does not release it
        while time.thread_time_ns() < end:
            sum(range(1_000_000))
        watch.end(execution)
        return "model 'm' held Python's interpreter" in caplog.text

    wait_until(hold, "the model to be named")
    assert asked
