import json
import logging
from collections.abc import Iterator

import pytest

from halimede.cli import logs
from halimede.engine.calls.worker_log import PrintedLines, log_record
from halimede.frontends.log_settings import LogSettings


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> Iterator[pytest.CaptureFixture[str]]:
    """What the server's log is configured to write, as the server does; undone afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("halimede")
    before = root.level, root.handlers[:], ours.level
    root.handlers.clear()
    yield capsys
    root.handlers[:] = before[1]
    root.setLevel(before[0])
    ours.setLevel(before[2])
    logging.captureWarnings(capture=False)


def lines(log: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of the log without time and process."""
    captured = log.readouterr()
    return [
        line[0] + line.partition(" ")[2].split(" ", 2)[2]
        for line in (captured.out + captured.err).splitlines()
    ]


def test_a_line_carries_the_models_file_and_line(log: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings())
    log_record("m", 3, logging.INFO, "model.py", 37, 'say "hi" %s\n\x1b')
    log_record("m", 3, logging.WARNING, "model.py", 38, "careful")
    log_record("m", 3, logging.ERROR, "model.py", 39, "broken")
    assert lines(log) == [
        'Imodel.py:37] "say \\"hi\\" %s\\n\\u001b"',
        'Wmodel.py:38] "careful"',
        'Emodel.py:39] "broken"',
    ]


def test_verbose_is_for_a_verbose_log(log: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings())
    log_record("m", 1, logging.DEBUG, "model.py", 1, "detail")
    assert lines(log) == []
    logs.configure(LogSettings(verbose=1))
    log_record("m", 1, logging.DEBUG, "model.py", 1, "detail")
    assert lines(log) == ['Imodel.py:1] "detail"']


def test_a_level_that_is_off_is_off_for_models_too(log: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(info=False))
    log_record("m", 1, logging.INFO, "model.py", 1, "news")
    log_record("m", 1, logging.ERROR, "model.py", 2, "broken")
    assert lines(log) == ['Emodel.py:2] "broken"']


def test_a_json_line_names_model_and_version(log: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(format="json"))
    log_record("m", 3, logging.INFO, "model.py", 37, "hello")
    document = json.loads(log.readouterr().out)
    assert {key: document[key] for key in ("file", "line", "message", "model", "version")} == {
        "file": "model.py",
        "line": 37,
        "message": "hello",
        "model": "m",
        "version": 3,
    }


def test_no_file_name_can_imitate_a_line(log: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings())
    log_record("m", 1, logging.INFO, "x\nE0101 y", 1, "hello")
    assert len(lines(log)) == 1


# What models print


@pytest.fixture
def printed(caplog: pytest.LogCaptureFixture) -> PrintedLines:
    caplog.set_level(logging.INFO, "halimede")
    return PrintedLines("m", 3, "stdout")


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged since the last look, without the prefix that all have."""
    messages = caplog.messages
    caplog.clear()
    prefix = "model 'm' version 3: "
    assert all(message.startswith(prefix) for message in messages)
    return [message.removeprefix(prefix) for message in messages]


def test_printed_lines_are_logged_with_the_stream_and_their_number(
    printed: PrintedLines, caplog: pytest.LogCaptureFixture
) -> None:
    printed.feed(b"one\ntwo %s\n")
    assert [(record.filename, record.lineno, record.getMessage()) for record in caplog.records] == [
        ("stdout", 1, "model 'm' version 3: one"),
        ("stdout", 2, "model 'm' version 3: two %s"),
    ]


def test_a_line_is_logged_when_it_is_whole(printed: PrintedLines, caplog: pytest.LogCaptureFixture) -> None:
    printed.feed("caf\u00e9".encode()[:-1])
    assert texts(caplog) == []
    printed.feed("\u00e9 au lait\nand".encode()[1:])
    assert texts(caplog) == ["café au lait"]
    printed.close()
    assert texts(caplog) == ["and"]
    printed.close()
    assert texts(caplog) == []


def test_empty_lines_are_not_logged(printed: PrintedLines, caplog: pytest.LogCaptureFixture) -> None:
    printed.feed(b"\n\r\n\na\r\n")
    assert texts(caplog) == ["a"]


def test_of_a_progress_bar_the_last_state_is_logged(
    printed: PrintedLines, caplog: pytest.LogCaptureFixture
) -> None:
    printed.feed(b"  0%\r 50%")
    printed.feed(b"\r100%\n")
    assert texts(caplog) == ["100%"]


def test_bytes_that_are_no_text_are_replaced(printed: PrintedLines, caplog: pytest.LogCaptureFixture) -> None:
    printed.feed(b"a\xff\xfeb\n")
    assert texts(caplog) == ["a\ufffd\ufffdb"]


@pytest.mark.parametrize("pieces", [1, 1000])
def test_a_long_line_is_cut_between_characters(
    printed: PrintedLines, caplog: pytest.LogCaptureFixture, pieces: int
) -> None:
    text = "x" + "\u20ac" * 10_000
    data = text.encode()
    size = -(-len(data) // pieces)
    for begin in range(0, len(data), size):
        printed.feed(data[begin : begin + size])
    assert sum(len(text) for text in caplog.messages) <= len(data)  # it does not wait for the end
    printed.feed(b"\n")
    found = texts(caplog)
    assert "".join(found) == text
    assert all(len(piece.encode()) <= PrintedLines.LONGEST for piece in found)
    assert len(found) == 4


def test_a_long_line_that_is_no_text_is_cut_too(
    printed: PrintedLines, caplog: pytest.LogCaptureFixture
) -> None:
    printed.feed(b"\x80" * (3 * PrintedLines.LONGEST) + b"\n")
    assert sum(len(text) for text in texts(caplog)) == 3 * PrintedLines.LONGEST
