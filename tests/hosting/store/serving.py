"""A host that has only an object store, on a real socket, and clients for it."""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halimede.core.origins import OriginPolicy
from halimede.hosting.access.denials import Denials
from halimede.hosting.access.gate import Gate
from halimede.hosting.access.keys import Key
from halimede.hosting.access.program_images import ProgramImageGate, ProgramImages
from halimede.hosting.access.web_pages import WebPageGuard
from halimede.hosting.api.dispatcher import Dispatcher
from halimede.hosting.http.connection import ClientConnection
from halimede.hosting.identity import Caller
from halimede.hosting.routing.invocations import Invocations
from halimede.hosting.routing.table import RoutingTable
from halimede.hosting.store.object_store import ObjectStore
from halimede.hosting.store.offers import OfferService, OfferTokens
from halimede.hosting.store.s3_service import S3Service
from halimede.hosting.store.sources import model_source
from halimede.hosting.substrates.images import Images
from tests.support.clients import Clients
from tests.support.loops import LoopThread

ACCESS_KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG"


@dataclass
class StoreHost:
    """A running host.

    Attributes:
        loop: where it runs.
        store: its store.
        tokens: with which its objects are offered to other machines.
        port: where it listens.
        connections: those that are open.
        scheme: http or https.
        clients: those that were made.
    """

    loop: LoopThread
    store: ObjectStore
    tokens: OfferTokens
    port: int
    connections: set[ClientConnection]
    scheme: str
    clients: Clients = field(default_factory=Clients)

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def client(self, region: str = "us-east-1", **settings: Any) -> Any:
        """A client of boto3, which tries once and is closed with the host."""
        keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET}
        return self.clients.make("s3", self.endpoint, region_name=region, **(keys | settings))


@contextmanager
def store_host(
    directory: Path,
    keys: Mapping[str, Key] | None = None,
    certificate: tuple[Path, Path] | None = None,
    domains: tuple[str, ...] = ("localhost",),
    policy: OriginPolicy | None = None,
    directories: Mapping[str, Path] | None = None,
    now: Callable[[], float] = time.time,
) -> Iterator[StoreHost]:
    """A host while the block runs; the store stays on disk."""
    with LoopThread() as loop:
        context = None
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)

        async def start() -> tuple[ObjectStore, Invocations, Dispatcher, asyncio.Server]:
            store = ObjectStore(directory)
            await store.open()
            invocations = Invocations(RoutingTable())
            denials = Denials()
            places = model_source(store, tokens, directories=directories)
            service = S3Service(store, domains, denials.note)
            dispatcher = Dispatcher(
                Gate(keys, Caller()),
                (),
                invocations,
                service,
                {},
                WebPageGuard(policy or OriginPolicy(["x", *domains])),
                ProgramImageGate(ProgramImages.LOOPBACK, Images().is_program),
                denials,
                OfferService(tokens, places, store, denials.note).handle,
            )
            server = await asyncio.get_running_loop().create_server(
                lambda: ClientConnection(dispatcher.handle, connections=connections),
                "127.0.0.1",
                0,
                ssl=context,
            )
            return store, invocations, dispatcher, server

        async def stop() -> None:
            server.close()
            for connection in list(connections):
                connection.abort()
            await dispatcher.close()
            invocations.close()
            await store.close()

        connections: set[ClientConnection] = set()
        tokens = OfferTokens(directory.with_name(f"{directory.name}.key"), now)
        store, invocations, dispatcher, server = loop.run(start())
        scheme = "https" if certificate else "http"
        host = StoreHost(loop, store, tokens, server.sockets[0].getsockname()[1], connections, scheme)
        tokens.open(host.endpoint)
        try:
            yield host
        finally:
            host.clients.close()
            loop.run(stop())
