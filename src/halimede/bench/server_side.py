"""What the server says of the time that requests took there, in a measurement."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

Statistics = Mapping[tuple[str, str], Mapping[str, Any]]
"""Statistics in Triton's JSON by model and version."""

_PARTS = ("queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")


@dataclass(frozen=True, slots=True)
class ServerSide:
    """One version of a model in a measurement.

    Attributes:
        model: its name.
        version: its version.
        requests: that succeeded.
        executions: batches that were run.
        inferences: rows that were inferred.
        request_us: mean time of a request in the server, in µs.
        queue_us, compute_input_us, compute_infer_us, compute_output_us: mean parts of it, in µs.
        cache_hits: requests that the response cache answered.
        cache_hit_us: mean time of those, in µs.
        failures: requests that failed.
    """

    model: str
    version: str
    requests: int
    executions: int
    inferences: int
    request_us: float
    queue_us: float
    compute_input_us: float
    compute_infer_us: float
    compute_output_us: float
    cache_hits: int
    cache_hit_us: float
    failures: int

    @property
    def batch(self) -> float:
        """Rows of a batch, on average; 0 without executions."""
        return self.inferences / self.executions if self.executions else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts."""
        return asdict(self)


def by_version(statistics: Iterable[Mapping[str, Any]]) -> Statistics:
    """The statistics by model and version."""
    return {(each.get("name", ""), str(each.get("version", ""))): each for each in statistics}


def between(before: Statistics, after: Statistics) -> tuple[ServerSide, ...]:
    """What happened between two looks, for each version that had requests; those with most time first."""
    changes = [_change(key, before.get(key, {}), latest) for key, latest in after.items()]
    active = [each for each in changes if each.requests > 0 or each.failures > 0]
    return tuple(sorted(active, key=lambda each: -each.requests * each.request_us))


def _change(key: tuple[str, str], before: Mapping[str, Any], after: Mapping[str, Any]) -> ServerSide:
    def difference(part: str) -> tuple[int, float]:
        old, new = _duration(before, part), _duration(after, part)
        count, nanoseconds = new[0] - old[0], new[1] - old[1]
        return count, nanoseconds / count / 1000 if count else 0.0

    requests, request_us = difference("success")
    parts = {part: difference(part) for part in _PARTS}
    hits, hit_us = parts["cache_hit"]
    return ServerSide(
        *key,
        requests,
        _number(after, "execution_count") - _number(before, "execution_count"),
        _number(after, "inference_count") - _number(before, "inference_count"),
        request_us,
        parts["queue"][1],
        parts["compute_input"][1],
        parts["compute_infer"][1],
        parts["compute_output"][1],
        hits,
        hit_us,
        difference("fail")[0],
    )


def _number(statistics: Mapping[str, Any], name: str) -> int:
    return int(statistics.get(name, 0))


def _duration(statistics: Mapping[str, Any], part: str) -> tuple[int, int]:
    duration = statistics.get("inference_stats", {}).get(part, {})
    return int(duration.get("count", 0)), int(duration.get("ns", 0))
