"""Everything that is measured: meters of variants, samples of instances, sizes of logs.

every second    what meters have counted goes into the store, and how many requests are under way; logs that have
                grown are noted, and shortened
every period    instances are measured, quiet variants get zeros, what has changed is saved
every minute    old logs are removed

A period is a minute, unless the host's pace is another one than AWS's.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from halimede.hosting.each_second import EachSecond
from halimede.hosting.fetches import STREAM as FETCHES
from halimede.hosting.identity import EndpointId
from halimede.hosting.metering.jobs import gauge_job, of_job
from halimede.hosting.metering.log_space import LogSettings, bound, remove_empty, remove_oldest
from halimede.hosting.metering.log_times import LogTimes
from halimede.hosting.metering.metric_file import MetricFile, mark_unsaved, take_changes
from halimede.hosting.metering.pace import Pace
from halimede.hosting.metering.store import MINUTE, MetricStores
from halimede.hosting.metering.variant import VariantMeter
from halimede.hosting.routing.counts import InvocationCounts
from halimede.hosting.routing.table import RoutingTable
from halimede.hosting.substrates.base import InstanceRequest, RunningInstance
from halimede.hosting.substrates.use import InstanceUse

logger = logging.getLogger("halimede")

_SECOND = 1.0
_FORGET_S = 3600
"""So long the instances of a configuration are counted apart that has been replaced."""

_LATE_S = 5
"""So late the end of a period may be noticed, and quiet variants still get their zeros."""

Instances = Callable[[], Iterable[RunningInstance]]
Usage = Callable[[], Awaitable[Mapping[str, InstanceUse]]]


@dataclass(frozen=True, slots=True)
class InstanceSample:
    """What was measured of an instance last."""

    request: InstanceRequest
    use: InstanceUse


class Metering:
    """Measures. Lives on the event loop; files are read and written on another thread.

    Attributes:
        stores: all metrics.
        samples: what was measured of instances last, by their ids.
    """

    def __init__(
        self,
        path: Path,
        logs: Path,
        instances: Instances,
        usage: Usage,
        table: RoutingTable,
        now: Callable[[], float] = time.time,
        log_settings: LogSettings = LogSettings(),  # noqa: B008 - never changes
        pace: Pace = Pace(),  # noqa: B008 - never changes
    ) -> None:
        """Nothing is measured before `start`.

        Args:
            path: the file of metrics.
            logs: where the instances' logs are, as ``ACCOUNT/REGION/ENDPOINT/VARIANT/INSTANCE.log``.
            instances: the instances that run.
            usage: what they have used since it was last called, by id.
            table: the endpoints that take requests.
            now: the time, in seconds since 1970.
            log_settings: what logs may take on disk.
            pace: of how long periods there is one aggregate each.
        """
        self._period_s = pace.period_s
        self.stores = MetricStores(self._period_s)
        self.samples: dict[str, InstanceSample] = {}
        self._file = MetricFile(path)
        self._logs = logs
        self._streams: dict[tuple[EndpointId, str, str], Path] = {}
        self._log_settings = log_settings
        self._times = LogTimes()
        self._instances = instances
        self._usage = usage
        self._table = table
        self._now = now
        self._meters: dict[tuple[EndpointId, str], VariantMeter] = {}
        self._config_meters: dict[tuple[EndpointId, str, str], VariantMeter] = {}
        self._thread = ThreadPoolExecutor(1, "halimede-metering")
        self._ticking = EachSecond("measuring", self.tick, self._pause_s)
        self._period, self._minute = int(now() // self._period_s), int(now() // MINUTE)

    def meter(self, endpoint: EndpointId, variant: str, config: str = "") -> VariantMeter:
        """Counts a variant, whichever fleet its instances are of; of a configuration, those of its fleet also apart."""
        store = self.stores.of(endpoint.scope)
        found = self._meters.get((endpoint, variant))
        if found is None:
            found = self._meters[endpoint, variant] = VariantMeter(store, endpoint.name, variant)
        if not config:
            return found
        apart = self._config_meters.get((endpoint, variant, config))
        if apart is None:
            apart = VariantMeter(store, endpoint.name, variant, config, found)
            self._config_meters[endpoint, variant, config] = apart
        return apart

    def absorb(self, endpoint: EndpointId, variant: str, config: str, counts: InvocationCounts) -> None:
        """Count what another process has counted of a variant, of a configuration or ""."""
        if (endpoint, variant) in self._meters:
            self.meter(endpoint, variant, config).add(counts)
            return
        gone = VariantMeter(self.stores.of(endpoint.scope), endpoint.name, variant)
        gone.add(counts)
        gone.flush(self._now())

    def meters(self) -> Mapping[tuple[EndpointId, str], VariantMeter]:
        """All of them, by endpoint and variant."""
        return self._meters

    def forget(self, endpoint: EndpointId) -> None:
        """An endpoint is gone; what was counted of it stays."""
        for each in [each for each in self._config_meters if each[0] == endpoint]:
            self._config_meters.pop(each).flush(self._now())
        for key in [key for key in self._meters if key[0] == endpoint]:
            self._meters.pop(key).flush(self._now())

    async def start(self) -> None:
        """Read what was measured before, and begin.

        Raises:
            sqlite3.Error: there cannot be a file of metrics.
        """
        await self._run(lambda: self._file.load(self.stores, self._now()))
        await self._run(lambda: remove_empty(self._logs))
        self._ticking.start()

    async def stop(self) -> None:
        """Measure no more, and save what has not been."""
        if self._ticking.has_begun:
            await self._ticking.stop()
            self.flush()
            await self._note_logs()
            await self._save()
            await self._run(self._file.close)
        self._thread.shutdown()

    async def _run(self, work: Callable[[], object]) -> object:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _pause_s(self) -> float:
        """On the whole second, so that what is counted before a minute ends is that minute's."""
        return _SECOND - self._now() % _SECOND

    async def tick(self) -> None:
        """What is done each second, on the whole second."""
        now = self._now()
        self._flush(now - _SECOND / 2)
        self._note_concurrency(now - _SECOND / 2)
        await self._note_logs()
        length, period = self._period_s, int(now // self._period_s)
        if period == self._period:
            return
        before, self._period = self._period, period
        # short periods may be over several at a time, if this was late
        overs = [before, *range(max(before + 1, period - _LATE_S // length), period)]
        for over in overs:
            for route in self._table.routes():
                for variant in route.every_variant():
                    self.meter(route.id, variant.spec.name).end_period(over * length)
                    self.meter(route.id, variant.spec.name, variant.config).end_period(over * length)
        await self._measure(overs[-1] * length)
        minute = int(now // MINUTE)
        is_new_minute, self._minute = minute != self._minute, minute
        if is_new_minute and not minute % length:
            self.stores.forget(now)
        if is_new_minute:
            self._forget_replaced(now)
        await self._save()
        if is_new_minute:
            await self._remove_logs()

    def _note_concurrency(self, when: float) -> None:
        """Count the requests that are under way."""
        for route in self._table.routes():
            for name, variants in route.by_name().items():
                counts = [target.outstanding for variant in variants for target in variant.targets]
                self.meter(route.id, name).concurrent(counts, when)

    def _forget_replaced(self, now: float) -> None:
        """Count no more apart what has been replaced and has not been used for long."""
        served = {
            (route.id, variant.spec.name, variant.config)
            for route in self._table.routes()
            for variant in route.every_variant()
        }
        for key, meter in list(self._config_meters.items()):
            if key in served:
                meter.used = now
            elif 0 < meter.used < now - _FORGET_S:  # else its instances are still being started
                del self._config_meters[key]

    def flush(self) -> None:
        """Put into the store what has been counted up to now."""
        self._flush(self._now())

    def _flush(self, when: float) -> None:
        for meter in (*self._config_meters.values(), *self._meters.values()):
            meter.flush(when)

    def _growing_logs(self) -> list[Path]:
        requests = [instance.request for instance in self._instances()]
        streams = [(each.endpoint_id, each.variant, each.id) for each in requests]
        streams += [(endpoint, variant, FETCHES) for endpoint, variant in self._meters]
        streams += [(each.endpoint_id, each.variant, FETCHES) for each in requests if of_job(each)]
        known = self._streams  # a path takes twenty times as long to make as to find
        self._streams = {each: known.get(each) or self._log_of(*each) for each in streams}
        return list(self._streams.values())

    def _log_of(self, endpoint: EndpointId, variant: str, name: str) -> Path:
        return endpoint.scope.directory(self._logs) / endpoint.name / variant / f"{name}.log"

    async def _note_logs(self) -> None:
        logs = self._growing_logs()
        await self._run(lambda: self._times.note(logs, self._now()))
        await self._run(lambda: bound(logs, self._log_settings.instance_bytes))

    async def _remove_logs(self) -> None:
        growing = set(self._growing_logs())
        await self._run(lambda: remove_oldest(self._logs, self._log_settings.total_bytes, growing))

    async def _measure(self, when: float) -> None:
        """Measure instances."""
        requests = {instance.request.id: instance.request for instance in self._instances()}
        uses = await self._usage()
        taken = {name: InstanceSample(requests[name], use) for name, use in uses.items() if name in requests}
        self.samples = taken
        for sample in taken.values():
            if of_job(sample.request):
                gauge_job(self.stores, sample.request, sample.use, when)
                continue
            meter = self._meters.get((sample.request.endpoint_id, sample.request.variant))
            if meter is None:  # its endpoint has just gone
                continue
            meter.gauge("CPUUtilization", sample.use.utilization.cpu, "Percent", when)
            meter.gauge("MemoryUtilization", sample.use.utilization.memory, "Percent", when)
            meter.gauge("DiskUtilization", sample.use.utilization.disk, "Percent", when)
            if sample.use.gpus.busy is not None:
                meter.gauge("GPUUtilization", sample.use.gpus.busy, "Percent", when)
            if sample.use.gpus.memory is not None:
                meter.gauge("GPUMemoryUtilization", sample.use.gpus.memory, "Percent", when)
        for route in self._table.routes():
            for variant in route.every_variant():
                if variant.residency is not None:
                    meter = self.meter(route.id, variant.spec.name)
                    for count in variant.residency.loaded_counts().values():
                        meter.gauge("LoadedModelCount", count, "None", when)

    async def _save(self) -> None:
        changes = take_changes(self.stores)
        now = self._now()
        try:
            await self._run(lambda: self._file.write(changes, now))
        except sqlite3.Error as error:
            mark_unsaved(self.stores, changes)
            logger.error("metrics cannot be saved now: %s", error)
