"""What an instance counts of each of its containers, until the host asks for it."""

from dataclasses import dataclass, field

PATH = "/containers/counts"
"""Where the host asks for it: a JSON object, container → what has been counted since it was last asked."""

_KEPT = 100_000
"""So many times are kept if nobody asks."""


@dataclass(slots=True)
class ContainerCounts:
    """What has been counted of one container.

    Attributes:
        invocations: requests that it was sent.
        ended: those that it answered, or failed to.
        client_errors, server_errors: those that it answered with 4xx, and those with 5xx or not at all.
        latencies_ns: of those that it answered, from when it was sent the request until its response was complete.
    """

    invocations: int = 0
    ended: int = 0
    client_errors: int = 0
    server_errors: int = 0
    latencies_ns: list[int] = field(default_factory=list)

    def answered(self, status: int, latency_ns: int) -> None:
        """A request was answered."""
        self.ended += 1
        self.client_errors += 400 <= status < 500
        self.server_errors += status >= 500
        if len(self.latencies_ns) < _KEPT:
            self.latencies_ns.append(latency_ns)

    def failed(self) -> None:
        """A request was not answered, or not to the end."""
        self.ended += 1
        self.server_errors += 1
