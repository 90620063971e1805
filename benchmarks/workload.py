"""What a workload is, how its two sides are measured in turn, and what came of it."""

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement.

    Attributes:
        value: in the workload's unit.
        cpu_us: the server's CPU time for a request, in µs.
        parts: what the value is made of, and what else was measured with it: see `stages`.
    """

    value: float
    cpu_us: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sides:
    """The two things that a workload compares; each call is one measurement."""

    ours: Callable[[], Sample]
    other: Callable[[], Sample]


class Against(Enum):
    """What this server is held against."""

    LIMIT = "limit"
    TRITONSERVER = "tritonserver"


class Compare(Enum):
    """How this server's value is held against the other."""

    AT_LEAST = "at least so many times the other"
    AT_MOST = "at most so many times the other"
    AT_MOST_MORE = "at most so much more than the other"


@dataclass(frozen=True, slots=True)
class Workload:
    """One row of the table.

    Attributes:
        name: what `--only` selects it by.
        unit: of the values.
        compare: how the two sides are compared.
        goal: a share, a multiple, or a difference in the unit, as `compare` says; None where there is none.
        open: sets both sides up; takes the seconds that one measurement may last.
        against: what the other side is.
        cpu_goal: how many times the other's CPU time for a request this server may take; None where that is
            not compared. It gets a row of its own.
        once: it takes so long that it is measured once, without a warm-up.
        missing: what it needs and this machine lacks; "" if it can run.
    """

    name: str
    unit: str
    compare: Compare
    goal: float | None
    open: Callable[[float], AbstractContextManager[Sides]]
    against: Against = Against.LIMIT
    cpu_goal: float | None = None
    once: bool = False
    missing: str = ""


@dataclass(slots=True)
class Result:
    """The samples of a workload; sample i of one side was taken just before sample i of the other."""

    workload: Workload
    ours: list[Sample] = field(default_factory=list)
    other: list[Sample] = field(default_factory=list)

    @property
    def comparison(self) -> float:
        """The median over the rounds of the ratio, or of the difference where the goal is one."""
        pairs = list(zip(self.ours, self.other, strict=True))
        if self.workload.compare is Compare.AT_MOST_MORE:
            return statistics.median(ours.value - other.value for ours, other in pairs)
        return statistics.median(ours.value / other.value for ours, other in pairs)

    @property
    def reached(self) -> bool | None:
        """Whether the goal was reached; None without a goal."""
        if self.workload.goal is None:
            return None
        if self.workload.compare is Compare.AT_LEAST:
            return self.comparison >= self.workload.goal
        return self.comparison <= self.workload.goal

    @property
    def cpu_comparison(self) -> float | None:
        """The median over the rounds of the ratio of CPU times; None where none were taken."""
        pairs = zip(self.ours, self.other, strict=True)
        ratios = [ours.cpu_us / other.cpu_us for ours, other in pairs if ours.cpu_us and other.cpu_us]
        return statistics.median(ratios) if ratios else None

    @property
    def cpu_reached(self) -> bool | None:
        """Whether the goal for the CPU time was reached; None without one, and where no times were taken."""
        if self.workload.cpu_goal is None or self.cpu_comparison is None:
            return None
        return self.cpu_comparison <= self.workload.cpu_goal


def measure(workload: Workload, rounds: int, seconds: float) -> Iterator[Result]:
    """The result so far, after each round; the sides take turns, after one warm-up each that does not count."""
    result = Result(workload)
    with workload.open(seconds) as sides:
        if not workload.once:
            sides.ours()
            sides.other()
        for _ in range(1 if workload.once else rounds):
            result.ours.append(sides.ours())
            result.other.append(sides.other())
            yield result
