"""What passes through the endpoints: requests that were answered, and those that are under way."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

from halimede.frontends.connection_limit import ConnectionLimit

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
        protocol: its name in metrics: http, grpc, sagemaker or vertex_ai.
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
