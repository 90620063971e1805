"""Which models stay loaded: the host's own residency on traces, beside caches that know all or nothing."""

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from benchmarks.cluster import yardsticks
from benchmarks.cluster.clients import Clients, Outcomes
from benchmarks.cluster.instances import Archives, Node
from benchmarks.cluster.substrate import ClusterSubstrate
from benchmarks.cluster.times import MODEL_BYTES
from benchmarks.cluster.traces import TRACES, Scale, Trace
from benchmarks.cluster.virtual_loop import VirtualLoop, run
from halimede.hosting.identity import Scope
from halimede.hosting.routing.meters import NoModelMeter
from halimede.hosting.routing.residency.residency import MultiModelResidency
from halimede.hosting.routing.residency.settings import ResidencySettings
from halimede.hosting.routing.table import EndpointRoute, Target, VariantRoute
from halimede.hosting.specs import Container, Variant
from halimede.hosting.substrates.base import InstanceRequest, Resources
from halimede.http1.upstream import UpstreamPool

_RATE = 0.25
"""Requests a second for each instance."""

_REQUEST_S = 0.03


@dataclass(frozen=True, slots=True)
class Size:
    """How large the cluster is.

    Attributes:
        instances: how many run.
        each: how many models an instance has memory for.
        per_node: how many instances a node has.
        models: how many there are.
        requests: of a trace.
    """

    instances: int
    each: int
    per_node: int
    models: int
    requests: int

    @property
    def scale(self) -> Scale:
        """The trace's."""
        return Scale(self.models, self.requests, self.instances * self.each)


@dataclass(frozen=True, slots=True)
class Kept:
    """What came of a trace; ratios are of its requests.

    Attributes:
        hits: requests for which nothing had to be loaded.
        lru, lfu, belady: the same of caches that need no time to load a model.
        found: requests whose model was there when they came; others waited for it together with an earlier one.
        outcomes: what became of the requests.
        fetches: how many archives nodes have fetched.
        took_s: real time.
    """

    hits: float
    lru: float
    lfu: float
    belady: float
    found: float
    outcomes: Outcomes
    fetches: int
    took_s: float


def keep(name: str, size: Size, settings: ResidencySettings | None = None) -> Kept:
    """What comes of a trace."""
    trace = TRACES[name](size.scale, np.random.default_rng(0))
    began = time.perf_counter()
    outcomes, loads, fetches = run(lambda loop: _play(loop, trace, size, settings or ResidencySettings()))
    took = time.perf_counter() - began
    numbers, room = trace.tolist(), size.scale.room
    ideal = (yardsticks.lru, yardsticks.perfect_lfu, yardsticks.belady)
    lru, lfu, belady = (each(numbers, room) / len(numbers) for each in ideal)
    count = len(numbers)
    return Kept(1 - loads / count, lru, lfu, belady, outcomes.hits / count, outcomes, fetches, took)


class _Loads(NoModelMeter):
    """Counts loads (`ModelMeter`)."""

    def __init__(self) -> None:
        self.count = 0

    def loaded(self, duration_ns: int) -> None:
        """An instance has loaded a model."""
        self.count += 1


async def _play(
    loop: VirtualLoop, trace: Trace, size: Size, settings: ResidencySettings
) -> tuple[Outcomes, int, int]:
    draw, meter = random.Random(0), _Loads()
    count = -(-size.instances // size.per_node)
    nodes = [Node(f"node-{number}", size.per_node, size.per_node * size.each * 4) for number in range(count)]
    substrate = ClusterSubstrate(nodes, 2, draw)
    memory = int(size.each * MODEL_BYTES * 1.01 / settings.memory_share)
    container = Container("image", "s3://bucket/models/", multi_model=True)
    variant = VariantRoute(Variant("AllTraffic", "model", container, "ml.local.cpu"), 1.0)
    route = EndpointRoute("many", "arn", "us-east-1", "000000000000", "config", {"AllTraffic": variant})
    variant.residency = MultiModelResidency(
        variant, Archives(), meter, settings, substrate.files, substrate.calls, loop.now_ns
    )
    for number in range(size.instances):
        request = InstanceRequest(
            f"i-{number}", *Scope(), "many", "AllTraffic", "f", "image", {}, None, True, Resources(2, memory)
        )
        instance = await substrate.launch(request)
        target = Target(request.id, UpstreamPool(instance.host, instance.port))
        variant.targets.append(target)
        variant.residency.joined(target, instance)
    clients = Clients(loop, substrate.instances)
    names = {number: f"team-{number % 100}/model-{number}.tar.gz" for number in set(trace.tolist())}
    await _send_all(loop, clients, route, trace, names, draw, size.instances * _RATE)
    while clients.outcomes.done < clients.outcomes.sent:  # noqa: ASYNC110 - time is virtual
        await asyncio.sleep(1)
    await variant.residency.close()
    return clients.outcomes, meter.count, sum(node.fetches for node in nodes)


async def _send_all(
    loop: VirtualLoop,
    clients: Clients,
    route: EndpointRoute,
    trace: Trace,
    names: Mapping[int, str],
    draw: random.Random,
    rate: float,
) -> None:
    for number in trace.tolist():
        clients.send(route, names[number], _REQUEST_S)
        await asyncio.sleep(draw.expovariate(rate))
