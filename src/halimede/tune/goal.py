"""What a search is for, such as "most throughput at p99 <= 20ms" or "least memory at 200 requests/s"."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from halimede.bench.errors import BenchError
from halimede.bench.limits import seconds
from halimede.bench.plots import number

FIGURES = ("throughput", "mean", "p50", "p90", "p95", "p99", "memory")
_GOAL = re.compile(r"(most|least) +(\w+)(?: +at +(.+))?")
_RATE = re.compile(r"(\d+(?:\.\d*)?) *(?:requests?/s|requests per second|/s)")
_LIMIT = re.compile(r"(\w+) *(<=|>=|≤|≥|<|>) *(.+)")
_MEMORY = re.compile(r"(\d+(?:\.\d*)?) *([MG]i?B)")
_MB = {"MB": 1.0, "GB": 1000.0, "MiB": 1.048576, "GiB": 1073.741824}
_KEEPS_UP = 0.95
UNITS = {"throughput": "requests/s", "memory": "MB"}
"""Units of figures; times are in ms."""


@dataclass(frozen=True, slots=True)
class Point:
    """What a server did under one level of load.

    Attributes:
        load: the level's name.
        throughput: requests a second that succeeded.
        mean, p50, p90, p95, p99: latencies in ms.
        memory: of the server and all its processes, in MB.
        failures: the share of requests that failed.
        batch: rows of a batch of the measured model, on average; 0 if the server does not say.
        queue, compute: mean parts of a request of the measured model, in ms.
    """

    load: str
    throughput: float
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    memory: float
    failures: float = 0.0
    batch: float = 0.0
    queue: float = 0.0
    compute: float = 0.0

    def figure(self, name: str) -> float:
        """One of `FIGURES`."""
        value: float = getattr(self, name)
        return value

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Limit:
    """What a figure has to keep to.

    Attributes:
        figure: one of `FIGURES`.
        least: it is at least the value; otherwise at most.
        value: in the figure's unit.
    """

    figure: str
    least: bool
    value: float

    def excess(self, point: Point) -> float:
        """By which share the figure is beyond the limit; 0 if it is within."""
        measured = point.figure(self.figure)
        beyond = (self.value - measured) if self.least else (measured - self.value)
        return max(0.0, beyond / self.value)


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted.

    Attributes:
        text: as the user has written it.
        figure: which of `FIGURES` is best.
        most: the larger, the better.
        rate: requests a second that arrive; 0: as many as the server can serve.
        limits: what has to be kept.
    """

    text: str
    figure: str
    most: bool
    rate: float
    limits: Sequence[Limit]

    @classmethod
    def parse(cls, text: str) -> Self:
        """The goal that a user has written.

        Raises:
            BenchError: it has another form; the text shows the right one.
        """
        match = _GOAL.fullmatch(text.strip())
        if match is None or match[2] not in FIGURES:
            raise BenchError(
                f"'{text}' is no goal: write 'most throughput at p99 <= 20ms' or 'least memory at 200 requests/s'; "
                f"the figures are {', '.join(FIGURES)}"
            )
        if (match[1] == "most") != (match[2] == "throughput"):
            wanted = "most throughput" if match[2] == "throughput" else f"least {match[2]}"
            raise BenchError(f"'{match[1]} {match[2]}' is no goal: write '{wanted}'")
        rate, limits = 0.0, []
        for condition in re.split(r" +and +|, *", match[3]) if match[3] else []:
            if found := _RATE.fullmatch(condition.strip()):
                rate = float(found[1])
            else:
                limits.append(_limit(condition.strip()))
        goal = cls(text.strip(), match[2], match[1] == "most", rate, tuple(limits))
        if goal.most and rate:
            raise BenchError("A goal of most throughput cannot have a rate: the search finds the highest")
        if not goal.most and not rate and not any(limit.figure == "throughput" for limit in limits):
            raise BenchError(f"'{text}' needs a load: add a rate, as in '{text.strip()} at 200 requests/s'")
        return goal

    def excess(self, point: Point) -> float:
        """By how much limits are exceeded, in shares; 0 if all are kept."""
        total = sum(limit.excess(point) for limit in self.limits) + point.failures
        if self.rate:
            total += max(0.0, 1 - point.throughput / (_KEEPS_UP * self.rate))
        return total

    def score(self, point: Point) -> float:
        """The higher, the better; points that exceed limits are below all others."""
        excess = self.excess(point)
        if self.most:
            return point.figure(self.figure) if not excess else -excess
        return -point.figure(self.figure) if not excess else -1e9 * (1 + excess)

    def best(self, points: Sequence[Point]) -> Point:
        """The best of several levels of load."""
        return max(points, key=self.score)

    def told(self, point: Point) -> str:
        """The figure of a point, with its unit."""
        return f"{number(float(f'{point.figure(self.figure):.4g}'))} {UNITS.get(self.figure, 'ms')}"


def _limit(text: str) -> Limit:
    match = _LIMIT.fullmatch(text)
    if match is None or match[1] not in FIGURES:
        raise BenchError(
            f"'{text}' is no condition: write 'p99 <= 20ms', 'memory <= 500MB' or '200 requests/s'"
        )
    least = match[2] in (">=", "≥", ">")
    if least != (match[1] == "throughput"):
        raise BenchError(
            f"'{text}' is no condition: throughput has a lower limit (>=), all others an upper one (<=)"
        )
    if match[1] == "throughput":
        rate = _RATE.fullmatch(match[3].strip()) or re.fullmatch(r"(\d+(?:\.\d*)?)", match[3].strip())
        if rate is None:
            raise BenchError(f"'{match[3]}' is no throughput: write 200 or 200 requests/s")
        value = float(rate[1])
    elif match[1] == "memory":
        size = _MEMORY.fullmatch(match[3].strip())
        if size is None:
            raise BenchError(f"'{match[3]}' is no size: write 500MB or 2GiB")
        value = float(size[1]) * _MB[size[2]]
    else:
        value = seconds(match[3]) * 1000
    if value <= 0:
        raise BenchError(f"'{text}' is no condition: the limit must be above 0")
    return Limit(match[1], least, value)
