"""Asynchronous inference before instances that tests play, with a store on disk, and clients for it."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.core.origins import OriginPolicy
from halimede.hosting.access.denials import Denials
from halimede.hosting.access.gate import Gate
from halimede.hosting.access.keys import Key
from halimede.hosting.access.program_images import ProgramImageGate, ProgramImages
from halimede.hosting.access.web_pages import WebPageGuard
from halimede.hosting.api.dispatcher import Dispatcher
from halimede.hosting.asynchronous.asynchronous import Asynchronous
from halimede.hosting.asynchronous.requests import Notice
from halimede.hosting.asynchronous.settings import AsyncSettings
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.http.connection import ClientConnection
from halimede.hosting.identity import Caller, EndpointId, Scope
from halimede.hosting.metering.store import Metric, MetricStores
from halimede.hosting.routing.counts import CountingMeter
from halimede.hosting.routing.invocations import Invocations
from halimede.hosting.routing.table import EndpointRoute, FleetRoute, RoutingTable, Target, VariantRoute
from halimede.hosting.specs import AsyncSpec, Container, Variant
from halimede.hosting.store.object_store import ObjectStore
from halimede.hosting.store.objects import Objects
from halimede.hosting.store.offers import OfferTokens
from halimede.hosting.store.records import SmallPut
from halimede.hosting.store.sources import Places, model_source
from halimede.hosting.substrates.images import Images
from halimede.http1.upstream import UpstreamPool
from tests.hosting.instances import FakeInstance
from tests.support.clients import Clients
from tests.support.loops import LoopThread
from tests.support.waiting import wait_until

SCOPE = Scope()
ENDPOINT = EndpointId(*SCOPE, "e")
SUCCESS, ERROR = (f"arn:aws:sns:us-east-1:{SCOPE.account}:{name}" for name in ("done", "failed"))
SPEC = AsyncSpec("s3://results/out", "s3://results/errors", 2, SUCCESS, ERROR)
QUICK = AsyncSettings(pauses_s=(0.01, 0.02), refusal_s=0.02, connect_s=5.0)
NOON = 1_772_625_600.0


class TroubledObjects(Objects):
    """Objects that cannot be had as often as a test wants.

    Attributes:
        unwritable: so many of the next writes fail, by what their URLs contain.
        written: the URLs that were written, in order.
    """

    def __init__(self, places: Places, account: str) -> None:
        super().__init__(places, account)
        self.unwritable: dict[str, int] = {}
        self.written: list[str] = []

    async def write(
        self, url: str, content: bytes | Path, content_type: str = "application/octet-stream"
    ) -> None:
        refusal = self._refusal(url)
        if refusal is not None:
            raise refusal
        await super().write(url, content, content_type)
        self.written.append(url)

    async def write_small(self, puts: Sequence[SmallPut]) -> Sequence[ApiError | None]:
        urls = [f"s3://{each.bucket}/{each.key}" for each in puts]
        refusals = [self._refusal(url) for url in urls]
        outcomes = iter(
            await super().write_small(
                [each for each, refusal in zip(puts, refusals, strict=True) if refusal is None]
            )
        )
        self.written += [url for url, refusal in zip(urls, refusals, strict=True) if refusal is None]
        return [next(outcomes) if refusal is None else refusal for refusal in refusals]

    def _refusal(self, url: str) -> ApiError | None:
        for part, left in self.unwritable.items():
            if part in url and left:
                self.unwritable[part] -= 1
                return invalid(f"Failed to write the object ({url}): the service is away")
        return None


@dataclass
class AsyncHost:
    """A host that has asynchronous endpoints, an object store with the bucket ``results``, and nothing else.

    Attributes:
        loop: where it runs.
        directory: where it keeps everything.
        now: the time; None for what `real_time` returns.
        notices: the messages that topics have got.
        endpoints: those that there are when a process begins.
        missing: topics that are not there.
        spec: that of the endpoint ``e``.
        settings: limits.
        table: where requests go.
        runtime: the client of `invoke`, once there is one.
    """

    loop: LoopThread
    directory: Path
    now: float | None = None
    settings: AsyncSettings = QUICK
    spec: AsyncSpec = SPEC
    notices: list[Notice] = field(default_factory=list)
    endpoints: list[EndpointId] = field(default_factory=lambda: [ENDPOINT])
    missing: set[str] = field(default_factory=set)
    table: RoutingTable = field(default_factory=RoutingTable)
    stores: MetricStores = field(default_factory=MetricStores)
    clients: Clients = field(default_factory=Clients)
    runtime: Any = None
    port: int = 0
    real_time: Callable[[], float] = time.time
    store: ObjectStore = field(init=False)
    objects: TroubledObjects = field(init=False)
    asynchronous: Asynchronous = field(init=False)

    def clock(self) -> float:
        return self.real_time() if self.now is None else self.now

    async def publish(self, notice: Notice) -> None:
        if notice.topic in self.missing:
            raise ApiError("NotFound", "Topic does not exist", 404)
        if all(notice.id != each.id for each in self.notices):
            self.notices.append(notice)

    async def begin(self) -> None:
        """Another process begins."""
        self.asynchronous = Asynchronous(
            self.directory / "async.db",
            self.table,
            lambda _: self.objects,
            self.stores.of,
            self.publish,
            self.settings,
            self.clock,
            self.clock,
            _briefly,
        )
        await self.asynchronous.open(self.endpoints)

    def restart(self) -> None:
        """The process ends, and another one begins."""
        self.loop.run(self.asynchronous.stop())
        self.loop.run(self.begin())

    # the endpoint

    def publish_route(
        self,
        *instances: FakeInstance,
        variants: Sequence["VariantRoute"] = (),
        spec: AsyncSpec | None = None,
        beside: Sequence[FleetRoute] = (),
    ) -> EndpointRoute:
        """Let the endpoint ``e`` have these instances, in one variant ``A``, or these variants, and fleets beside."""
        every = list(variants) or [variant("A", *instances)]
        name = ENDPOINT.name
        route = EndpointRoute(
            name, f"arn/{name}", ENDPOINT.region, ENDPOINT.account, "c",
            {each.spec.name: each for each in every}, beside, spec or self.spec,
        )  # fmt: skip
        self.loop.call(self.table.publish, route)
        return route

    def join(self, route: EndpointRoute, instance: FakeInstance, name: str = "A") -> Target:
        """An instance takes requests from now on."""
        target = Target(f"i-{instance.port}", UpstreamPool("127.0.0.1", instance.port))
        self.loop.call(self.table.join, route.variants[name], target)
        return target

    def leave(self, route: EndpointRoute, target: Target, name: str = "A") -> None:
        """An instance takes none any more."""
        target.draining = True
        self.loop.call(self.table.leave, route.variants[name], target)
        self.loop.call(target.pool.close)

    # clients

    def client(self, **settings: Any) -> Any:
        return self.clients.make(
            "sagemaker-runtime", f"http://127.0.0.1:{self.port}", {"parameter_validation": False}, **settings
        )

    def invoke(self, body: bytes = b"", **request: Any) -> dict[str, Any]:
        """What InvokeEndpointAsync of the endpoint ``e`` answers."""
        if body:
            request["Body"] = body
        self.runtime = self.runtime or self.client()
        answer: dict[str, Any] = self.runtime.invoke_endpoint_async(EndpointName="e", **request)
        return answer

    def refused(self, **request: Any) -> str:
        """The text with which InvokeEndpointAsync is refused."""
        with pytest.raises(ClientError) as raised:
            self.client().invoke_endpoint_async(**{"EndpointName": "e", **request})
        assert raised.value.response["Error"]["Code"] == "ValidationError"
        return str(raised.value.response["Error"]["Message"])

    # objects

    def put(self, key: str, data: bytes, content_type: str = "text/plain") -> str:
        """The URL of an object in the bucket ``results``."""
        url = f"s3://results/{key}"
        self.loop.run(Objects.write(self.objects, url, data, content_type))
        return url

    def object(self, url: str) -> bytes:
        """The bytes of an object, once it is there."""
        wait_until(lambda: self.exists(url), url)
        return self.loop.run(self.objects.read(url, 1 << 30))

    def exists(self, url: str) -> bool:
        try:
            self.loop.run(self.objects.describe(url))
        except ApiError:
            return False
        return True

    def keys(self, prefix: str) -> list[str]:
        """The URLs of the objects below a prefix of the bucket ``results``."""
        return [each.url for each in self.loop.run(self.objects.list(f"s3://results/{prefix}"))]

    # what there is

    @property
    def backlog(self) -> int:
        return self.loop.call(self.asynchronous.backlogs).get(ENDPOINT, 0)

    def settle(self) -> None:
        """Return once every request is answered and told of."""
        wait_until(lambda: not self.backlog, "answers to all requests")
        self.settle_notices()

    def settle_notices(self) -> None:
        """Return once topics have got all messages."""
        wait_until(lambda: not self.loop.call(lambda: self.asynchronous.is_telling), "all messages")

    def tick(self, after: float = 0.0) -> None:
        if self.now is not None:
            self.now += after
        self.loop.run(self.asynchronous.tick())

    def metric(self, name: str, variant: str = "A") -> tuple[float, float] | None:
        """Sum and count of what was counted of a metric; None if nothing was."""
        self.loop.call(self.asynchronous.flush)
        dimensions = {"EndpointName": "e", **({"VariantName": variant} if variant else {})}
        series = self.stores.find(SCOPE).series(Metric.of("AWS/SageMaker", name, dimensions))
        if series is None:
            return None
        values = list(series.minutes.values())
        return sum(each.total for each in values), sum(each.count for each in values)


def variant(name: str, *instances: FakeInstance, weight: float = 1.0) -> VariantRoute:
    """A variant with these instances."""
    targets = [Target(f"i-{each.port}", UpstreamPool("127.0.0.1", each.port)) for each in instances]
    spec = Variant(name, "m", Container("x"), "ml.local.cpu", weight=weight)
    return VariantRoute(spec, weight, targets, meter=CountingMeter())


@contextmanager
def async_host(
    directory: Path, now: float | None = None, keys: Mapping[str, Key] | None = None, **settings: Any
) -> Iterator[AsyncHost]:
    """A host while the block runs; what it keeps stays in the directory."""
    with LoopThread() as loop:
        host = AsyncHost(loop, directory, now, replace(QUICK, **settings))
        connections: set[ClientConnection] = set()
        stack = AsyncExitStack()

        async def start() -> None:
            host.store = ObjectStore(directory / "store")
            await host.store.open()
            stack.push_async_callback(host.store.close)
            if host.store.owner("results") is None:
                await host.store.create_bucket("results", SCOPE.account, SCOPE.region)
            tokens = OfferTokens(directory / "offers.key")
            host.objects = TroubledObjects(model_source(host.store, tokens), SCOPE.account)
            await host.begin()
            stack.push_async_callback(lambda: host.asynchronous.stop())
            invocations = Invocations(host.table)
            stack.callback(invocations.close)
            dispatcher = Dispatcher(
                Gate(keys, Caller()),
                [],
                invocations,
                None,
                {},
                WebPageGuard(OriginPolicy(["test"])),
                ProgramImageGate(ProgramImages.LOOPBACK, Images().is_program),
                Denials(),
                asynchronous=_Current(host),
            )
            stack.push_async_callback(dispatcher.close)
            server = await asyncio.get_running_loop().create_server(
                lambda: ClientConnection(dispatcher.handle, connections=connections), "127.0.0.1", 0
            )
            stack.callback(_abort, connections)
            stack.callback(server.close)
            host.port = server.sockets[0].getsockname()[1]

        loop.run(start())
        try:
            yield host
        finally:
            host.clients.close()
            loop.run(stack.aclose())
            for route in host.table.routes():
                for each in route.variants.values():
                    for target in each.targets:
                        loop.call(target.pool.close)


async def _briefly(seconds: float) -> None:
    await asyncio.sleep(min(seconds, 0.02))  # sleeps: what the host waits for, shortened


def _abort(connections: set[ClientConnection]) -> None:
    for each in list(connections):
        each.abort()


class _Current:
    """The process that runs now."""

    def __init__(self, host: AsyncHost) -> None:
        self._host = host

    async def handle(self, *request: Any) -> None:
        await self._host.asynchronous.handle(*request)
