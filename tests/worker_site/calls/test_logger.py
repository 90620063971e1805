"""What models log: from their calls to the server's messages, or to standard error before `initialize`."""

import io
import logging
import os
import re
import select
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from halimede_worker.calls.logger import Logger, LogLevel, install_handler
from halimede_worker.messages.memory import Memory
from halimede_worker.messages.wire import LOG, Channel
from halimede_worker.runtime import runtime

INFO, WARNING, ERROR, DEBUG = logging.INFO, logging.WARNING, logging.ERROR, logging.DEBUG


class Log:
    """What came over the control socket."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def records(self) -> list[tuple[int, str, int, str]]:
        """Level, file, line and text of each message since the last look."""
        found = []
        while select.select([self._channel.socket], [], [], 0)[0]:
            kind, *record = self._channel.receive()
            assert kind == LOG
            found.append((record[0], record[1], record[2], record[3]))
        return found

    def texts(self) -> list[tuple[int, str]]:
        return [(level, text) for level, _, _, text in self.records()]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """This process is a worker in which `initialize` has begun."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        monkeypatch.setattr(runtime, "control", Channel(ours, Memory()))
        monkeypatch.setattr(runtime, "initializing", True)
        yield Log(Channel(theirs, Memory()))


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    """The root logger as a worker finds it; what a test does to it is undone."""
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    root.handlers.clear()
    root.setLevel(logging.WARNING)
    yield root
    root.handlers[:] = before[1]
    root.setLevel(before[0])


def here() -> int:
    """The line of the caller."""
    return sys._getframe(1).f_lineno  # noqa: SLF001 - the line that calls


def test_a_message_has_the_file_and_line_of_the_call(log: Log) -> None:
    Logger.log_info("hello"); line = here()  # fmt: skip # noqa: E702
    assert log.records() == [(INFO, "test_logger.py", line, "hello")]
    exec(compile("\n\nLogger.log('x')", "/models/m/1/model.py", "exec"), {"Logger": Logger})
    assert log.records() == [(INFO, "model.py", 3, "x")]


def test_each_level_is_told(log: Log) -> None:
    Logger.log("a")
    Logger.log("b", Logger.WARNING)
    Logger.log(message="c", level=Logger.LogLevel.ERROR)
    Logger.log("d", Logger.VERBOSE)
    Logger.log_info(message="e")
    Logger.log_warn("f")
    Logger.log_error("g")
    Logger.log_verbose("h")
    assert log.texts() == [
        (INFO, "a"), (WARNING, "b"), (ERROR, "c"), (DEBUG, "d"),
        (INFO, "e"), (WARNING, "f"), (ERROR, "g"), (DEBUG, "h"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "text"),
    [("", ""), ('two\nlines "é"', 'two\nlines "é"'), ("é".encode(), "é"), ("x" * 1_000_000, "x" * 1_000_000)],
    ids=["empty", "lines", "bytes", "long"],
)
def test_any_text_can_be_logged(log: Log, message: Any, text: str) -> None:
    Logger.log_info(message)
    assert log.texts() == [(INFO, text)]


@pytest.mark.parametrize("message", [None, 5, ["x"], "\ud800"])
@pytest.mark.parametrize(
    "call", [Logger.log, Logger.log_info, Logger.log_warn, Logger.log_error, Logger.log_verbose]
)
def test_what_is_no_text_is_a_type_error(log: Log, call: Callable[[Any], None], message: object) -> None:
    with pytest.raises(TypeError, match=rf"^{call.__name__}\(\): incompatible function arguments"):
        call(message)
    assert log.records() == []


@pytest.mark.parametrize("level", [None, 1, "INFO"])
def test_a_level_is_one_of_the_loggers(log: Log, level: Any) -> None:
    with pytest.raises(TypeError):
        Logger.log("x", level)
    assert log.records() == []


def test_the_logger_is_not_constructed() -> None:
    with pytest.raises(TypeError, match="No constructor defined!"):
        Logger()
    assert [int(level) for level in (Logger.INFO, Logger.WARNING, Logger.ERROR, Logger.VERBOSE)] == [
        0,
        1,
        2,
        3,
    ]
    assert Logger.LogLevel is LogLevel


@pytest.mark.parametrize("stage", ["no worker", "before initialize"])
def test_before_initialize_messages_go_to_standard_error(
    log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stage: str
) -> None:
    if stage == "no worker":
        monkeypatch.setattr(runtime, "control", None)
    else:
        monkeypatch.setattr(runtime, "initializing", False)
    Logger.log_info("hello")
    Logger.log_warn("careful")
    Logger.log_error("broken")
    Logger.log_verbose("detail")
    lines = capsys.readouterr().err.splitlines()
    expected = [("I", "hello"), ("W", "careful"), ("E", "broken"), ("I", "detail")]
    for line, (letter, text) in zip(lines, expected, strict=True):
        start = rf"{letter}\d{{4}} \d\d:\d\d:\d\d\.\d{{6}} {os.getpid()} test_logger\.py:\d+\] "
        assert re.fullmatch(start + text, line)
    assert log.records() == []


def test_when_the_server_is_gone_messages_go_to_standard_error(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runtime.control is not None
    runtime.control.close()
    Logger.log_info("hello")
    assert capsys.readouterr().err.endswith("] hello\n")


def test_pythons_logging_reaches_the_server(log: Log, root: logging.Logger) -> None:
    install_handler()
    logging.info("a %s", "thing"); line = here()  # fmt: skip # noqa: E702, LOG015
    assert log.records() == [(INFO, "test_logger.py", line, "a thing")]
    library = logging.getLogger("library")
    library.debug("not wanted")
    library.warning("careful")
    library.error("broken")
    library.critical("over")
    assert log.texts() == [(WARNING, "careful"), (ERROR, "broken"), (ERROR, "over")]
    root.setLevel(logging.DEBUG)
    library.debug("wanted")
    assert log.texts() == [(DEBUG, "wanted")]


def test_a_logged_exception_brings_its_traceback(log: Log, root: logging.Logger) -> None:
    install_handler()
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("library").exception("it failed")
    [(level, text)] = log.texts()
    assert level == ERROR
    assert text.startswith("it failed\nTraceback (most recent call last):\n")
    assert text.endswith("ValueError: no")


def test_a_record_that_cannot_be_formatted_does_not_fail_the_model(
    log: Log, root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    root.handlers.clear()  # of pytest, which would fail
    install_handler()
    logging.getLogger("library").info("%d", "no number")
    assert log.records() == []
    assert "--- Logging error ---" in capsys.readouterr().err


def test_a_model_may_put_its_own_handler_in_place(log: Log, root: logging.Logger) -> None:
    install_handler()
    stream = io.StringIO()
    logging.basicConfig(stream=stream, format="%(message)s", level=logging.DEBUG, force=True)
    logging.getLogger("library").debug("mine")
    assert log.records() == []
    assert stream.getvalue() == "mine\n"
