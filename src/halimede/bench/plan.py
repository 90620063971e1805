"""What the processes that send the load are told."""

from dataclasses import dataclass

from halimede.bench.address import Address
from halimede.bench.arrivals import Arrivals
from halimede.bench.payloads import Payload


@dataclass(frozen=True, slots=True)
class Sequences:
    """Requests belong to sequences.

    Attributes:
        length: requests of a sequence, on average.
        variation: lengths differ by up to so many percent of that.
        first: the first correlation id.
        ids: how many ids there are before the first one comes again.
    """

    length: int
    variation: float = 20.0
    first: int = 1
    ids: int = 2**31


@dataclass(frozen=True, slots=True)
class Plan:
    """What is sent, and where.

    Attributes:
        address: of the server.
        grpc: over gRPC, otherwise over HTTP.
        streaming: over a gRPC stream, or answers are server-sent events.
        decoupled: a response over a gRPC stream need not be a request's only one.
        payloads: streams of requests: one that all connections go through, or one for each sequence.
        metadata: headers of gRPC calls.
        sequences: None if requests are independent.
        connections: at most so many in all processes together.
        timeout_s: a request without an answer for so long has failed.
        processes: how many share the load.
        seed: of everything random.
    """

    address: Address
    grpc: bool
    streaming: bool
    decoupled: bool
    payloads: tuple[tuple[Payload, ...], ...]
    metadata: tuple[tuple[str, str], ...] = ()
    sequences: Sequences | None = None
    connections: int = 1024
    timeout_s: float = 60.0
    processes: int = 1
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Level:
    """How much load there is at a time.

    Attributes:
        concurrency: requests under way, in a closed loop.
        arrivals: when requests are sent, in an open loop; None in a closed one.
        requests: stop after so many; 0 for no limit.
    """

    concurrency: int = 0
    arrivals: Arrivals | None = None
    requests: int = 0

    @property
    def name(self) -> str:
        """What a table calls it."""
        if self.arrivals is None:
            return f"{self.concurrency} at once"
        return f"{self.arrivals.rate:.6g}/s"

    @property
    def figure(self) -> float:
        """Its place on an axis."""
        return float(self.concurrency) if self.arrivals is None else self.arrivals.rate


def share(total: int, index: int, processes: int) -> int:
    """What one of so many processes does of a total."""
    return total // processes + (index < total % processes)
