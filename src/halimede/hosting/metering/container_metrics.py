"""Metrics of the containers of instances that have several, with the dimension `ContainerName`.

Each such instance counts its containers' requests itself; it is asked for that again and again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import orjson

from halimede.core import tasks
from halimede.hosting.containers.counts import PATH
from halimede.hosting.metering.store import Metric, MetricStore, MetricStores
from halimede.hosting.metering.variant import INVOCATIONS
from halimede.hosting.substrates.base import RunningInstance
from halimede.http1.client import CallError, call_once

logger = logging.getLogger("halimede")

_INTERVAL_S = 1.0
_ANSWER_S = 2.0
_ANSWER_BYTES = 64 << 20
_MICROSECOND = 1_000

Counts = Mapping[str, Any]
"""What an instance says of one container: numbers by name, and ``latencies_ns``."""


async def counts_of(instance: RunningInstance) -> Mapping[str, Counts]:
    """What an instance has counted of its containers since it was last asked, by name.

    Raises:
        CallError: it does not answer.
        ValueError: it answers something else.
    """
    status, body = await call_once(instance.host, instance.port, "GET", PATH, _ANSWER_S, _ANSWER_BYTES)
    if status != 200:
        raise ValueError(f"{instance.request.id} does not count its containers' requests")
    counts: Mapping[str, Counts] = orjson.loads(body)
    return counts


class ContainerMetrics:
    """Asks instances of several containers what they have counted. Lives on the event loop."""

    def __init__(
        self,
        instances: Callable[[], Iterable[RunningInstance]],
        stores: MetricStores,
        now: Callable[[], float] = time.time,
        counts: Callable[[RunningInstance], Awaitable[Mapping[str, Counts]]] = counts_of,
    ) -> None:
        """Nobody is asked before `start`.

        Args:
            instances: those that run.
            stores: take what was counted.
            now: the time, in seconds since 1970.
            counts: asks an instance.
        """
        self._instances = instances
        self._stores = stores
        self._now = now
        self._counts = counts
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Ask once a second from now on."""
        self._task = tasks.forever("measuring containers", self._work)

    async def stop(self) -> None:
        """Ask no more."""
        await tasks.cancel(self._task)

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            await self.collect()

    async def collect(self) -> None:
        """Ask all of them once."""
        await asyncio.gather(
            *(self._ask(each) for each in list(self._instances()) if each.request.containers)
        )

    async def _ask(self, instance: RunningInstance) -> None:
        try:
            counts = await self._counts(instance)
        except (CallError, ValueError):  # it is starting, or ending
            return
        request, when = instance.request, self._now()
        store = self._stores.of(request.endpoint_id.scope)
        for container, counted in counts.items():
            if counted["invocations"] or counted["ended"]:
                dimensions = {
                    "EndpointName": request.endpoint,
                    "VariantName": request.variant,
                    "ContainerName": container,
                }
                _put(store, dimensions, counted, when)


def _put(store: MetricStore, dimensions: Mapping[str, str], counted: Counts, when: float) -> None:
    """Put what was counted of one container into the store."""

    def metric(name: str) -> Metric:
        return Metric.of(INVOCATIONS, name, dimensions)

    sent = counted["invocations"]
    if sent:
        store.add(metric("Invocations"), 1, "None", sent, when)
    for name, errors in (
        ("Invocation4XXErrors", counted["client_errors"]),
        ("Invocation5XXErrors", counted["server_errors"]),
    ):
        if errors:
            store.add(metric(name), 1, "None", errors, when)
        if counted["ended"] > errors:
            store.add(metric(name), 0, "None", counted["ended"] - errors, when)
    if counted["latencies_ns"]:
        micros = [latency / _MICROSECOND for latency in counted["latencies_ns"]]
        store.add_all(metric("ContainerLatency"), micros, "Microseconds", when)
