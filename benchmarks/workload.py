"""What a workload is, how its two sides are measured in turn, and what came of it."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: its value, in the workload's unit, and the server's CPU time for a request, in µs."""

    value: float
    cpu_us: float | None = None


@dataclass(frozen=True, slots=True)
class Sides:
    """The two things that a workload compares; each call is one measurement."""

    ours: Callable[[], Sample]
    limit: Callable[[], Sample]


class Compare(Enum):
    """How this server's value is held against the limit's."""

    AT_LEAST = "at least a share of the limit"
    AT_MOST = "at most a multiple of the limit"
    AT_MOST_MORE = "at most so much more than the limit"


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of the table.

    Attributes:
        name: what `--only` selects it by.
        unit: of the values.
        compare: how the two sides are compared.
        goal: a share, a multiple, or a difference in the unit, as `compare` says.
        open: sets both sides up; takes the seconds that one measurement may last.
    """

    name: str
    unit: str
    compare: Compare
    goal: float
    open: Callable[[float], AbstractContextManager[Sides]]


@dataclass(slots=True)
class Result:
    """The samples of a workload; sample i of one side was taken just before sample i of the other."""

    workload: Workload
    ours: list[Sample] = field(default_factory=list)
    limit: list[Sample] = field(default_factory=list)

    @property
    def comparison(self) -> float:
        """The median over the rounds of the ratio, or of the difference where the goal is one."""
        pairs = list(zip(self.ours, self.limit, strict=True))
        if self.workload.compare is Compare.AT_MOST_MORE:
            return statistics.median(ours.value - limit.value for ours, limit in pairs)
        return statistics.median(ours.value / limit.value for ours, limit in pairs)

    @property
    def reached(self) -> bool:
        """Whether the goal was reached."""
        if self.workload.compare is Compare.AT_LEAST:
            return self.comparison >= self.workload.goal
        return self.comparison <= self.workload.goal


def measure(workload: Workload, rounds: int, seconds: float) -> Iterator[Result]:
    """The result so far, after each round; the sides take turns, after one warm-up each that does not count."""
    result = Result(workload)
    with workload.open(seconds) as sides:
        sides.ours()
        sides.limit()
        for _ in range(rounds):
            result.ours.append(sides.ours())
            result.limit.append(sides.limit())
            yield result
