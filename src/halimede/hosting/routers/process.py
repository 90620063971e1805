"""A router process: `python -m halimede.hosting.routers.process ROW ROWS COUNTS CHANNEL DOOR`.

It has the connections that the host's own process hands it, answers their invocations, and hands a connection back when
its client asks for anything else. It ends with the host's own process, whatever that ends by.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys

import uvloop

from halimede.core import tasks
from halimede.core.clock import WALL_CLOCK
from halimede.core.origins import OriginPolicy
from halimede.hosting.access.denials import Denials
from halimede.hosting.access.gate import Gate
from halimede.hosting.access.keys import Key
from halimede.hosting.access.web_pages import WebPageGuard
from halimede.hosting.api.runtime import Runtime
from halimede.hosting.capture.writer import SpoolWriter
from halimede.hosting.http.connection import ClientConnection, Handler
from halimede.hosting.http.reserve import refuse_all_but_ping
from halimede.hosting.routers.channel import Channel
from halimede.hosting.routers.connection import SharedConnection, is_invocation
from halimede.hosting.routers.door import Adoption, Door, Handed
from halimede.hosting.routers.messages import (
    Begin,
    KeyBegan,
    KeyEnded,
    Logged,
    SessionClosed,
    Stop,
    Sync,
    Synced,
)
from halimede.hosting.routers.replica import Replica
from halimede.hosting.routers.shared_counts import CLOSED, SharedCounts
from halimede.hosting.routing.invocations import Invocations
from halimede.hosting.routing.sessions import Sessions
from halimede.hosting.shadows.copies import Copies
from halimede.hosting.shadows.settings import ShadowSettings
from halimede.net.connection_limit import no_descriptors
from halimede.net.receiving import ReceiveBudget
from halimede.net.server import Connections
from halimede_worker import descriptors

logger = logging.getLogger("halimede")

_COUNTS_S = 1.0
"""How often what has been counted is told."""


class Router:
    """The process. Lives on the event loop."""

    def __init__(self, row: int, counts: SharedCounts, door: socket.socket) -> None:
        """A router that has been told nothing yet."""
        self.channel = Channel(self._on_message, _end)
        self._counts = counts
        self._row = row
        self._replica = Replica(counts, row, self.channel.send)
        self._connections = _Counted(counts, row)
        self._adoption = Adoption(self._connection)
        self._door = Door(door, self._adoption.take)
        self._keys: dict[str, Key] = {}
        self._stopping: asyncio.Task[None] | None = None
        self._copies: Copies
        self._invocations: Invocations
        self._denials: Denials
        self._runtime: Runtime
        self._budget: ReceiveBudget
        self._capture: SpoolWriter

    def _on_message(self, message: object) -> None:
        if self._replica.apply(message):
            return
        if isinstance(message, Sync):
            self._replica.send_counts()
            self.channel.send(Synced(message.number))
        elif isinstance(message, KeyBegan):
            self._keys[message.key.id] = message.key
        elif isinstance(message, KeyEnded):
            self._keys.pop(message.id, None)
        elif isinstance(message, SessionClosed):
            self._invocations.sessions.note(message.token, message.expires)
        elif isinstance(message, Begin):
            self._begin(message)
        elif isinstance(message, Stop):
            self._stopping = tasks.start("stopping", self._stop(message.grace_s))

    def _begin(self, message: Begin) -> None:
        WALL_CLOCK.follow(message.time)
        self._keys = {key.id: key for key in message.instance_keys}
        self._denials = Denials()
        self._budget = ReceiveBudget(message.receive_bytes)
        sessions = Sessions(message.session_key)
        for token, expires in message.closed_sessions.items():
            sessions.note(token, expires)
        sessions.on_closed = lambda token, expires: self.channel.send(SessionClosed(token, expires))
        self._invocations = Invocations(self._replica.table, message.invocation, sessions)
        self._capture = SpoolWriter(message.capture_directory, message.capture)
        self._replica.observers = self._capture.observers
        self._copies = self._replica.copies = Copies(ShadowSettings.of(message.invocation))
        self._runtime = Runtime(
            Gate(message.keys, message.caller, issued=self._keys.get),
            self._invocations,
            WebPageGuard(OriginPolicy((message.address, *message.allowed_hosts), message.allowed_origins)),
            self._denials,
        )
        gc.freeze()
        self._send_counts()

    def _send_counts(self) -> None:
        asyncio.get_running_loop().call_later(_COUNTS_S, self._send_counts)
        self._replica.send_counts()

    # connections

    def _connection(self, handed: Handed) -> SharedConnection:
        handler: Handler = self._runtime.handle
        if handed.socket.fileno() >= descriptors.usable():
            handler = refuse_all_but_ping(handler, no_descriptors())
        return SharedConnection(
            handler,
            self,
            self._connections,
            self._budget,
            client=handed.client,
            from_loopback=handed.from_loopback,
            data=handed.data,
        )

    def wants(self, data: bytes) -> bool:
        """Whether a request that begins so is the host's own process's."""
        return not is_invocation(data)

    def hand(self, descriptor: int, client: str, data: bytes, *, from_loopback: bool) -> bool:
        """Hand a connection to the host's own process; if that cannot be, the connection ends."""
        try:
            self._door.hand(descriptor, client, data, from_loopback=from_loopback)
        except OSError as error:
            logger.error("router process: a connection cannot be handed on: %s", error.strerror)
        return True

    async def _stop(self, grace_s: float) -> None:
        self._adoption.stop()
        self._connections.shutdown()
        try:
            async with asyncio.timeout(grace_s):
                await self._connections.gone()
        except TimeoutError:
            pass
        await self._runtime.close()
        await self._copies.close()
        self._denials.close()
        await self._capture.close()
        self._replica.send_counts()
        self.channel.close()


class _Counted(Connections[ClientConnection]):
    """The open connections; those that are gone are counted where the host's own process sees it."""

    def __init__(self, counts: SharedCounts, row: int) -> None:
        super().__init__()
        self._counts = counts
        self._row = row

    def discard(self, element: object, /) -> None:
        """The connection is gone."""
        self._counts.put(self._row, CLOSED, self._counts.get(self._row, CLOSED) + 1)
        super().discard(element)


class _Log(logging.Handler):
    """Has the host's own process log what is logged here."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        """Tell it."""
        self._channel.send(Logged(record.levelno, self.format(record)))


def _end() -> None:
    """The channel is closed: by the host's own process, by its end, or because everything has been answered."""
    os._exit(0)


async def _run(row: int, rows: int, counts: int, channel: int, door: int) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):  # which the host's own process gets too, and acts on
        loop.add_signal_handler(number, lambda: None)
    near = socket.socket(fileno=door)
    near.setblocking(False)
    router = Router(row, SharedCounts(rows, counts), near)
    logger.addHandler(_Log(router.channel))
    logger.setLevel(logging.INFO)
    logger.propagate = False
    await loop.create_unix_connection(lambda: router.channel, sock=socket.socket(fileno=channel))
    await loop.create_future()


def main() -> None:
    """Run until the channel is closed."""
    uvloop.run(_run(*map(int, sys.argv[1:])))


if __name__ == "__main__":
    main()
