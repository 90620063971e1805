"""The host's end of its engine process: calls and their answers, and what the engine tells."""

import asyncio
import itertools
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from halimede.core import tasks
from halimede.hosting.substrates.ray.messages import Answer, Call, Event, receive, send

_PROGRAM = "halimede.hosting.substrates.ray.engine"
_CONNECTING_S = 60.0
_ENDING_S = 10.0

logger = logging.getLogger("halimede")


class EngineError(Exception):
    """The cluster cannot be reached; the text says why."""


class EngineLostError(Exception):
    """The engine process has ended."""


class EngineProcess:
    """One process that speaks to Ray. Lives on the event loop.

    Attributes:
        node: the id of the node that the host is on.
        address: that node's address.
    """

    def __init__(self, on_event: Callable[[Event], None], on_lost: Callable[[], None]) -> None:
        """A process that is not started.

        Args:
            on_event: told what the engine tells.
            on_lost: told when it has ended without being asked to.
        """
        self.node = ""
        self.address = ""
        self._on_event = on_event
        self._on_lost = on_lost
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(
        self, address: str, namespace: str, log: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        """Start the process, and connect to a cluster.

        Args:
            address: the cluster's.
            namespace: that of the actors.
            log: a file for what the process prints.
            variables: further ones of its environment.

        Raises:
            EngineError: the cluster cannot be reached.
        """
        ours, theirs = socket.socketpair()
        with theirs, log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", _PROGRAM, str(theirs.fileno()), str(os.getpid()),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                pass_fds=[theirs.fileno()], start_new_session=True, env={**os.environ, **(variables or {})},
            )  # fmt: skip
        reader, self._writer = await asyncio.open_connection(sock=ours)
        try:
            async with asyncio.timeout(_CONNECTING_S):
                send(self._writer, (address, namespace))
                told: Event = await receive(reader)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            self.abandon()  # it does not listen to anybody
            await self.close()
            raise EngineError(
                f"the Ray cluster at {address} gives no answer; {log} has the details"
            ) from None
        if told.name != "connected":
            await self.close()
            raise EngineError(f"the Ray cluster at {address} cannot be used: {told.arguments[0]}")
        self.node, self.address = told.arguments
        self._reading = tasks.start("reading what Ray's process tells", self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                message = await receive(reader)
                if isinstance(message, Answer):
                    self._answered(message)
                else:
                    self._on_event(message)
        except (asyncio.IncompleteReadError, ConnectionError):
            self._lost()
        except Exception:  # it is as good as gone, as nobody hears it any more
            self._lost()
            raise

    def _lost(self) -> None:
        self._fail_calls()
        self._on_lost()

    def _answered(self, answer: Answer) -> None:
        call = self._calls.pop(answer.number, None)
        if call is None or call.done():
            return
        if answer.error is not None:
            call.set_exception(answer.error)
        else:
            call.set_result(answer.value)

    def _fail_calls(self) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.done():
                call.set_exception(EngineLostError())

    async def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Have the engine do something.

        Raises:
            ApiError: it is refused or fails.
            LostError: the actor that it is about is gone.
            UnreachableError: the actor that it is about cannot be reached now.
            EngineLostError: the engine has ended meanwhile.
        """
        writer = self._writer
        if writer is None or self._reading is None or self._reading.done():
            raise EngineLostError
        number = next(self._numbers)
        future = self._calls[number] = asyncio.get_running_loop().create_future()
        send(writer, Call(number, name, arguments, named))
        try:
            return await future
        finally:
            self._calls.pop(number, None)

    def abandon(self) -> None:
        """Kill the process: its cluster is gone, which it would find out in a minute."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def close(self) -> None:
        """End the process; actors stay."""
        await tasks.cancel(self._reading)
        self._fail_calls()
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            try:
                async with asyncio.timeout(_ENDING_S):
                    await self._process.wait()
            except TimeoutError:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()
