"""How many connections an endpoint may have: `--http-max-connections`, `--grpc-max-connections`, and file descriptors.

One too many is not cut off: it is told so, and its client when to come back, since a client that is cut off tries again
at once. Health checks are answered as ever, or a server with enough to do would be taken for one that is gone.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from halimede.core.errors import UnavailableError
from halimede.net.server import Connections
from halimede_worker import descriptors

MOST_TURNED_AWAY = 256
"""So many connections may be there to be told that they are too many; then one of these is cut off for each more."""

_SHARE_OF_RESERVE = 8
"""Such a part of the reserve of descriptors is an endpoint's, as there are several."""


def too_many(most: int) -> UnavailableError:
    """What clients are told."""
    msg = f"the server has {most} connections, as many as it may; try again later"
    return UnavailableError(msg, retry_after_s=1)


def no_descriptors() -> UnavailableError:
    """What clients are told when the connection has a descriptor of the reserve."""
    return UnavailableError(f"the server is {descriptors.shortage()}; try again later", retry_after_s=1)


class ConnectionLimit:
    """Makes the protocol of each new connection of an endpoint.

    Attributes:
        refused: connections that were one too many.
        make: the usual protocol.
    """

    def __init__(
        self,
        most: int,
        connections: Connections[Any],
        make: Callable[..., asyncio.BaseProtocol],
        make_refusing: Callable[..., asyncio.BaseProtocol],
    ) -> None:
        """A limit of `most` connections.

        Args:
            most: so many get what `make` makes; 0 for as many as there are file descriptors.
            connections: those that there are.
            make: the usual protocol.
            make_refusing: one for a connection that is one too many; it keeps itself in the `Connections` that it is
                given, and answers with the `UnavailableError` that it is given.
        """
        self.refused = 0
        self._most = most
        self._connections = connections
        self.make = make
        self._make_refusing = make_refusing
        self._turned_away: Connections[Any] = Connections()
        self._turned_away.leaving = True

    def __call__(self) -> asyncio.BaseProtocol:
        """What a connection speaks until it is there."""
        return _Entrance(self)

    def protocol(self, descriptor: int, *details: Any) -> asyncio.BaseProtocol:
        """What one more connection, which has this descriptor, speaks; `make` and `make_refusing` get the details."""
        kept = MOST_TURNED_AWAY
        if descriptor >= descriptors.usable():
            error = no_descriptors()
            kept = max(1, min(kept, descriptors.reserve() // _SHARE_OF_RESERVE))
        elif self._most and self._connections.open >= self._most:
            error = too_many(self._most)
        else:
            return self.make(*details)
        self.refused += 1
        self._connections.changed()
        while len(self._turned_away) >= kept:
            one = next(iter(self._turned_away))
            self._turned_away.discard(one)  # it is gone only in a later turn of the loop
            one.abort()
        return self._make_refusing(self._turned_away, error, *details)


class _Entrance(asyncio.Protocol):
    """Many connections may be accepted before the first of them is there: they are counted only then."""

    def __init__(self, limit: ConnectionLimit) -> None:
        self._limit = limit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        socket = transport.get_extra_info("socket")
        protocol = self._limit.protocol(-1 if socket is None else socket.fileno())
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
