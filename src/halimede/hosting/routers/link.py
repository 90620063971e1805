"""One router process, as the host's own process knows it."""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

from halimede.hosting.identity import EndpointId
from halimede.hosting.routers.channel import Channel
from halimede.hosting.routers.desk import Desk
from halimede.hosting.routers.door import Door, Handed
from halimede.hosting.routers.messages import Counted, Idle, Logged, SessionClosed, Stop, Sync, Synced
from halimede.hosting.routers.publisher import Publisher
from halimede.hosting.routers.shared_counts import CLOSED, SharedCounts
from halimede.hosting.routing.counts import InvocationCounts

logger = logging.getLogger("halimede")

_PATIENCE_S = 20.0
"""A router that does not answer for so long is ended, and another one takes its place."""

_START_S = 120.0
"""So long it may take until it answers for the first time."""

_PROGRAM = "halimede.hosting.routers.process"

_ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "67108864",
    "MALLOC_ARENA_MAX": "1",
}
"""Pieces of large bodies are kept for the next ones, unless the environment says otherwise."""


class RouterLink:
    """A router process that has been started.

    Attributes:
        is_ready: it may be given connections.
        gone: set when it has ended.
    """

    def __init__(
        self,
        row: int,
        counts: SharedCounts,
        publisher: Publisher,
        on_handed: Callable[[Handed], None],
        absorb: Callable[[EndpointId, str, str, InvocationCounts], None],
        on_session_closed: "Callable[[RouterLink, SessionClosed], None]",
    ) -> None:
        """A router that is to be started.

        Args:
            row: its row of the counts; no other router has it meanwhile.
            counts: those of all routers.
            publisher: knows variants and instances.
            on_handed: takes connections that it hands back.
            absorb: takes what it has counted of variants.
            on_session_closed: told of sessions that were closed there.
        """
        self.is_ready = False
        self.gone = asyncio.Event()
        self._has_answered = False
        self._row = row
        self._counts = counts
        self._publisher = publisher
        self._on_handed = on_handed
        self._absorb = absorb
        self._on_session_closed = on_session_closed
        self._channel = Channel(self._on_message, self._on_closed)
        self._desk = Desk(self.send, publisher.variant, publisher.column)
        self._syncs: dict[int, asyncio.Future[None]] = {}
        self._numbers = count(1)
        self._handed = 0
        self._door: Door | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self, rows: int) -> None:
        """Start it; it may be told things from now on.

        Raises:
            OSError: it cannot be started.
        """
        loop = asyncio.get_running_loop()
        channel, far_channel = socket.socketpair()
        door, far_door = socket.socketpair(type=socket.SOCK_SEQPACKET)
        numbers = (self._row, rows, self._counts.descriptor, far_channel.fileno(), far_door.fileno())
        try:
            with far_channel, far_door:
                self._process = await asyncio.to_thread(
                    subprocess.Popen,
                    [sys.executable, "-P", "-m", _PROGRAM, *map(str, numbers)],
                    stdin=subprocess.DEVNULL,
                    env={**_ALLOCATOR, **os.environ},
                    pass_fds=numbers[2:],
                )
        except OSError:
            channel.close()
            door.close()
            raise
        door.setblocking(False)
        self._door = Door(door, self._on_handed)
        await loop.create_unix_connection(lambda: self._channel, sock=channel)

    @property
    def pid(self) -> int:
        """The process; 0 if there is none yet."""
        return 0 if self._process is None else self._process.pid

    @property
    def connections(self) -> int:
        """How many connections it has."""
        return self._handed - self._counts.get(self._row, CLOSED)

    def send(self, message: object) -> None:
        """Tell it something; nothing happens if it is gone."""
        self._channel.send(message)

    def hand(self, descriptor: int, client: str, data: bytes, *, from_loopback: bool) -> None:
        """Hand it a connection.

        Raises:
            OSError: it is gone, or there are too many open files.
        """
        if self._door is None:
            raise BrokenPipeError
        self._door.hand(descriptor, client, data, from_loopback=from_loopback)
        self._handed += 1

    async def sync(self) -> None:
        """Return when it has done all that it has been told, or is gone; one that does not answer is ended."""
        if self.gone.is_set():
            return
        number = next(self._numbers)
        done = self._syncs[number] = asyncio.get_running_loop().create_future()
        self.send(Sync(number))
        try:
            async with asyncio.timeout(_PATIENCE_S if self._has_answered else _START_S):
                await done
        except TimeoutError:
            logger.error("router process %d does not answer, and is ended", self.pid)
            self.kill()
        finally:
            self._syncs.pop(number, None)

    def _on_message(self, message: Any) -> None:
        if self._desk.take(message):
            return
        if isinstance(message, Synced):
            self._has_answered = True
            done = self._syncs.get(message.number)
            if done is not None and not done.done():
                done.set_result(None)
        elif isinstance(message, Idle):
            self._publisher.idle(self, message.column)
        elif isinstance(message, Counted):
            for endpoint, variant, config, counts in message.counts:
                self._absorb(endpoint, variant, config, counts)
        elif isinstance(message, SessionClosed):
            self._on_session_closed(self, message)
        elif isinstance(message, Logged):
            logger.log(message.level, "%s", message.text)

    def _on_closed(self) -> None:
        self.is_ready = False
        self.gone.set()
        for done in self._syncs.values():
            if not done.done():
                done.set_result(None)

    def stop(self, grace_s: float) -> None:
        """Have it answer what it has been asked, and end."""
        self.is_ready = False
        self.send(Stop(grace_s))

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()

    async def bury(self) -> None:
        """Forget a router that has ended, or is ended now: none of its requests is in flight."""
        process = self._process
        if process is not None:
            process.kill()
            await asyncio.to_thread(process.wait)
        self._channel.close()
        if self._door is not None:
            self._door.close()
        self._on_closed()
        self._counts.clear_row(self._row)
        self._desk.close()
        self._publisher.gone(self)
