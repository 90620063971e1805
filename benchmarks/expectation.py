"""What a machine of so many cores may be expected to serve, from what a request costs in each process.

A server is a pipeline: front ends, the server's own process, the processes of a model's instances. Each keeps one core
busy at most, and all together as many as there are. So the slowest of these is the limit.
"""

from dataclasses import dataclass
from typing import Final

MOST_FRONT_ENDS: Final = 16
FRONT_ENDS_WORTH: Final = 1.2
"""A further front end is to bring so many times the rate: it takes memory, and switches between processes take time."""


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU time of a request in each process, in µs.

    Attributes:
        engine: the server's own process.
        front_end: a front end; 0 without front ends.
        worker: the process of an instance; 0 for models in the server's own process.
    """

    engine: float
    front_end: float
    worker: float

    @property
    def total(self) -> float:
        """In all processes."""
        return self.engine + self.front_end + self.worker


@dataclass(frozen=True, slots=True)
class Expectation:
    """What to expect of a server.

    Attributes:
        rate: requests a second.
        front_ends: front-end processes; 1 means none, as in `--front-ends 1`.
        instances: processes of the model; 0 for models in the server's own process.
        limit: what keeps it from more.
    """

    rate: float
    front_ends: int
    instances: int
    limit: str


def rate(costs: Costs, cores: float, front_ends: int, instances: int) -> tuple[float, str]:
    """Requests a second with so many processes, and what the limit is."""
    limits = {"the server's own process": 1e6 / costs.engine, "the cores": cores * 1e6 / costs.total}
    if costs.front_end:
        limits["the front ends"] = front_ends * 1e6 / costs.front_end
    if costs.worker:
        limits["the instances"] = instances * 1e6 / costs.worker
    limit = min(limits, key=lambda name: limits[name])
    return limits[limit], limit


def expect(alone: Costs, relayed: Costs, cores: int) -> Expectation:
    """The best setting of a machine with so many cores, clients elsewhere.

    Args:
        alone: costs with one process for everything but instances.
        relayed: costs with front ends.
        cores: of the machine.
    """
    best = Expectation(0, 1, 0, "")
    for front_ends in range(1, min(cores, MOST_FRONT_ENDS) + 1):
        costs = alone if front_ends == 1 else relayed
        for instances in range(1, cores + 1) if costs.worker else (0,):
            found, limit = rate(costs, cores, front_ends, instances)
            if found > best.rate * (FRONT_ENDS_WORTH if front_ends > best.front_ends else 1.001):
                best = Expectation(found, front_ends, instances, limit)
    return best
