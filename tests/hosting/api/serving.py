"""The protocols on a real socket, before operations that only note what they are asked, and clients for them."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from halimede.core.origins import OriginPolicy
from halimede.hosting.access.denials import Denials
from halimede.hosting.access.gate import Gate
from halimede.hosting.access.keys import Key
from halimede.hosting.access.program_images import ProgramImageGate, ProgramImages
from halimede.hosting.access.web_pages import WebPageGuard
from halimede.hosting.api.dispatcher import Dispatcher, Page
from halimede.hosting.api.services import Operation, Service
from halimede.hosting.api.sts import sts_service
from halimede.hosting.errors import ApiError
from halimede.hosting.http.connection import ClientConnection
from halimede.hosting.http.request import Request
from halimede.hosting.identity import Caller
from halimede.hosting.metering.cloudwatch import cloudwatch_service
from halimede.hosting.metering.store import MetricStores
from halimede.hosting.routing.invocations import Invocations
from halimede.hosting.routing.settings import InvocationSettings
from halimede.hosting.routing.table import EndpointRoute, RoutingTable, Target, VariantRoute
from halimede.hosting.specs import Container, Variant
from halimede.hosting.store.s3_call import S3Call
from halimede.hosting.substrates.images import Images
from halimede.http1.upstream import UpstreamPool
from tests.frontends.http.serving import Client
from tests.support.clients import Clients
from tests.support.loops import LoopThread

ACCESS_KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG"
ACCOUNT = "123456789012"
WHEN = datetime(2026, 3, 4, 5, 6, 7, 890_000, UTC)

VARIANT = {"VariantName": "A", "ModelName": "m", "InstanceType": "ml.local.cpu", "InitialInstanceCount": 1}

_ANSWERS: Mapping[str, Any] = {
    "CreateModel": {"ModelArn": "arn:aws:sagemaker:us-east-1:000000000000:model/m"},
    "CreateEndpointConfig": {
        "EndpointConfigArn": "arn:aws:sagemaker:us-east-1:000000000000:endpoint-config/c"
    },
    "DescribeEndpoint": {
        "EndpointName": "e",
        "EndpointArn": "arn:aws:sagemaker:us-east-1:000000000000:endpoint/e",
        "EndpointStatus": "InService",
        "CreationTime": WHEN,
        "LastModifiedTime": WHEN,
    },
    "ListEndpoints": {"Endpoints": []},
    "ListTags": {"Tags": []},
    "AddTags": {"Tags": []},
}


@dataclass
class ApiHost:
    """A running host.

    Attributes:
        loop: where it runs.
        port: where it listens.
        calls: operation, request and caller of each call of SageMaker's control plane.
        stored: requests that got to the object store.
        table: the endpoints of the runtime.
        stores: the metrics.
        errors: what was logged as an error; must be empty at the end.
        warnings: what was logged as a warning.
        clients: those that were made.
    """

    loop: LoopThread
    port: int = 0
    calls: list[tuple[str, Mapping[str, Any], Caller]] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)
    table: RoutingTable = field(default_factory=RoutingTable)
    stores: MetricStores = field(default_factory=MetricStores)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    clients: Clients = field(default_factory=Clients)

    def client(self, service: str, **settings: Any) -> Any:
        """A client of boto3, which tries once and is closed with the host."""
        config = {"parameter_validation": False, **settings.pop("config", {})}
        values = {
            "region_name": "eu-west-1",
            "aws_access_key_id": ACCESS_KEY,
            "aws_secret_access_key": SECRET,
        }
        return self.clients.make(service, f"http://127.0.0.1:{self.port}", config, **(values | settings))

    def raw(self) -> Client:
        """A connection on which bytes are sent as they are."""
        return Client(self.port)

    def publish(self, name: str, port: int, account: str = ACCOUNT, region: str = "eu-west-1") -> None:
        """Let the runtime send requests for an endpoint to an instance."""

        def put() -> None:
            spec = Variant("A", "m", Container("x"), "ml.local.cpu")
            route = VariantRoute(spec, 1.0, [Target("i-1", UpstreamPool("127.0.0.1", port))])
            self.table.publish(EndpointRoute(name, f"arn/{name}", region, account, "c", {"A": route}))

        self.loop.call(put)


class _Log(logging.Handler):
    def __init__(self, host: ApiHost) -> None:
        super().__init__(logging.WARNING)
        self._host = host

    def emit(self, record: logging.LogRecord) -> None:
        of = self._host.errors if record.levelno >= logging.ERROR else self._host.warnings
        of.append(f"{record.getMessage()} {record.exc_info[1]!r}" if record.exc_info else record.getMessage())


@contextmanager
def api_host(
    keys: Mapping[str, Key] | None = None,
    now: Callable[[], datetime] | None = None,
    operations: Mapping[str, Operation] | None = None,
    pages: Mapping[str, Page] | None = None,
    payload_bytes: int = 1 << 20,
    policy: OriginPolicy | None = None,
    program_images: ProgramImages = ProgramImages.LOOPBACK,
    address: str = "127.0.0.1",
    about: Callable[[str, Mapping[str, Any], Caller], tuple[str, ...]] = lambda *_: (),
) -> Iterator[ApiHost]:
    """A host while the block runs. Nothing may be logged as an error: errors are answers here."""
    logger = logging.getLogger("halimede")
    with LoopThread() as loop, ExitStack() as stack:
        host = ApiHost(loop)
        handler = _Log(host)
        logger.addHandler(handler)
        stack.callback(logger.removeHandler, handler)
        connections: set[ClientConnection] = set()

        async def start() -> tuple[Invocations, Dispatcher, asyncio.Server]:
            invocations = Invocations(host.table, InvocationSettings(payload_bytes=payload_bytes))
            services = [
                Service(
                    "sagemaker",
                    {**{name: _noted(host, name) for name in _ANSWERS}, **(operations or {})},
                    later="more comes later",
                    further={"ProductionVariantInstanceType": ("ml.local.cpu", "ml.local.gpu")},
                    about=about,
                ),
                Service("application-autoscaling", {}, later="autoscaling comes later"),
                Service(
                    "logs",
                    {"GetLogEvents": _noted(host, "GetLogEvents")},
                    refusal="InvalidParameterException",
                ),
                cloudwatch_service(host.stores),
                sts_service(),
            ]
            dispatcher = Dispatcher(
                Gate(keys, Caller(), now),
                services,
                invocations,
                _Objects(host),
                pages or {},
                WebPageGuard(policy or OriginPolicy(["h", "test"])),
                ProgramImageGate(program_images, Images().is_program),
                Denials(),
            )
            server = await asyncio.get_running_loop().create_server(
                lambda: ClientConnection(dispatcher.handle, connections=connections), address, 0
            )
            return invocations, dispatcher, server

        invocations, dispatcher, server = loop.run(start())
        host.port = server.sockets[0].getsockname()[1]

        async def stop() -> None:
            server.close()
            for connection in list(connections):
                connection.abort()
            await dispatcher.close()
            invocations.close()
            for route in host.table.routes():
                for variant in route.variants.values():
                    for target in variant.targets:
                        target.pool.close()

        try:
            yield host
        finally:
            host.clients.close()
            loop.run(stop())
        assert host.errors == []


def _noted(host: ApiHost, name: str) -> Operation:
    async def operation(request: Mapping[str, Any], caller: Caller) -> Mapping[str, Any]:
        host.calls.append((name, request, caller))
        answer: Mapping[str, Any] = _ANSWERS.get(name, {})
        return answer

    return operation


class _Objects:
    """Notes requests in place of an object store, and refuses them as the real one does."""

    def __init__(self, host: ApiHost) -> None:
        self._host = host

    async def handle(self, request: Request, caller: Caller, access: Key | None) -> None:
        self._host.stored.append(f"{request.head.method} {request.head.path}")
        request.respond(200)

    def refuse(self, request: Request, error: ApiError) -> None:
        S3Call(request, Caller(), None).answer_error(error)
