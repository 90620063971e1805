"""Large JSON and large messages are decoded by processes of their own, as whoever decodes them holds Python's lock.

What they are decoded to stays there until the server has memory for it (`ReceiveBudget.claim`), and counts until
nobody uses it. A request that waits for a process holds only its text, which counts, too.
"""

import asyncio
import os
import pickle
import resource
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import IO, Any, Final, TypeVar

import numpy as np

from halimede.core import errors
from halimede.core.errors import InternalError, InvalidArgumentError, UnavailableError
from halimede.core.memory import memory_limit
from halimede.core.tensors import Buffer
from halimede.frontends.decoder_messages import fill, receive_sizes, send
from halimede.frontends.decoder_process import OUT_OF_MEMORY
from halimede.net.receiving import (
    SMALL_BYTES,
    Claim,
    ReceiveBudget,
    ReceiveError,
    as_answer,
    when_freed,
)
from halimede.workers.exit_reason import ExitReason

_MEMORY_BYTES: Final = 2 << 30
"""Memory of the machine for each process: of 64 MiB of JSON, one may make 1.2 GB."""

_MEMORY_SHARE: Final = 2
"""All processes together may take one part in so many of the memory."""

_MOST_TIMES: Final = 40
"""What the libraries that decode make of a byte. They crash when there is no memory for it."""

_CRASHES: Final = frozenset({-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGKILL})

_PROCESS: Final = "halimede.frontends.decoder_process"
_PIPE_BYTES: Final = 1 << 20
_ALIGNMENT: Final = 64
_LOOK_S: Final = 1.0

Decoded = TypeVar("Decoded")


def most_processes(cores: int, memory: int) -> int:
    """How many processes decode at a time; further requests wait.

    Args:
        cores: of the machine.
        memory: bytes that this process and others may use; 0 if that is not known.
    """
    most = min(4, cores)
    return max(1, min(most, memory // _MEMORY_BYTES)) if memory else most


class Decoders:
    """Processes that are started when they are needed, and end with this object.

    A process that ends while it decodes fails that request only.

    Attributes:
        budget: counts the memory of what is decoded.
    """

    def __init__(self, budget: ReceiveBudget | None = None, memory: int | None = None) -> None:
        """None yet.

        Args:
            budget: counts the memory of what is decoded; None for one without a limit.
            memory: bytes that each process may take; 0 for any number, None for a share of what there is.
        """
        self.budget = budget or ReceiveBudget()
        available = memory_limit()
        most = most_processes(os.cpu_count() or 1, available)
        self._memory = _allowed(available // _MEMORY_SHARE // most if memory is None else memory)
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="decoder")
        weakref.finalize(self, _end, self._idle)

    def decode(
        self, function: "Callable[..., Decoded]", data: Buffer, *arguments: Any
    ) -> "asyncio.Future[Decoded]":
        """Have `function(data, *arguments)` called. Of what it gives, tensors and memoryviews are not copied.

        Args:
            function: of a module of its own, as are the classes of all that it takes and gives.
            data: what is to be decoded.
            arguments: what else it takes.

        Raises:
            HalimedeError: (the future) what the function raised, there is no memory, or the process ended.
        """
        loop, budget = asyncio.get_running_loop(), self.budget
        held = 0 if isinstance(data, memoryview) and budget.keeps(data) else len(data)
        budget.keep(held)
        room = _Room(budget, loop)
        work = loop.run_in_executor(self._threads, self._decode, room, function, data, arguments)

        def ended(work: "asyncio.Future[Decoded]") -> None:
            budget.release(held)
            room.leave()
            if not work.cancelled() and (error := work.exception()) is not None:
                loop.call_soon(_forget_frames, error)

        work.add_done_callback(ended)
        return work

    def _decode(
        self, room: "_Room", function: "Callable[..., Decoded]", data: Buffer, arguments: tuple[Any, ...]
    ) -> Decoded:
        try:
            process = self._idle.get_nowait()
        except Empty:
            process = _start(self._memory)
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            send(process.stdin, [pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL), data])
            answer = room.receive(process.stdout)
        except (EOFError, OSError):
            raise self._failure(process, len(data)) from None
        except BaseException:
            process.kill()
            _ended(process)
            raise
        self._idle.put(process)
        error, result = pickle.loads(answer[0], buffers=answer[1:])  # noqa: S301 - of our own process
        if error == MemoryError.__name__:
            raise InvalidArgumentError(self._too_much())
        if error:
            raise getattr(errors, error)(result)
        room.use_by(result[0] if isinstance(result, tuple) else result)
        decoded: Decoded = result
        return decoded

    def _failure(self, process: "subprocess.Popen[bytes]", size: int) -> InternalError | InvalidArgumentError:
        """Why a process has ended that decoded so many bytes."""
        words = _ended(process)
        may_be_much = bool(self._memory) and size * _MOST_TIMES >= self._memory
        if process.returncode == OUT_OF_MEMORY or (may_be_much and process.returncode in _CRASHES):
            return InvalidArgumentError(f"{self._too_much()}; {words}")
        return InternalError(words)

    def _too_much(self) -> str:
        most = f"the {self._memory} bytes that decoding it may take" if self._memory else "there is"
        return f"the request needs more memory than {most}"


class _Room:
    """The memory that what one request is decoded to takes here. Asked for and filled in a thread."""

    def __init__(self, budget: ReceiveBudget, loop: asyncio.AbstractEventLoop) -> None:
        self._budget = budget
        self._loop = loop
        self._answer: Future[ReceiveError | None] = Future()
        self._claim: Claim | None = None
        self._users = 0

    def receive(self, pipe: IO[bytes]) -> list[memoryview]:
        """The parts of a message, once there is memory for them.

        Raises:
            EOFError: the process has ended.
            UnavailableError: there is none.
            InvalidArgumentError: there could never be.
        """
        sizes = receive_sizes(pipe)
        total = sum(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)
        if total > SMALL_BYTES:
            self._ask(total)
        try:
            memory = np.empty(total, np.uint8)
        except MemoryError:
            self._give_back()
            raise UnavailableError(
                f"there is no memory for the {total} bytes that the request is decoded to"
            ) from None
        self.use_by(memory)
        parts = []
        begin = 0
        for size in sizes:
            part = memory[begin : begin + size].data
            fill(pipe, part)
            parts.append(part.toreadonly())
            begin += -(-size // _ALIGNMENT) * _ALIGNMENT
        return parts

    def use_by(self, user: Any) -> None:
        """The memory counts until this is freed, if that can be known. To be called while something uses it."""
        if self._claim is not None and type(user).__weakrefoffset__:
            self._users += 1
            when_freed(user, self._loop, self._used)

    def _used(self) -> None:
        self._users -= 1
        if not self._users:
            self._give_back_here()

    def _ask(self, size: int) -> None:
        self._loop.call_soon_threadsafe(self._ask_here, size)
        while True:
            with suppress(TimeoutError):
                error = self._answer.result(_LOOK_S)
                break
            if self._loop.is_closed():
                raise CancelledError
        if error is not None:
            raise as_answer(error)

    def _ask_here(self, size: int) -> None:
        if not self._answer.cancelled():
            self._claim = self._budget.claim(size, self._answer.set_result)

    def _give_back(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._give_back_here)

    def _give_back_here(self) -> None:
        if self._claim is not None:
            self._claim.give_back()

    def leave(self) -> None:
        """Nobody waits for it any more, or it is there. On the loop."""
        if self._answer.cancel():
            self._give_back_here()


def _forget_frames(error: BaseException) -> None:
    """Free what the frames hold that an error has passed, the text among them, once it is told.

    The future has the error, and one of these frames has the future, so that the garbage collector would free them.
    """
    error.__traceback__ = None


def _allowed(memory: int) -> int:
    """So many bytes, or as many as the system allows; 0 for any number."""
    limits = (memory, *resource.getrlimit(resource.RLIMIT_DATA))
    return min((each for each in limits if each > 0), default=0)


def _start(memory: int) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", _PROCESS, str(memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pipesize=_PIPE_BYTES,
            start_new_session=True,  # an interrupt at the terminal is for the server
        )
    except OSError as error:
        raise InternalError(
            f"cannot start the process that decodes large requests: {error.strerror}"
        ) from None


def _ended(process: "subprocess.Popen[bytes]") -> str:
    """Wait for a process that ends: what there is to say."""
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):  # of what is still to be written
            pipe.close()
    status = process.wait()
    reason = ExitReason(-status if status < 0 else status << 8)
    return f"the process that decoded the request {reason.words}"


def _end(idle: "SimpleQueue[subprocess.Popen[bytes]]") -> None:
    with suppress(Empty):
        while True:
            _ended(idle.get_nowait())
