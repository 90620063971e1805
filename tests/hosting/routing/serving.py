"""The runtime on a real socket, before instances that tests play, and clients for it."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest

from halimede.hosting.access.roles import InstanceRoles
from halimede.hosting.http.connection import ClientConnection
from halimede.hosting.http.request import Request
from halimede.hosting.identity import Caller, EndpointId, Scope
from halimede.hosting.routers.routers import Routers
from halimede.hosting.routing.counts import InvocationCounts
from halimede.hosting.routing.invocations import PREFIX, Invocations
from halimede.hosting.routing.settings import InvocationSettings
from halimede.hosting.routing.table import EndpointRoute, FleetRoute, RoutingTable, Target, VariantRoute
from halimede.hosting.settings import HostSettings
from halimede.hosting.specs import Container, Variant
from halimede.hosting.substrates.base import Resources
from halimede.http1.upstream import UpstreamPool
from halimede.net.server import Connections
from tests.frontends.http.serving import Client
from tests.hosting.instances import FakeInstance
from tests.support.clients import Clients
from tests.support.loops import LoopThread
from tests.support.waiting import wait_until

one_process = pytest.mark.parametrize("processes", [1], ids=["one-process"], indirect=True)
"""For a test that looks into what only one process has, or for which it makes no difference how many there are."""

SMALL = InvocationSettings(payload_bytes=1000, kept_bytes=100)
"""Takes small bodies, and sends only the smallest twice."""

SHORT = InvocationSettings(timeout_s=0.6, stream_timeout_s=0.3)
"""Waits for an instance for a short time only. Tests whose limits are equal share router processes."""

ENDPOINT = "my-endpoint"
ACCOUNT = "123456789012"


@dataclass
class Meter:
    """Writes down what is counted (`InvocationMeter`)."""

    sent_to: list[int] = field(default_factory=list)
    answers: list[tuple[int, bool]] = field(default_factory=list)
    placements: list[bool] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)

    def sent(self, instances: int) -> None:
        self.sent_to.append(instances)

    def ended(self, status: int, model_ns: int, overhead_ns: int, *, model_error: bool) -> None:
        self.answers.append((status, model_error))
        self.times.append((model_ns, overhead_ns))

    def placed(self, wait_ns: int, *, cache_hit: bool) -> None:
        self.placements.append(cache_hit)

    def absorb(self, counts: InvocationCounts) -> None:
        """Write down what another process has counted, as far as that says."""
        if counts.sent:
            self.sent_to += [round(counts.sent / counts.per_instance)] * counts.sent
        by_server = min(counts.model_errors, counts.server_errors)
        by_client = min(counts.model_errors - by_server, counts.client_errors)
        self.answers += [(500, True)] * by_server + [(400, True)] * by_client
        self.answers += [(300, True)] * (counts.model_errors - by_server - by_client)
        self.answers += [(499, False)] * (counts.client_errors - by_client)
        self.answers += [(503, False)] * (counts.server_errors - by_server)
        failed = counts.client_errors + counts.server_errors + counts.model_errors - by_server - by_client
        self.answers += [(200, False)] * (counts.answered - failed)
        self.placements += [False] * (counts.placed - counts.hits) + [True] * counts.hits


@dataclass
class Processes:
    """How many processes answer invocations.

    Attributes:
        count: so many, 1 for the tests' own.
        farms: routers that have been started, by the settings that they have.
    """

    count: int = 1
    farms: dict[InvocationSettings, "Farm"] = field(default_factory=dict)

    @property
    def farm(self) -> "Farm":
        """That with the settings of most tests."""
        return self.farms[InvocationSettings()]

    def close(self) -> None:
        for farm in self.farms.values():
            farm.close()
        self.farms.clear()


PROCESSES = Processes()


class Farm:
    """Two router processes, which test after test has as its own."""

    def __init__(self, settings: InvocationSettings) -> None:
        self.loop = LoopThread()
        self.loop.__enter__()
        self.table = RoutingTable()
        self.connections: Connections[ClientConnection] = Connections()
        self.meters: dict[str, Meter] = {}

        async def start() -> tuple[Routers, asyncio.Server]:
            self.invocations = Invocations(self.table, settings)
            host = HostSettings(
                Path("/nowhere"),
                Resources(1, 1),
                router_processes=2,
                caller=Caller(account=ACCOUNT, region="eu-west-1"),
                invocation=settings,
                allowed_hosts=("*",),
            )
            roles, sessions = InstanceRoles(Path("/nowhere")), self.invocations.sessions
            routers = Routers(host, self.table, roles, self._absorb, sessions)
            factory = routers.listen(self._handle, self.connections)
            server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
            await routers.start()
            return routers, server

        self.routers, self.server = self.loop.run(start())

    def _handle(self, request: Request) -> None:
        """Answer what no router does."""
        if request.head.path.startswith(PREFIX):
            self.invocations.handle(request, Scope(ACCOUNT, "eu-west-1"))
        else:
            request.respond(404, b"the host's own process")

    def _absorb(self, endpoint: EndpointId, variant: str, config: str, counts: InvocationCounts) -> None:
        self.meters.setdefault(f"{variant}{config}", Meter()).absorb(counts)

    def close(self) -> None:
        self.loop.call(self.server.close)
        self.loop.run(self.routers.stop(1.0))
        self.loop.call(self.routers.close)
        self.loop.call(self.connections.shutdown)
        self.loop.run(self.connections.gone())
        self.loop.call(self.invocations.close)
        self.loop.__exit__(None, None, None)


class Runtime:
    """A running runtime with one endpoint.

    Attributes:
        loop: where it runs.
        table: its endpoints.
        route: the one that there is.
        invocations: what is under way.
        port: where it listens.
    """

    def __init__(self, loop: LoopThread, route: EndpointRoute, settings: InvocationSettings | None) -> None:
        self.loop = loop
        self.table = RoutingTable()
        self.table.publish(route)
        self.route = route
        self.connections: Connections[ClientConnection] = Connections()

        async def listen() -> tuple[Invocations, asyncio.Server]:
            invocations = Invocations(self.table, settings)
            server = await asyncio.get_running_loop().create_server(
                lambda: ClientConnection(
                    lambda request: invocations.handle(request, Scope(ACCOUNT, "eu-west-1")),
                    None,
                    self.connections,
                ),
                "127.0.0.1",
                0,
            )
            return invocations, server

        self.invocations, self._server = loop.run(listen())
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._clients = Clients()

    @property
    def variant(self) -> VariantRoute:
        return next(iter(self.route.variants.values()))

    @property
    def targets(self) -> list[Target]:
        return [target for variant in self.route.every_variant() for target in variant.targets]

    def settle(self) -> None:
        """Return when requests go where the table says, and everything that was counted is known here."""
        self.loop.run(self.table.settled())

    @property
    def meter(self) -> Meter:
        self.settle()
        meter = self.variant.meter
        assert isinstance(meter, Meter)
        return meter

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, and nothing is left of what was."""
        return self.loop.call(
            lambda: not self.invocations.count and not any(target.outstanding for target in self.targets)
        )

    def client(self, attempts: int = 1, **settings: Any) -> Any:
        """A client of boto3, which is closed with the runtime."""
        config = {"retries": {"total_max_attempts": attempts}, "max_pool_connections": 64, **settings}
        url = f"http://127.0.0.1:{self.port}"
        return self._clients.make("sagemaker-runtime", url, config, region_name="eu-west-1")

    def raw(self) -> Client:
        """A client that sends bytes as they are."""
        return Client(self.port)

    def close(self) -> None:
        self._clients.close()
        self.loop.call(self._server.close)
        self.loop.call(self.connections.shutdown)
        self.loop.run(asyncio.wait_for(self.connections.gone(), 60), 60)
        self.loop.call(self.invocations.close)
        for target in self.targets:
            self.loop.call(target.pool.close)


class SharedRuntime(Runtime):
    """A runtime that two router processes share."""

    def __init__(self, farm: Farm, route: EndpointRoute) -> None:
        self.loop = farm.loop
        self.table = farm.table
        self.route = route
        self.invocations = farm.invocations
        self.port = farm.server.sockets[0].getsockname()[1]
        self._clients = Clients()
        for variant in route.every_variant():
            assert hasattr(variant.meter, "absorb")
            farm.meters[f"{variant.spec.name}{variant.config}"] = cast("Meter", variant.meter)
        self.loop.call(self.table.publish, route)
        self.settle()

    def close(self) -> None:
        self._clients.close()
        self.loop.call(self.table.withdraw, self.route.id)
        for variant in self.route.every_variant():
            for target in list(variant.targets):
                self.loop.call(self.table.leave, variant, target)
        self.settle()


def invoke(client: Any, body: bytes = b"body", **more: Any) -> Any:
    """The response to one invocation, whose body has been received."""
    answer = client.invoke_endpoint(EndpointName=ENDPOINT, Body=body, **more)
    with closing(answer["Body"]) as received:
        answer["Body"] = BytesIO(received.read())
    return answer


def variant_route(
    name: str, instances: Sequence[FakeInstance], weight: float = 1.0, **spec: Any
) -> VariantRoute:
    """A variant of one model with those instances."""
    container = spec.pop("container", Container("image"))
    targets = [
        Target(f"{name}-{number}", UpstreamPool("127.0.0.1", one.port))
        for number, one in enumerate(instances)
    ]
    return VariantRoute(
        Variant(name, "model", container, "ml.local.cpu", **spec), weight, targets, meter=Meter()
    )


def endpoint_route(*variants: VariantRoute, beside: Sequence[FleetRoute] = ()) -> EndpointRoute:
    """The endpoint with those variants, and other fleets beside them."""
    by_name = {variant.spec.name: variant for variant in variants}
    return EndpointRoute(ENDPOINT, f"arn:{ENDPOINT}", "eu-west-1", ACCOUNT, "config", by_name, beside)


@contextmanager
def runtime(
    *variants: VariantRoute,
    settings: InvocationSettings | None = None,
    beside: Sequence[FleetRoute] = (),
) -> Iterator[Runtime]:
    """A runtime before those variants, in as many processes as the test wants."""
    if PROCESSES.count > 1:
        farms, settings = PROCESSES.farms, settings or InvocationSettings()
        farm = farms.get(settings)
        if farm is None:
            farm = farms[settings] = Farm(settings)
        shared = SharedRuntime(farm, endpoint_route(*variants, beside=beside))
        try:
            yield shared
        finally:
            shared.close()
        return
    with LoopThread() as loop:
        one = Runtime(loop, endpoint_route(*variants, beside=beside), settings)
        try:
            yield one
        finally:
            one.close()


@contextmanager
def instances(count: int) -> Iterator[list[FakeInstance]]:
    """So many instances."""
    with ExitStack() as stack:
        made = [FakeInstance() for _ in range(count)]
        for one in made:
            stack.callback(one.close)
        yield made


@contextmanager
def one_instance(
    settings: InvocationSettings | None = None, **spec: Any
) -> Iterator[tuple[Runtime, FakeInstance]]:
    """A runtime before one instance; at the end nothing may be left under way."""
    with (
        instances(1) as [instance],
        runtime(variant_route("AllTraffic", [instance], **spec), settings=settings) as one,
    ):
        yield one, instance
        wait_until(lambda: one.is_idle)
