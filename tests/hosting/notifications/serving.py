"""Topics on a real socket, endpoints that tests play, and clients of boto3 for both."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.core.origins import OriginPolicy
from halimede.hosting.access.denials import Denials
from halimede.hosting.access.gate import Gate
from halimede.hosting.access.program_images import ProgramImageGate, ProgramImages
from halimede.hosting.access.web_pages import WebPageGuard
from halimede.hosting.api.dispatcher import Dispatcher
from halimede.hosting.http.connection import ClientConnection
from halimede.hosting.identity import Caller
from halimede.hosting.notifications.addresses import LoopbackSubscriptions
from halimede.hosting.notifications.delivery import PAGE, DeliverySettings
from halimede.hosting.notifications.notifications import Notifications
from halimede.hosting.notifications.operations import SnsOperations
from halimede.hosting.routing.invocations import Invocations
from halimede.hosting.routing.table import RoutingTable
from halimede.hosting.substrates.images import Images
from tests.hosting.instances import FakeInstance, Received
from tests.support.clients import Clients
from tests.support.loops import LoopThread
from tests.support.waiting import wait_until

ACCOUNT = Caller().account


@dataclass
class TopicHost:
    """A running host that only has topics."""

    loop: LoopThread
    directory: Path
    settings: DeliverySettings
    now: float | None = None
    loopback: LoopbackSubscriptions = LoopbackSubscriptions.LOOPBACK
    port: int = 0
    clients: Clients = field(default_factory=Clients)
    notifications: Notifications = field(init=False)
    sns: SnsOperations = field(init=False)

    def clock(self) -> float:
        return time.time() if self.now is None else self.now

    async def begin(self) -> None:
        self.notifications = Notifications(
            self.directory / "topics.db",
            self.directory / "notifications",
            lambda: f"http://127.0.0.1:{self.port}",
            self.settings,
            self.clock,
            loopback=self.loopback,
        )
        self.sns = SnsOperations(self.notifications)
        await self.notifications.start()

    def restart(self) -> None:
        """The process ends, and another one begins."""
        self.loop.run(self.notifications.stop())
        self.loop.run(self.begin())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is still to be delivered or logged, and that is on disk."""
        database = self.notifications._file._file  # noqa: SLF001 - only it knows
        left = "SELECT 1 FROM deliveries UNION ALL SELECT 1 FROM messages WHERE NOT logged"
        return bool(self.loop.run(database.rows(left)) == [])

    def client(self, **settings: Any) -> Any:
        return self.clients.make("sns", f"http://127.0.0.1:{self.port}", **settings)

    def refused(self, operation: str, **request: Any) -> tuple[str, str]:
        """The code and the text with which an operation is refused."""
        with pytest.raises(ClientError) as raised:
            getattr(self.client(), operation)(**request)
        error = raised.value.response["Error"]
        return error["Code"], error["Message"]

    def subscribed(self, topic: str, endpoint: FakeInstance, **attributes: str) -> str:
        """The ARN of a subscription of an endpoint, which has confirmed it."""
        before = len(endpoint.seen)
        self.client().subscribe(
            TopicArn=topic,
            Protocol="http",
            Endpoint=f"http://127.0.0.1:{endpoint.port}/hook",
            Attributes=attributes,
        )
        wait_until(lambda: len(endpoint.seen) > before)
        token = document(endpoint.seen[before])["Token"]
        arn: str = self.client().confirm_subscription(TopicArn=topic, Token=token)["SubscriptionArn"]
        return arn

    def log(self, name: str) -> list[dict[str, Any]]:
        """The lines of a topic's log."""
        path = self.directory / "notifications" / ACCOUNT / "us-east-1" / f"{name}.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def document(received: Received) -> dict[str, Any]:
    """What an endpoint has got."""
    found: dict[str, Any] = json.loads(received.body)
    return found


@contextmanager
def topic_host(
    directory: Path,
    settings: DeliverySettings | None = None,
    now: float | None = None,
    loopback: LoopbackSubscriptions = LoopbackSubscriptions.LOOPBACK,
) -> Iterator[TopicHost]:
    """A host while the block runs; what it keeps stays in the directory."""
    with LoopThread() as loop:
        host = TopicHost(loop, directory, settings or DeliverySettings(pause_s=0.02), now, loopback)
        connections: set[ClientConnection] = set()
        stack = AsyncExitStack()

        async def start() -> None:
            await host.begin()
            stack.push_async_callback(lambda: host.notifications.stop())
            invocations = Invocations(RoutingTable())
            stack.callback(invocations.close)
            dispatcher = Dispatcher(
                Gate(None, Caller()),
                [_Current(host)],  # type: ignore[list-item]
                invocations,
                None,
                {PAGE: lambda request: host.sns.visit(request)},
                WebPageGuard(OriginPolicy(["test"])),
                ProgramImageGate(ProgramImages.LOOPBACK, Images().is_program),
                Denials(),
            )
            stack.push_async_callback(dispatcher.close)
            stack.push_async_callback(lambda: host.sns.close())
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


def _abort(connections: set[ClientConnection]) -> None:
    for each in list(connections):
        each.abort()


class _Current:
    """The service of the process that runs now."""

    def __init__(self, host: TopicHost) -> None:
        self._host = host
        self._service = host.sns.service()

    def __getattr__(self, name: str) -> Any:
        if name in ("check", "run"):
            return getattr(self._host.sns.service(), name)
        return getattr(self._service, name)
