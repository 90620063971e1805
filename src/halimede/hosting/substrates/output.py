"""Why an instance failed, by what it printed: its errors, not the lines of its shutdown that come after them."""

import json
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path

from halimede.hosting.substrates.launcher import UNABLE

CONTAINER_FAILED = 91
"""How the supervisor of several containers exits when one of them has ended, or cannot be started."""

_TAIL_BYTES = 1 << 16
_LAST_LINES = 6
_MAX_ERRORS = 3
_MAX_CHARACTERS = 600

_LOG_LINE = re.compile(r"([EF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+:\d+\] (.*)")
"""An error of Triton and of this package's server."""

_LOAD_ERROR = re.compile(r"failed to load (?!all models)|Poll failed for model directory")
_SUMMARY = "failed to load all models"
"""What servers log after the errors of each model."""

_TRACEBACK = "Traceback (most recent call last):"


def ended(code: int) -> str:
    """How a process ended, by its exit status as `subprocess` tells it: ``it ended with status 3``."""
    if code < 0:
        name = signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
        hint = ", as the kernel does when memory runs out" if -code == signal.SIGKILL else ""
        return f"it was killed by signal {name}{hint}"
    if code == CONTAINER_FAILED:
        return "one of its containers failed"
    unable = ", as it could not be given directories of its own" if code == UNABLE else ""
    return f"it ended with status {code}{unable}"


def failure_in(log: Path) -> str:
    """What the end of a log says about why its instance failed, as the rest of a sentence; "" if there is nothing.

    These are the errors that the instance logged (``: failed to load …``), or else the exception of its last
    traceback, or else its last lines.
    """
    return failure_of(_tail(log))


def failure_of(lines: Sequence[str]) -> str:
    """What the last lines that a program printed say about why it failed, as `failure_in`."""
    cause = _errors(lines) or _exception(lines)
    if cause:
        return f": {_shortened(cause.rstrip('.'))}"
    last = [line.strip() for line in lines if line.strip()][-_LAST_LINES:]
    return f"; its last lines: {_shortened(' / '.join(last))}" if last else ""


def _tail(log: Path) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def _errors(lines: Sequence[str]) -> str:
    """The errors of models that were logged, or else all errors, each once; of each message its first paragraph."""
    matches = [match for match in map(_LOG_LINE.match, lines) if match]
    messages = list(dict.fromkeys(_first_paragraph(_unquoted(match[2])) for match in matches))
    causes = [message for message in messages if _LOAD_ERROR.search(message)]
    causes = causes or [message for message in messages if _SUMMARY not in message]
    return "; ".join((causes or messages)[:_MAX_ERRORS])


def _unquoted(message: str) -> str:
    """A message as it was before it was escaped for its line."""
    try:
        text = json.loads(message)
    except ValueError:
        return message
    return text if isinstance(text, str) else message


def _first_paragraph(message: str) -> str:
    return " ".join(message.strip().partition("\n\n")[0].split())


def _exception(lines: Sequence[str]) -> str:
    """The last line of the last traceback, such as ``RuntimeError: weights are missing``; "" if there is none."""
    begins = [index for index, line in enumerate(lines) if line.strip() == _TRACEBACK]
    if not begins:
        return ""
    frames = lines[begins[-1] + 1 :]
    return next((line.strip() for line in frames if line.strip() and not line[0].isspace()), "")


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
