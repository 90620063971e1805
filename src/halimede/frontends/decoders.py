"""Large JSON and large messages are decoded by processes of their own, as whoever decodes them holds Python's lock."""

import asyncio
import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from halimede.core import errors
from halimede.core.errors import InternalError
from halimede.core.memory import memory_limit
from halimede.core.tensors import Buffer
from halimede.frontends.decoder_messages import receive, send
from halimede.workers.exit_reason import ExitReason

_MEMORY_BYTES: Final = 2 << 30
"""Memory of the machine for each process: of 64 MiB of JSON, one may make 0.8 GB."""

_PROCESS: Final = "halimede.frontends.decoder_process"
_PIPE_BYTES: Final = 1 << 20

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
    """

    def __init__(self) -> None:
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()
        most = most_processes(os.cpu_count() or 1, memory_limit())
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
            HalimedeError: (the future) what the function raised, or the process ended.
        """
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._threads, self._decode, function, data, arguments)

    def _decode(
        self, function: "Callable[..., Decoded]", data: Buffer, arguments: tuple[Any, ...]
    ) -> Decoded:
        try:
            process = self._idle.get_nowait()
        except Empty:
            process = _start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            send(process.stdin, [pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL), data])
            answer = receive(process.stdout)
        except (EOFError, OSError):
            raise InternalError(_ended(process)) from None
        except BaseException:
            process.kill()
            _ended(process)
            raise
        self._idle.put(process)
        error, result = pickle.loads(answer[0], buffers=answer[1:])  # noqa: S301 - of our own process
        if error:
            raise getattr(errors, error)(result)
        decoded: Decoded = result
        return decoded


def _start() -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", _PROCESS],
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
