"""The sockets of the server: opening them, and closing them without breaking off an answer."""

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from halimede.net.tls.handshakes import Handshakes
from halimede.net.tls.identity import Identity

logger = logging.getLogger("halimede")

_BACKLOG = 1024
"""Connections that may wait to be accepted; the system may allow fewer."""

_MAKE_TARGET = "HALIMEDE_MAKE_TARGET"
"""The environment variable in which the Makefile says which of its targets it makes."""


class ListenError(Exception):
    """A socket could not be opened; the text says which, why, and what would help."""


class Connection(Protocol):
    """One open connection of any protocol."""

    def shutdown(self) -> None:
        """Take no more requests, and close when those taken are answered."""


class WatchedFiles(Protocol):
    """Files that are read again when they change."""

    def start(self) -> None:
        """Watch them."""

    def close(self) -> None:
        """Watch them no more."""


C = TypeVar("C", bound=Connection)


class Connections(set[C]):
    """The open connections of one endpoint. Each adds itself, and discards itself when it is gone.

    Attributes:
        leaving: the server will stop soon: clients are to go elsewhere, where their protocol has words for it.
        elsewhere: how many connections of the endpoint other processes have.
        on_change: called when one has come, gone or been refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.leaving = False
        self.elsewhere = 0
        self.on_change: Callable[[], None] | None = None
        self._gone: asyncio.Future[None] | None = None

    @property
    def open(self) -> int:
        """How many connections of the endpoint are open, in all processes."""
        return len(self) + self.elsewhere

    def changed(self) -> None:
        """One has come, gone or been refused."""
        if self.on_change is not None:
            self.on_change()

    def add(self, element: C, /) -> None:
        """The connection is there."""
        super().add(element)
        self.changed()

    def discard(self, element: object, /) -> None:
        """The connection is gone."""
        super().discard(cast("C", element))
        self.changed()
        if not self and self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def shutdown(self) -> None:
        """Close each once its requests are answered."""
        for connection in list(self):
            connection.shutdown()

    async def gone(self) -> None:
        """Return when there is none."""
        if self:
            self._gone = asyncio.get_running_loop().create_future()
            await self._gone


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One protocol at one address.

    Attributes:
        name: what the log calls it.
        flag: the flag that sets its port.
        address: where it listens.
        port: where it listens; 0 for any free port.
        factory: makes the protocol of a new connection.
        connections: where those protocols keep themselves.
        reuse_port: other processes may listen at the same port.
        tls: with what connections over TCP are encrypted; None for not at all.
        says_goodbye: its protocol can tell a client to go elsewhere while it still answers it.
        protocol: what metrics call it; "" for what is not counted.
        service: what an error calls it where tritonserver has words for that; "" for none.
        tokens: the files by which its clients show who they are; None if they need not.
        unix_socket: a socket of this machine at which it listens as well: a path, or @ and a name of Linux's abstract
            namespace; "" for none.
    """

    name: str
    flag: str
    address: str
    port: int
    factory: Callable[[], asyncio.BaseProtocol]
    connections: Connections[Any]
    reuse_port: bool = False
    tls: Identity | None = None
    says_goodbye: bool = False
    protocol: str = ""
    service: str = ""
    unix_socket: str = ""
    tokens: WatchedFiles | None = None


class Remote(Protocol):
    """Other processes, which have the connections of endpoints that this one opens; as `Server` has its own."""

    def leave(self) -> None:
        """Ask clients to leave."""

    def stop_accepting(self) -> None:
        """No connections come any more."""

    async def close(self, grace_s: float) -> bool:
        """Close every connection once it has sent its answers."""


class Server:
    """The endpoints that are open.

    Attributes:
        ports: where each listens, by its name.
    """

    def __init__(self, remote: Remote | None = None) -> None:
        """None yet; `remote` are the processes that have their connections, None for this one."""
        self.ports: dict[str, int] = {}
        self._remote = remote
        self._listeners: list[asyncio.Server] = []
        self._handshakes: list[Handshakes] = []
        self._endpoints: list[Endpoint] = []

    async def open(self, endpoint: Endpoint) -> int:
        """Listen, and say so in the log; the result is the port.

        uvloop sends what is written at once (TCP_NODELAY), so that small responses do not wait for each other.

        Raises:
            ListenError: the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        if endpoint.unix_socket:
            await self._open_unix_socket(endpoint)
        factory = self._factory(endpoint)
        try:
            listener = await loop.create_server(
                factory,
                endpoint.address,
                endpoint.port,
                backlog=_BACKLOG,
                reuse_port=endpoint.reuse_port or None,
            )
        except OSError as error:
            raise ListenError(_why(endpoint, error)) from error
        self._attach(endpoint)
        self._listeners.append(listener)
        port: int = listener.sockets[0].getsockname()[1]
        self.ports[endpoint.name] = port
        logger.info("Started %s at %s:%d", endpoint.name, endpoint.address, port)
        return port

    def attach(self, endpoint: Endpoint) -> Callable[[], asyncio.BaseProtocol]:
        """Have an endpoint at which another process listens: what makes the protocol of each connection."""
        self._attach(endpoint)
        return self._factory(endpoint)

    def _factory(self, endpoint: Endpoint) -> Callable[[], asyncio.BaseProtocol]:
        if endpoint.tls is None:
            return endpoint.factory
        handshakes = Handshakes(
            endpoint.name, endpoint.tls, endpoint.factory, on_end=endpoint.connections.changed
        )
        self._handshakes.append(handshakes)
        return handshakes.connect

    def _attach(self, endpoint: Endpoint) -> None:
        if endpoint.tls is not None:
            endpoint.tls.start()
        if endpoint.tokens is not None:
            endpoint.tokens.start()
        self._endpoints.append(endpoint)

    async def _open_unix_socket(self, endpoint: Endpoint) -> None:
        name = endpoint.unix_socket
        path = "\0" + name[1:] if name.startswith("@") else name
        try:
            listener = await asyncio.get_running_loop().create_unix_server(
                endpoint.factory, path, backlog=_BACKLOG
            )
        except OSError as error:
            raise ListenError(
                f"cannot listen at the Unix socket {name}: {error.strerror or error}"
            ) from error
        self._listeners.append(listener)
        logger.info("Started %s at the Unix socket %s", endpoint.name, name)

    def leave(self) -> None:
        """Go on as before, but ask clients to leave with their next request, if their protocol has words for it."""
        for endpoint in self._endpoints:
            endpoint.connections.leaving = True
        if self._remote is not None:
            self._remote.leave()

    def stop_accepting(self) -> None:
        """Refuse new connections. Those that are open stay, and are told if their protocol has words for it."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for handshakes in self._handshakes:
            handshakes.close()
        for endpoint in self._endpoints:
            for files in (endpoint.tls, endpoint.tokens):
                if files is not None:
                    files.close()
            if endpoint.says_goodbye:
                endpoint.connections.shutdown()
        if self._remote is not None:
            self._remote.stop_accepting()

    async def close(self, grace_s: float) -> bool:
        """Close every connection once it has sent its answers; whether that took no longer than `grace_s`."""
        self.stop_accepting()
        for endpoint in self._endpoints:
            endpoint.connections.shutdown()
        remote = True if self._remote is None else await self._remote.close(grace_s)
        try:
            async with asyncio.timeout(grace_s):
                for endpoint in self._endpoints:
                    await endpoint.connections.gone()
        except TimeoutError:
            return False
        return remote


def _why(endpoint: Endpoint, error: OSError) -> str:
    place = f"{endpoint.address}:{endpoint.port}"
    start = f"failed to start {endpoint.service} service: " if endpoint.service else ""
    if error.errno == errno.EADDRINUSE and endpoint.service:
        return f"{start}Unavailable - Socket '{place}' already in use; choose another port with {_elsewhere(endpoint)}"
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen at {place}: the port is in use; choose another with {_elsewhere(endpoint)}"
    if error.errno == errno.EACCES:
        return f"{start}cannot listen at {place}: that port is not permitted; choose another with {endpoint.flag}"
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return f"{start}cannot listen at {place}: {reason}"


def _elsewhere(endpoint: Endpoint) -> str:
    """What to write for another port; where the Makefile has started the server, that is not only a flag."""
    target = os.environ.get(_MAKE_TARGET)
    return f"{endpoint.flag}, as in: make {target} ARGS={endpoint.flag}=0" if target else endpoint.flag
