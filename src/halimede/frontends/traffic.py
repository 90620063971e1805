"""What passes through the endpoints: requests that were answered, and those that are under way."""

import asyncio
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

CLIENT_GONE: Final = 499
"""Stands for the status of a request whose client had gone before the response; never sent."""

Counts = defaultdict[tuple[str, int], int]
"""(route, status) → how many; the route is "" for what no route is for."""


def new_counts() -> Counts:
    """Counts that are 0."""
    return defaultdict(int)


class Busy(Protocol):
    """A connection."""

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What passes through one endpoint.

    Attributes:
        protocol: its name in metrics: http, grpc or sagemaker.
        connections: those that are open.
        counts: requests that were answered.
    """

    protocol: str
    connections: Collection[Busy]
    counts: Counts

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return sum(connection.in_flight for connection in self.connections)


def client_text(transport: asyncio.BaseTransport) -> str:
    """The address of a connection's client: host:port, [host]:port of IPv6, or unix for a Unix socket."""
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple) or len(peer) < 2:
        return "unix"
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
