"""Bars on a terminal for steps that take long.

They are drawn by rich on standard error, from half a second on, and vanish with their steps. There are none where
standard error is no terminal, or cannot move its cursor, or rich is missing: logs and pipes never get any.
"""

import importlib.util
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

from halimede.core.steps import Step, watched_by

if TYPE_CHECKING:
    from rich.console import RenderableType

_DELAY_S = 0.5
"""What is quicker gets no bar."""

_EACH_SECOND = 8
_MOST = 8
"""So many steps are shown at once."""

_WIDTH = 30
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))

_shown: "Bars | None" = None
"""The bars that are on the terminal now."""


class Bars:
    """The bars of the steps under way (`Watcher`). Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: tuple[tuple[Step, float], ...] = ()  # is read by the thread that draws, without the lock
        self._timer: threading.Timer | None = None
        self._console: Any = None
        self._live: Any = None

    def begun(self, step: Step) -> None:
        """Show it soon."""
        with self._lock:
            self._steps = (*self._steps, (step, time.monotonic()))
            if self._live is None and self._timer is None:
                self._timer = threading.Timer(_DELAY_S, self._show)
                self._timer.daemon = True
                self._timer.start()

    def ended(self, step: Step) -> None:
        """Show it no more."""
        with self._lock:
            self._steps = tuple(each for each in self._steps if each[0] is not step)
            if not self._steps:
                self._hide()

    def close(self) -> None:
        """Show nothing any more."""
        with self._lock:
            self._steps = ()
            self._hide()

    def write(self, line: str) -> None:
        """Write a line above the bars."""
        self._console.out(line, highlight=False)

    def _show(self) -> None:
        global _shown
        from rich.console import Console
        from rich.live import Live

        with self._lock:
            self._timer = None
            if not self._steps or self._live is not None:
                return
            self._console = Console(stderr=True, force_terminal=True)
            self._live = Live(
                get_renderable=self._drawn,
                console=self._console,
                refresh_per_second=_EACH_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
            _shown = self

    def _hide(self) -> None:
        global _shown
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._live is not None:
            _shown = None
            self._live.stop()
            self._live = None

    def _drawn(self) -> "RenderableType":
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now, steps = time.monotonic(), self._steps
        drawn = Table.grid(padding=(0, 1))
        drawn.add_column(no_wrap=True, overflow="ellipsis")
        for _ in range(3):
            drawn.add_column(no_wrap=True)
        for step, began in steps[:_MOST]:
            done = min(_done(step), step.total or 0)
            bar = ProgressBar(
                total=step.total, completed=done, width=_WIDTH, pulse=not step.total, animation_time=now
            )
            drawn.add_row(
                Text(step.text), bar, Text(_amount(step, done)), Text(f"{now - began:.0f} s", style="dim")
            )
        if len(steps) > _MOST:
            drawn.add_row(Text(f"and {len(steps) - _MOST} more", style="dim"))
        return drawn


@contextmanager
def progress_bars(*, shown: bool = True) -> Iterator[None]:
    """Show a bar for each step of the block that takes long, if standard error is a terminal that can show it.

    Args:
        shown: False for none in any case.
    """
    if not (shown and _can_show(sys.stderr)):
        yield
        return
    bars = Bars()
    try:
        with watched_by(bars):
            yield
    finally:
        bars.close()


def tell(line: str) -> None:
    """Write a line to standard error, above the bars."""
    bars = _shown
    if bars is None:
        click.echo(line, err=True)
    else:
        bars.write(line)


class TerminalHandler(logging.StreamHandler[TextIO]):
    """Writes a log to a stream; lines that go to a terminal with bars come above them."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        bars = _shown
        try:
            text = self.format(record)
            if bars is None or not self.stream.isatty():
                self.write(text + self.terminator)
            else:
                bars.write(text)
        except Exception:
            self.handleError(record)

    def write(self, text: str) -> None:
        """Write some lines."""
        self.stream.write(text)
        self.flush()


def _can_show(stream: TextIO) -> bool:
    is_dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    return stream.isatty() and not is_dumb and importlib.util.find_spec("rich") is not None


def _done(step: Step) -> int:
    if step.position is None:
        return step.done
    try:
        return step.position()
    except (OSError, ValueError):  # what it looks at has just been closed
        return 0


def _amount(step: Step, done: int) -> str:
    if not step.total:
        return ""
    if not step.of_bytes:
        return f"{done} of {step.total}"
    size, unit = next((each for each in _UNITS if step.total >= each[0]), (1, "bytes"))
    return (
        f"{done / size:.1f} of {step.total / size:.1f} {unit}"
        if size > 1
        else f"{done} of {step.total} bytes"
    )
