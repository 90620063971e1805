"""What a measurement has to keep to, so that a pipeline fails if it does not."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from halimede.bench.errors import BenchError
from halimede.bench.plots import number
from halimede.bench.results import LevelResult, Result

_TIME = re.compile(r"(\d+(?:\.\d*)?|\.\d+) *(ns|us|µs|ms|s|min)?")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}


def seconds(text: str, unit: str = "") -> float:
    """A time such as `20ms`; one without a unit is in that unit.

    Raises:
        BenchError: it is none.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None or not (match[2] or unit):
        raise BenchError(f"'{text}' is no time: write 20ms, 1.5s or 300us")
    return float(match[1]) * _SECONDS[match[2] or unit]


@dataclass(frozen=True, slots=True)
class Limits:
    """What each level has to keep to.

    Attributes:
        percentiles: a percentile, and how long it may be in seconds.
        throughput: at least so many requests a second.
        errors: at most so many failed requests; None for no limit.
        error_share: at most this share of all requests fails; None for no limit.
    """

    percentiles: Sequence[tuple[float, float]] = ()
    throughput: float = 0.0
    errors: int | None = None
    error_share: float | None = None

    def broken(self, result: Result) -> list[str]:
        """A sentence for each limit that a level does not keep."""
        return [text for level in result.levels for text in self._broken(level)]

    def _broken(self, level: LevelResult) -> list[str]:
        found = []
        for percent, limit in self.percentiles:
            measured = level.latency.percentile(percent) / 1e9
            if measured > limit:
                found.append(
                    f"{level.name}: p{percent:g} is {number(measured * 1e3)} ms, and the limit {number(limit * 1e3)} ms"
                )
        if level.throughput < self.throughput:
            found.append(
                f"{level.name}: {number(level.throughput)} requests/s are fewer than {number(self.throughput)}"
            )
        if self.errors is not None and level.failures > self.errors:
            found.append(f"{level.name}: {level.failures} requests failed, and the limit is {self.errors}")
        share = level.failures / max(1, level.failures + level.requests)
        if self.error_share is not None and share > self.error_share:
            found.append(
                f"{level.name}: {share:.2%} of the requests failed, and the limit is {self.error_share:.2%}"
            )
        return found


def parse_errors(text: str) -> tuple[int | None, float | None]:
    """A limit of errors: a number, or a share such as `0.1%`.

    Raises:
        BenchError: it is neither.
    """
    try:
        if text.endswith("%"):
            return None, float(text[:-1]) / 100
        return int(text), None
    except ValueError:
        raise BenchError(
            f"'{text}' is no limit of errors: write a number of requests, or a share such as 0.1%"
        ) from None
