"""One setting, measured: a server is started with it, and `halimede.bench` sends load."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from halimede.bench.address import parse
from halimede.bench.arrivals import Arrivals
from halimede.bench.control import HttpControl
from halimede.bench.measure import Measuring, Progress, measure
from halimede.bench.plan import Level
from halimede.bench.results import LevelResult
from halimede.bench.workload import Workload, prepare
from halimede.tune.goal import Goal, Point
from halimede.tune.knobs import FRONT_ENDS, Knob, Setting, Target
from halimede.tune.prepare import completed
from halimede.tune.served import Served, serving

_GROWS = 1.03
"""More requests at once go on being tried while the throughput grows by this factor, ..."""
_STANDING = 2
"""... or until it has not for so many levels in a row."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is tuned.

    Attributes:
        repository: with the models.
        targets: models whose settings are varied, the measured one among them or made of them.
        knobs: what is varied.
        workload: what is sent; the address is each server's.
        goal: what is wanted.
        measuring: how long a level is measured.
        most: so many requests at once at most.
        flags: further ones of the server.
    """

    repository: Path
    targets: Sequence[Target]
    knobs: Sequence[Knob]
    workload: Workload
    goal: Goal
    measuring: Measuring
    most: int
    flags: Sequence[str]


class Doubling:
    """Levels of 1, 2, 4, ... requests at once, while more of them bring more."""

    def __init__(self, goal: Goal, most: int) -> None:
        self._goal = goal
        self._most = most
        self._best = 0.0
        self._standing = 0
        self._goes_on = True

    def __iter__(self) -> Iterator[Level]:
        concurrency = 1
        while concurrency <= self._most and self._goes_on:
            yield Level(concurrency)
            concurrency *= 2

    def tell(self, point: Point) -> None:
        """Take what the last level brought."""
        latency = any(limit.figure != "throughput" and limit.excess(point) for limit in self._goal.limits)
        grows = point.throughput > self._best * _GROWS
        self._best = max(self._best, point.throughput)
        self._standing = 0 if grows else self._standing + 1
        self._goes_on = self._standing < _STANDING and not latency


def measure_setting(job: Job, setting: Setting, show: Callable[[Progress], None]) -> list[Point]:
    """What a server with that setting does, a point for each level of load.

    Raises:
        BenchError: the server does not start or undoes a value of the setting, or requests fail.
    """
    configs = {target.name: target.changed(job.knobs, setting) for target in job.targets}
    flags = [*job.flags]
    if setting.get(FRONT_ENDS, 1) != 1:
        flags.append(f"--front-ends={setting[FRONT_ENDS]}")
    models = [
        job.workload.model,
        *(target.name for target in job.targets if target.name != job.workload.model),
    ]
    with serving(job.repository, configs, models, flags) as server:
        control = HttpControl(parse(server.http, 8000), {})
        for target in job.targets:
            target.check(job.knobs, setting, completed(control, target.name))
        url = server.grpc if job.workload.grpc else server.http
        prepared = prepare(replace(job.workload, url=url))
        measuring = replace(job.measuring, rows=prepared.rows)
        if job.goal.rate:
            levels = [Level(arrivals=Arrivals(job.goal.rate, poisson=True))]
            results = measure(prepared.plan, levels, measuring, prepared.ask, show)
            return [_point(job, server, result) for result in results]
        doubling = Doubling(job.goal, job.most)
        points = []
        for result in measure(prepared.plan, iter(doubling), measuring, prepared.ask, show):
            points.append(_point(job, server, result))
            doubling.tell(points[-1])
        return points


def _point(job: Job, server: Served, result: LevelResult) -> Point:
    latency = result.latency
    p50, p90, p95, p99 = (latency.percentile(percent) / 1e6 for percent in (50, 90, 95, 99))
    inside = [each for each in result.server if each.model == job.workload.model]
    batch, queue, compute = 0.0, 0.0, 0.0
    if inside:
        batch, queue = inside[0].batch, inside[0].queue_us / 1000
        compute = (
            inside[0].compute_input_us + inside[0].compute_infer_us + inside[0].compute_output_us
        ) / 1000
    return Point(
        result.name,
        result.throughput,
        latency.mean / 1e6,
        p50,
        p90,
        p95,
        p99,
        server.memory_mb(),
        result.failures / max(1, result.failures + result.requests),
        batch,
        queue,
        compute,
    )
