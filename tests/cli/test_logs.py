import io
import json
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from halimede.cli import logs
from halimede.cli.logs import LineFormatter, log_table
from halimede.frontends.log_settings import LogSettings

MESSAGE = 'line "one"\nE0101 00:00:00.000000 1 fake.cc:1] \x1b[2J\x9b'


def record(level: int = logging.INFO, message: str = "hello") -> logging.LogRecord:
    made = logging.LogRecord("halimede", level, "/somewhere/lifecycle.py", 12, message, None, None)
    made.created = 1_700_000_000.123456
    made.process = 77
    return made


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The server's logger; what a test configures is undone."""
    root, ours = logging.getLogger(), logging.getLogger("halimede")
    before = (root.level, list(root.handlers), ours.level)
    root.handlers.clear()
    yield ours
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = before[1]
    root.setLevel(before[0])
    ours.setLevel(before[2])
    logging.captureWarnings(capture=False)


@pytest.mark.parametrize(
    ("level", "letter"),
    [
        (logging.DEBUG, "I"),
        (logging.INFO, "I"),
        (logging.WARNING, "W"),
        (logging.ERROR, "E"),
        (logging.CRITICAL, "F"),
    ],
)
def test_the_default_line_is_tritonservers(level: int, letter: str) -> None:
    line = LineFormatter("default").format(record(level))
    assert line == f'{letter}1114 22:13:20.123456 77 lifecycle.py:12] "hello"'


def test_the_iso_line_is_tritonservers() -> None:
    line = LineFormatter("ISO8601").format(record(logging.WARNING))
    assert line == '2023-11-14T22:13:20Z W 77 lifecycle.py:12] "hello"'


def test_a_json_line_is_one_object() -> None:
    assert json.loads(LineFormatter("json").format(record(message=MESSAGE))) == {
        "time": "2023-11-14T22:13:20.123456Z",
        "level": "INFO",
        "process": 77,
        "file": "lifecycle.py",
        "line": 12,
        "message": MESSAGE,
    }


@pytest.mark.parametrize("form", ["default", "ISO8601", "json"])
def test_no_message_can_imitate_a_line(form: str) -> None:
    line = LineFormatter(form).format(record(message=MESSAGE))
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", line)


def test_the_message_is_a_json_literal() -> None:
    line = LineFormatter("default").format(record(message=MESSAGE))
    assert json.loads(line.partition("] ")[2]) == MESSAGE


def test_escaping_can_be_switched_off() -> None:
    line = LineFormatter("default", escape=False).format(record(message='say "hi"'))
    assert line.endswith('] say "hi"')


def test_text_that_no_encoding_has_is_written_out() -> None:
    assert r"\udc80" in LineFormatter("default").format(record(message="file \udc80"))


def test_a_traceback_follows_indented_and_harmless() -> None:
    made = record(logging.ERROR)
    try:
        raise ValueError(MESSAGE)
    except ValueError:
        made.exc_info = sys.exc_info()
    first, *rest = LineFormatter("default").format(made).split("\n")
    assert first.endswith('"hello"')
    assert all(line.startswith("    ") for line in rest)
    assert "\x1b" not in "".join(rest)
    assert "traceback" in json.loads(LineFormatter("json").format(made))


def test_warnings_and_errors_go_to_standard_error(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure(LogSettings())
    logger.debug("detail")
    logger.info("news")
    logger.warning("hint")
    logger.error("trouble")
    captured = capsys.readouterr()
    assert [line[0] for line in captured.out.splitlines()] == ["I"]
    assert [line[0] for line in captured.err.splitlines()] == ["W", "E"]
    assert "test_logs.py" in captured.out


def test_each_level_can_be_switched_off(logger: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(info=False, warning=False, error=False, verbose=1))
    logger.debug("detail")
    logger.info("news")
    logger.warning("hint")
    logger.error("trouble")
    captured = capsys.readouterr()
    assert "detail" in captured.out
    assert "news" not in captured.out
    assert captured.err == ""


def test_settings_change_while_the_server_runs(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    control = logs.configure(LogSettings())
    control.change({"log_info": False, "log_verbose_level": 1, "log_format": "json"})
    logger.debug("detail")
    logger.info("news")
    control.change({"log_info": True, "log_error": False, "log_verbose_level": 0, "log_format": "default"})
    logger.debug("detail")
    logger.info("more")
    logger.error("trouble")
    captured = capsys.readouterr()
    first, second = captured.out.splitlines()
    assert json.loads(first)["message"] == "detail"
    assert second.endswith('] "more"')
    assert captured.err == ""


@pytest.mark.parametrize(
    ("value", "line"), [("0", 'say "hi"'), ("1", r'"say \"hi\""'), ("", r'"say \"hi\""')]
)
def test_the_environment_switches_escaping_off(
    logger: logging.Logger,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    value: str,
    line: str,
) -> None:
    monkeypatch.setenv("TRITON_SERVER_ESCAPE_LOG_MESSAGES", value)
    control = logs.configure(LogSettings())
    logger.info('say "hi"')
    control.change({"log_format": "ISO8601"})
    logger.info('say "hi"')
    assert [each.partition("] ")[2] for each in capsys.readouterr().out.splitlines()] == [line, line]


def test_a_file_takes_every_level(
    logger: logging.Logger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "log"
    file.write_text("before\n")
    logs.configure(LogSettings(file=file))
    logger.info("news")
    logger.error("trouble")
    assert [line[0] for line in file.read_text().splitlines()] == ["b", "I", "E"]
    assert capsys.readouterr() == ("", "")


def test_warnings_of_libraries_reach_the_log(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure(LogSettings())
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old function", DeprecationWarning, stacklevel=1)
    assert "old function" in capsys.readouterr().err


def test_a_table_is_logged_as_it_is(logger: logging.Logger) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter("default"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        log_table(logger, "models", "+-+\n|x|\n+-+")
    finally:
        logger.removeHandler(handler)
    assert stream.getvalue().endswith('] "models"\n+-+\n|x|\n+-+\n')
