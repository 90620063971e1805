"""Metering on a clock that the test sets, asked through boto3."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from halimede.hosting.identity import EndpointId, Scope
from halimede.hosting.metering.alarms.alarms import Alarms
from halimede.hosting.metering.alarms.operations import alarm_operations
from halimede.hosting.metering.cloudwatch import cloudwatch_service
from halimede.hosting.metering.log_space import LogSettings
from halimede.hosting.metering.logs import logs_service
from halimede.hosting.metering.metering import Metering
from halimede.hosting.metering.pace import Pace
from halimede.hosting.metering.store import MetricStore
from halimede.hosting.metering.variant import VariantMeter
from halimede.hosting.pages import pages
from halimede.hosting.routing.table import EndpointRoute, RoutingTable, Target, VariantRoute
from halimede.hosting.specs import Container, Variant
from halimede.hosting.substrates.base import InstanceRequest, Resources, RunningInstance
from halimede.hosting.substrates.usage.meter import UsageMeter
from halimede.http1.upstream import UpstreamPool
from tests.hosting.services import serve_services
from tests.support.clients import Clients
from tests.support.loops import LoopThread

NOON = 1_772_625_600.0
"""Noon of the fourth of March 2026, in UTC."""

SCOPE = Scope(region="eu-west-1")
"""Of the clients."""

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


class Residency:
    """What the meters need of a residency: instance → how many models it holds."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.counts = dict(counts)

    def loaded_counts(self) -> Mapping[str, int]:
        return self.counts


@dataclass
class Metered:
    """A running host that only measures.

    Attributes:
        loop: where it runs.
        metering: what measures.
        alarms: the alarms; `tick` evaluates them.
        table: its endpoints.
        now: the time, which stands still.
        instances: the instances that run.
        logs: where their logs are.
        port: where it listens.
        clients: those that were made.
    """

    loop: LoopThread
    directory: Path
    now: float = NOON
    instances: list[RunningInstance] = field(default_factory=list)
    table: RoutingTable = field(default_factory=RoutingTable)
    port: int = 0
    metering: Metering = field(init=False)
    usage: UsageMeter = field(init=False)
    alarms: Alarms = field(init=False)
    clients: Clients = field(default_factory=Clients)

    @property
    def logs(self) -> Path:
        """Where the logs of the clients' account and region are."""
        return SCOPE.directory(self.directory / "logs")

    @property
    def store(self) -> MetricStore:
        """The metrics of the clients' account and region."""
        return self.metering.stores.of(SCOPE)

    def client(self, service: str) -> Any:
        """A client of boto3, which tries once and is closed with the host."""
        url = f"http://127.0.0.1:{self.port}"
        return self.clients.make(service, url, {"parameter_validation": False}, region_name=SCOPE.region)

    def publish(
        self, endpoint: str, variant: str, residency: Any = None, shadow_of: str = ""
    ) -> VariantMeter:
        """Let an endpoint take requests: the meter of its variant, or of one that shadows another."""

        def put() -> VariantMeter:
            meter = self.metering.meter(EndpointId(*SCOPE, endpoint), variant)
            spec = Variant(variant, "m", Container("x"), "ml.local.cpu")
            targets = [
                Target("i-1", UpstreamPool("127.0.0.1", 1), 2),
                Target("i-2", UpstreamPool("127.0.0.1", 1)),
            ]
            route = VariantRoute(spec, 1.0, targets, residency, meter)
            routes = {variant: route}
            if shadow_of:
                routes = {shadow_of: VariantRoute(replace(spec, name=shadow_of), 1.0, shadow=route)}
            self.table.publish(EndpointRoute(endpoint, "arn", SCOPE.region, SCOPE.account, "c", routes))
            return meter

        return self.loop.call(put)

    def count(self, work: Callable[[], object]) -> None:
        """Count something, as the hot path does."""
        self.loop.call(work)

    def tick(self, now: float) -> None:
        """Let it be a time, on a whole second."""
        self.now = now
        self.loop.run(self.usage.note_gpus())
        self.loop.run(self.metering.tick())
        self.loop.run(self.alarms.tick())


@contextmanager
def metered(
    directory: Path,
    now: float = NOON,
    pace: Pace = Pace(),  # noqa: B008
    logs: LogSettings = LogSettings(),  # noqa: B008
    clock: Callable[[], float] | None = None,
) -> Iterator[Metered]:
    """A host while the block runs; what it measured stays in the directory. A clock runs instead of `now`."""
    with LoopThread() as loop:
        host = Metered(loop, directory, now)

        async def start() -> None:
            host.usage = UsageMeter(lambda: host.instances)
            await host.usage.open()
            host.metering = Metering(
                directory / "metrics.db",
                directory / "logs",
                lambda: host.instances,
                host.usage.take,
                host.table,
                clock or (lambda: host.now),
                logs,
                pace,
            )
            await host.metering.start()
            host.alarms = Alarms(directory / "alarms.db", host.metering.stores, lambda: host.now, pace)
            await host.alarms.open()

        async def stop() -> None:
            await host.alarms.stop()
            await host.metering.stop()
            await host.usage.stop()

        loop.run(start())
        services = [
            cloudwatch_service(
                host.metering.stores, host.metering.flush, lambda: host.now, alarm_operations(host.alarms)
            ),
            logs_service(directory / "logs"),
        ]
        try:
            with serve_services(loop, services, host.table, pages(host.table, host.metering)) as host.port:
                try:
                    yield host
                finally:
                    host.clients.close()
        finally:
            loop.run(stop())


def instance(name: str, pid: int, models: Path, gpus: Sequence[int] = ()) -> RunningInstance:
    """An instance whose process is `pid`."""
    resources = Resources(1, 1 << 30, len(gpus))
    request = InstanceRequest(name, *SCOPE, "e", "v", "f", "image", {}, None, False, resources)
    return RunningInstance(request, "127.0.0.1", 1, pid, models, gpus=gpus)
