"""A day of one endpoint of many models: a peak, spikes and nodes that fail, scaled by its requests."""

import asyncio
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from benchmarks.cluster import yardsticks
from benchmarks.cluster.clients import Outcomes
from benchmarks.cluster.cluster import Cluster, Hardware
from benchmarks.cluster.traces import Scale, zipf
from benchmarks.cluster.virtual_loop import VirtualLoop, run
from halimede.hosting.metering.pace import Pace

_STEP_S = 1.0


@dataclass(frozen=True, slots=True)
class Spike:
    """Times are shares of the day.

    Attributes:
        at: when it begins.
        lasts: for how long.
        times: so many times as many requests as without it.
    """

    at: float
    lasts: float
    times: float


@dataclass(frozen=True, slots=True)
class Day:
    """What happens.

    Attributes:
        seconds: how long the day is.
        pace: how long AWS's periods and cooldowns take; if the day is shorter than 24 hours, so should they be.
        hardware: the cluster.
        models: how many there are.
        exponent: of their popularity, 1/rank**exponent.
        low, peak: requests a second, by night and at the peak.
        request_s: for how long a request keeps a processor busy.
        target: requests a second for each instance that scaling aims at.
        minimum, maximum: instances.
        spikes: times of more requests.
        failures: when a node fails, as shares of the day.
        noticed_s: after so long the host hears that a node has failed.
        back_s: after so long a node that has failed is back.
    """

    seconds: float
    pace: Pace
    hardware: Hardware
    models: int
    exponent: float
    low: float
    peak: float
    request_s: float
    target: float
    minimum: int
    maximum: int
    spikes: Sequence[Spike]
    failures: Sequence[float]
    noticed_s: float = 5.0
    back_s: float = 120.0

    def rate(self, when: float) -> float:
        """Requests a second, so many seconds after midnight: a sine that is highest at 15:00, and the spikes."""
        share = when / self.seconds
        wave = (1 + math.cos(2 * math.pi * (share - 15 / 24))) / 2
        rate = self.low + (self.peak - self.low) * wave**2
        for spike in self.spikes:
            if spike.at <= share < spike.at + spike.lasts:
                rate *= spike.times
        return rate


@dataclass(slots=True)
class Report:
    """What came of a day.

    Attributes:
        outcomes: of its requests.
        counts: each second, how many instances took requests.
        desired: each second, how many there were to be.
        wanted: each second, how many there should have been.
        instance_s: how long instances ran together.
        lost_instances: with nodes that failed.
        loads: how often an instance loaded a model.
        fetches: how often a node fetched an archive.
        turns_us: processor time of each turn of the event loop.
        took_s: real time.
        hits, lru, lfu, belady: shares of the requests for which nothing had to be loaded, and the same of single caches
            for the whole cluster as large as it was on average.
        room: how many models it had room for on average.
    """

    outcomes: Outcomes
    counts: list[int] = field(default_factory=list)
    desired: list[int] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    instance_s: float = 0.0
    lost_instances: int = 0
    loads: int = 0
    fetches: int = 0
    turns_us: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))
    took_s: float = 0.0
    hits: float = 0.0
    lru: float = 0.0
    lfu: float = 0.0
    belady: float = 0.0
    room: int = 0

    @property
    def optimal_s(self) -> float:
        """How long instances would have run together, had there been as many at any second as it wanted."""
        return float(sum(self.wanted)) * _STEP_S

    @property
    def short(self) -> float:
        """The share of the time in which there were fewer instances than there should have been."""
        pairs = zip(self.counts, self.wanted, strict=True)
        return sum(count < wanted for count, wanted in pairs) / len(self.counts)

    @property
    def turnarounds(self) -> int:
        """How often scaling out followed scaling in, or scaling in scaling out."""
        steps = [after > before for before, after in pairwise(self.desired) if after != before]
        return sum(before is not after for before, after in pairwise(steps))


def live(day: Day) -> Report:
    """What comes of a day."""
    began = time.perf_counter()
    report, trace = run(lambda loop: _live(loop, day))
    report.took_s = time.perf_counter() - began
    sent = len(trace)
    report.hits = 1 - report.loads / sent
    report.lru = yardsticks.lru(trace, report.room) / sent
    report.lfu = yardsticks.perfect_lfu(trace, report.room) / sent
    report.belady = yardsticks.belady(trace, report.room) / sent
    return report


async def _live(loop: VirtualLoop, day: Day) -> tuple[Report, list[int]]:
    draw = random.Random(0)
    async with Cluster(loop, day.hardware, draw, day.pace) as cluster:
        first = max(day.minimum, math.ceil(day.rate(0) / day.target))
        await cluster.create(first)
        per_minute = day.target * cluster.pace.seconds(60)
        await cluster.track(per_minute, day.minimum, day.maximum)
        report = Report(cluster.clients.outcomes)
        begin, before_s = loop.time(), cluster.substrate.used_s()
        del loop.turns_ns[:]
        for share in day.failures:
            loop.call_later(share * day.seconds, _fail, cluster, day, draw, report)
        watching = asyncio.ensure_future(_watch(cluster, day, report, begin))
        trace = await _send_all(cluster, day, draw, begin)
        await watching
        report.instance_s = cluster.substrate.used_s() - before_s
        await cluster.drained()
        report.turns_us = np.array(loop.turns_ns) / 1e3
        report.loads = cluster.loads
        report.fetches = sum(node.fetches for node in cluster.substrate.nodes)
        report.room = round(report.instance_s / day.seconds * day.hardware.each)
    return report, trace


def _fail(cluster: Cluster, day: Day, draw: random.Random, report: Report) -> None:
    busy = [node for node in cluster.nodes if node.instances]
    report.lost_instances += cluster.substrate.fail(draw.choice(busy), day.noticed_s, day.back_s)


async def _watch(cluster: Cluster, day: Day, report: Report, begin: float) -> None:
    """Note each second how many instances there are, and should be."""
    for second in range(int(day.seconds / _STEP_S)):
        wanted = math.ceil(day.rate(second * _STEP_S) / day.target)
        report.wanted.append(min(day.maximum, max(day.minimum, wanted)))
        report.counts.append(cluster.serving)
        report.desired.append(cluster.desired)
        await asyncio.sleep(begin + (second + 1) * _STEP_S - cluster.loop.time())


async def _send_all(cluster: Cluster, day: Day, draw: random.Random, begin: float) -> list[int]:
    """Send the day's requests: the models that they are for."""
    numbers = np.random.default_rng(0)
    trace: list[int] = []
    names = [f"team-{number % 100}/model-{number}.tar.gz" for number in range(day.models)]
    for second in range(int(day.seconds / _STEP_S)):
        count = int(numbers.poisson(day.rate(second * _STEP_S) * _STEP_S))
        models = zipf(Scale(day.models, count, 0), day.exponent, numbers).tolist()
        trace += models
        times = np.sort(numbers.random(count)) * _STEP_S + begin + second * _STEP_S
        for when, model in zip(times.tolist(), models, strict=True):
            await asyncio.sleep(when - cluster.loop.time())
            cluster.clients.send(cluster.route, names[model], day.request_s)
        await asyncio.sleep(begin + (second + 1) * _STEP_S - cluster.loop.time())
    return trace
