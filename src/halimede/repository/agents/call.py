"""An action of an agent, taken in a process of its own, which may take so long and no longer. Blocks.

Values of parameters may be secrets: no text that leaves this module repeats one.
"""

import json
import logging
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import IO, Any

from halimede.core.errors import InvalidArgumentError
from halimede.repository.agents.declared import BUILT_IN

logger = logging.getLogger("halimede")

_PROGRAM = Path(__file__).with_name("program.py")
_READ_BYTES = 65536
_FULL_PIPE = 16
"""So many reads empty a pipe, however large it may be."""

_MAX_ANSWER = 1 << 20
_MAX_LINE = 8192
_MAX_LINES = 1000
_SHORTEST_SECRET = 4
"""Shorter values of parameters are no secrets, but would be found in any text."""


class Action(Enum):
    """What an agent may do at, under the names of Triton's C API."""

    LOAD = "LOAD"
    LOAD_COMPLETE = "LOAD_COMPLETE"
    LOAD_FAIL = "LOAD_FAIL"
    UNLOAD = "UNLOAD"
    UNLOAD_COMPLETE = "UNLOAD_COMPLETE"


class AgentError(InvalidArgumentError):
    """An agent refuses a model, fails, or takes too long.

    The text names agent, action and reason; that of a built-in agent's refusal is as it refused.

    Attributes:
        actions: those that it does anything at, all if that is not known.
    """

    def __init__(self, message: str, actions: frozenset[Action]) -> None:
        super().__init__(message)
        self.actions = actions


@dataclass(frozen=True, slots=True)
class AgentCall:
    """What an agent is to do.

    Attributes:
        agent: its name.
        file: its code.
        action: what it is to do.
        model: the model's name.
        location: where the model's files are.
        config: the model's configuration as it is written, as JSON.
        parameters: the agent's.
        state: what it remembers.
        scratch: where it may make directories.
    """

    agent: str
    file: Path
    action: Action
    model: str
    location: Path
    config: Mapping[str, Any] = field(repr=False)
    parameters: Mapping[str, str] = field(repr=False)
    state: Mapping[str, Any] = field(repr=False)
    scratch: Path

    @property
    def text(self) -> bytes:
        """As the process reads it."""
        return json.dumps(
            {
                "file": str(self.file),
                "action": self.action.value,
                "model": self.model,
                "location": str(self.location),
                "config": self.config,
                "parameters": dict(self.parameters),
                "state": dict(self.state),
                "scratch": str(self.scratch),
            }
        ).encode()


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """What an agent has done.

    Attributes:
        location: where the model's files are now.
        state: what it remembers.
        actions: those that it does anything at.
    """

    location: Path
    state: Mapping[str, Any] = field(repr=False)
    actions: frozenset[Action]


def call_agent(call: AgentCall, timeout_s: float) -> AgentAnswer:
    """What the agent has done, in a process of its own.

    Raises:
        AgentError: it refused or failed, its process ended or was stopped after `timeout_s`, or what it put in the
            place of the model's files is no directory.
    """
    action = call.action.value
    try:
        written, status = _run(call, timeout_s)
    except OSError as error:
        raise _error(call, f"cannot be started: {error.strerror}") from error
    answer = _read_answer(written)
    if answer is None and status is None:
        raise _error(call, f"did not finish {action} within {timeout_s:g} seconds and was stopped")
    if answer is None:
        assert status is not None
        how = f"was killed: {signal.strsignal(-status)}" if status < 0 else f"ended with status {status}"
        raise _error(call, f"failed at {action}: its process {how}")
    actions = frozenset(map(Action, answer["actions"]))
    if "refusal" in answer:
        if call.file in BUILT_IN.values():  # in the words of tritonserver's agents
            raise AgentError(answer["refusal"], actions)
        raise _error(call, f"refused {action}: {answer['refusal']}", actions)
    if "failure" in answer:
        raise _error(call, f"failed at {action}: {answer['failure']}", actions)
    location = Path(answer["location"])
    if call.action is Action.LOAD and not location.is_dir():
        reason = f"'{location}', from which it has the model loaded, is not a directory"
        raise _error(call, f"failed at {action}: {reason}", actions)
    return AgentAnswer(location, answer["state"], actions)


def hide_parameters(text: str, parameters: Mapping[str, str]) -> str:
    """The text with the names of parameters in the place of their values."""
    names = {}
    for name, value in parameters.items():
        for part in (*value.splitlines(), value):
            if len(part) >= _SHORTEST_SECRET:
                names[part] = names[repr(part)[1:-1]] = name
    if not names:
        return text
    pattern = "|".join(re.escape(part) for part in sorted(names, key=len, reverse=True))
    return re.sub(pattern, lambda found: f"<{names[found[0]]}>", text)


def _error(call: AgentCall, reason: str, actions: frozenset[Action] = frozenset(Action)) -> AgentError:
    shown = reason if call.file in BUILT_IN.values() else hide_parameters(reason, call.parameters)
    return AgentError(f"agent '{call.agent}' {shown}", actions)


def _read_answer(written: bytes) -> dict[str, Any] | None:
    """What the process told; None if it ended, or was stopped, before that."""
    if len(written) > _MAX_ANSWER:
        return {"failure": f"its state takes more than {_MAX_ANSWER} bytes", "actions": [*Action]}
    try:
        answer: dict[str, Any] = json.loads(written)
    except ValueError:
        return None
    return answer


def _run(call: AgentCall, timeout_s: float) -> tuple[bytes, int | None]:
    """What the process wrote, and its exit status; None if it took too long."""
    deadline = time.monotonic() + timeout_s
    written = bytearray()
    output = _Output(call)
    with ExitStack() as opened:
        request = opened.enter_context(os.fdopen(os.memfd_create("halimede-agent"), "w+b", buffering=0))
        request.write(call.text)
        request.seek(0)
        alive, held = os.pipe()
        opened.callback(os.close, held)
        try:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-P", _PROGRAM, str(alive)],
                stdin=request,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(alive,),
                start_new_session=True,
            )
        finally:
            os.close(alive)
        opened.enter_context(process)
        opened.callback(_kill_group, process.pid)  # before it is waited for: until then the number is its own
        exited = os.pidfd_open(process.pid)
        opened.callback(os.close, exited)
        assert process.stdout is not None
        assert process.stderr is not None
        takers: dict[Any, Callable[[bytes], object]] = {
            process.stdout: written.extend,
            process.stderr: output.take,
        }
        with selectors.DefaultSelector() as events:
            events.register(exited, selectors.EVENT_READ)
            for pipe in takers:
                os.set_blocking(pipe.fileno(), False)
                events.register(pipe, selectors.EVENT_READ)
            ended = late = False
            while not (ended or late) and len(written) <= _MAX_ANSWER:
                ready = [key.fileobj for key, _ in events.select(max(0.0, deadline - time.monotonic()))]
                ended = exited in ready
                late = time.monotonic() >= deadline
                for pipe in [pipe for pipe in takers if pipe in ready]:
                    if not _read(pipe, takers[pipe]):
                        events.unregister(pipe)
                        del takers[pipe]
            _kill_group(process.pid)
            for pipe, take in takers.items() if ended else ():
                for _ in range(_FULL_PIPE):  # more is not the agent's, but of something that got away from it
                    if not _read(pipe, take):
                        break
        output.end()
    return bytes(written), process.returncode if ended else None


def _read(pipe: IO[bytes], take: Callable[[bytes], object]) -> bool:
    """Pass on some of what is in a pipe: False if there is nothing, now or ever."""
    try:
        data = os.read(pipe.fileno(), _READ_BYTES)
    except BlockingIOError:
        return False
    take(data)
    return bool(data)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


class _Output:
    """What an agent prints, on its way to the log: so many lines of so many bytes, without values of parameters."""

    def __init__(self, call: AgentCall) -> None:
        self._call = call
        self._rest = b""
        self._lines = 0

    def take(self, data: bytes) -> None:
        """Log the lines that are complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) >= _READ_BYTES:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._log(line)

    def end(self) -> None:
        """Log what is left."""
        if self._rest:
            self._log(self._rest)
            self._rest = b""

    def _log(self, line: bytes) -> None:
        self._lines += 1
        if self._lines > _MAX_LINES:
            return
        call = self._call
        text = hide_parameters(line.decode(errors="replace"), call.parameters)
        if len(text) > _MAX_LINE:
            text = f"{text[:_MAX_LINE]} (and more)"
        if self._lines == _MAX_LINES:
            text = "(what it prints from here on is left out)"
        logger.info("agent '%s' of '%s': %s", call.agent, call.model, text)
