"""What passes through the endpoints: requests that were answered, and those that are under way."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from halimede.net.connection_limit import ConnectionLimit

CLIENT_GONE: Final = 499
"""Stands for the status of a request whose client had gone before the response; never sent."""

_CLIENT_ERRORS: Final = frozenset((1, 3, 5, 6, 7, 8, 9, 10, 11, 12, 16))
"""gRPC's codes that a client causes: cancelled, invalid, missing, refused, too much or unknown."""

_HEALTH_CHECKS: Final = frozenset(("server_live", "server_ready", "model_ready", "ping"))
"""Routes whose 4xx says that something is not ready, which is not a mistake of the client."""

Counts = defaultdict[tuple[str, int], int]
"""(route, status) → how many; the route is "" for what no route is for."""


def new_counts() -> Counts:
    """Counts that are 0."""
    return defaultdict(int)


def is_client_error(protocol: str, route: str, status: int) -> bool:
    """Whether the status of an answer says that the client made a mistake, was refused or gave up."""
    if route in _HEALTH_CHECKS and status != CLIENT_GONE:
        return False
    return status in _CLIENT_ERRORS if protocol == "grpc" else 400 <= status < 500


class Busy(Protocol):
    """A connection."""

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""


class Traffic(Protocol):
    """What passes through one endpoint."""

    @property
    def protocol(self) -> str:
        """Its name in metrics: http, grpc, sagemaker or vertex_ai."""

    @property
    def counts(self) -> Counts:
        """Requests that were answered."""

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""

    @property
    def open(self) -> int:
        """How many connections are open."""

    @property
    def refused(self) -> int | None:
        """Connections that were one too many; None where there may be any number."""


@dataclass(frozen=True, slots=True)
class LocalTraffic:
    """What passes through an endpoint of this process.

    Attributes:
        protocol: its name in metrics.
        connections: those that are open.
        counts: requests that were answered.
        limit: how many connections it may have; None for any number.
    """

    protocol: str
    connections: Collection[Busy]
    counts: Counts
    limit: ConnectionLimit | None = None

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return sum(connection.in_flight for connection in self.connections)

    @property
    def open(self) -> int:
        """How many connections are open."""
        return len(self.connections)

    @property
    def refused(self) -> int | None:
        """Connections that were one too many; None where there may be any number."""
        return None if self.limit is None else self.limit.refused
