"""Bars for steps that take long: on a terminal, and nowhere else."""

import io
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from halimede.bench.measure import Progress
from halimede.cli.bench.progress import ProgressLine
from tests.cli.echo import write_held_model, write_model
from tests.support.terminal import on_terminal

FETCH = """
import sys
from halimede.cli.progress import progress_bars, tell
from halimede.core.steps import step
with progress_bars(), step("Fetching it", 4_000_000, of_bytes=True) as fetching, step("Waiting"):
    fetching.advance(1_000_000)
    sys.stdin.readline()
    tell("told")
print("done", flush=True)
"""
WATCHED = """
import sys
{first}
from halimede.cli.progress import progress_bars
from halimede.core import steps
with progress_bars():
    print("watchers:", len(steps._watchers), flush=True)
"""
QUICK = """
from halimede.cli import progress
from halimede.core.steps import step
progress._DELAY_S = 3600
with progress.progress_bars(), step("Fetching it", 10) as fetching:
    fetching.advance(10)
print("done", flush=True)
"""
COLOUR = re.compile(r"\x1b\[[0-9;]*\b(?:3[0-9]|38;[25])[0-9;]*m")
LOG_LINE = re.compile(r"[IWE]\d{4} [\d:.]+ \d+ \S+\] ")


def test_a_terminal_shows_how_far_a_step_is() -> None:
    with on_terminal(["-c", FETCH]) as terminal:
        terminal.wait_for("Fetching it", "1.0 of 4.0 MB", "Waiting")
        assert terminal.finish("") == 0
    assert COLOUR.search(terminal.shown)
    assert "told" in terminal.lines()
    assert "done" in terminal.lines()
    assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l")  # the cursor is back


def test_there_are_no_colours_where_none_are_wanted() -> None:
    with on_terminal(["-c", FETCH], NO_COLOR="1") as terminal:
        terminal.wait_for("Fetching it", "━")
        assert terminal.finish("") == 0
    assert not COLOUR.search(terminal.shown)


def test_an_interrupt_gives_the_terminal_back() -> None:
    with on_terminal(["-c", FETCH]) as terminal:
        terminal.wait_for("Fetching it")
        terminal.process.send_signal(signal.SIGINT)
        terminal.finish()
    assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l")


def test_what_is_quick_gets_no_bar() -> None:
    with on_terminal(["-c", QUICK]) as terminal:
        assert terminal.finish() == 0
    assert terminal.shown == "done\r\n"


@pytest.mark.parametrize(
    ("first", "term"),
    [("sys.modules['rich'] = None", "xterm"), ("", "dumb"), ("sys.stderr = open('/dev/null', 'w')", "xterm")],
)
def test_a_terminal_without_bars(first: str, term: str) -> None:
    with on_terminal(["-c", WATCHED.format(first=first)], TERM=term) as terminal:
        assert terminal.finish() == 0
    assert terminal.shown == "watchers: 0\r\n"


def test_pipes_get_no_bars() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WATCHED.format(first="")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("watchers: 0\n", "")


def test_the_log_of_a_server_that_starts_is_not_torn_apart(tmp_path: Path) -> None:
    write_model(tmp_path)
    pipe = write_held_model(tmp_path, "held")
    flags = [f"--model-repository={tmp_path}", "--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    with on_terminal(["-m", "halimede", "serve", *flags]) as terminal:
        terminal.wait_for("Loading held 1", "1 of 2", "'echo' version 1 is READY")
        pipe.write_text("zero\none\n")
        terminal.wait_for("| held  | 1       | READY  |")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.finish() == 0
    lines = terminal.lines()
    for text in ("'held' version 1 is READY", '"Models"', "Started HTTPService"):
        [line] = [line for line in lines if text in line]
        assert LOG_LINE.match(line), line
    assert not [line for line in lines if "Loading held" in line]
    assert "| held  | 1       | READY  |" in lines


def test_the_log_in_a_pipe_has_no_bars(tmp_path: Path) -> None:
    write_model(tmp_path)
    pipe = write_held_model(tmp_path, "held")
    flags = [f"--model-repository={tmp_path}", "--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    log = tmp_path.parent / f"{tmp_path.name}.log"
    with on_terminal(["-m", "halimede", "serve", *flags], output=log) as terminal:
        terminal.wait_for("Loading held 1")  # the bar, on standard error
        pipe.write_text("zero\none\n")
        terminal.wait_until(lambda: "| held  | 1       | READY  |" in log.read_text(), "a table in the log")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.finish() == 0
    assert "\x1b" not in log.read_text()
    assert "━" not in log.read_text()


class Screen(io.StringIO):
    """A terminal without a size."""

    def isatty(self) -> bool:
        return True


def test_the_line_of_a_measurement_never_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    line = ProgressLine(verbose=False)
    line.before = "setting 3 of 30: "
    line.wait_for("starting a server")
    assert screen.getvalue() == "\r\x1b[Ksetting 3 of 30: starting a server"
    line.before = "x" * 100
    line.show(Progress("1 at once", 1, 10.0, 1.0, 2.0, 1, 0))
    assert screen.getvalue().endswith("\r\x1b[K" + "x" * 79)
    line.clear()
    assert screen.getvalue().endswith("\r\x1b[K")
