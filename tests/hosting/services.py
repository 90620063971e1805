"""Services of the host on a real socket, for tests that need nothing else of it."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from halimede.core.origins import OriginPolicy
from halimede.hosting.access.denials import Denials
from halimede.hosting.access.gate import Gate
from halimede.hosting.access.program_images import ProgramImageGate, ProgramImages
from halimede.hosting.access.web_pages import WebPageGuard
from halimede.hosting.api.dispatcher import Dispatcher, Page
from halimede.hosting.api.services import Service
from halimede.hosting.http.connection import ClientConnection
from halimede.hosting.identity import Caller
from halimede.hosting.routing.invocations import Invocations
from halimede.hosting.routing.table import RoutingTable
from halimede.hosting.substrates.images import Images
from tests.support.loops import LoopThread


@contextmanager
def serve_services(
    loop: LoopThread,
    services: Sequence[Service],
    table: RoutingTable | None = None,
    pages: Mapping[str, Page] | None = None,
) -> Iterator[int]:
    """Their port while the block runs. No signature is verified."""
    connections: set[ClientConnection] = set()

    async def start() -> tuple[Invocations, Dispatcher, asyncio.Server]:
        invocations = Invocations(table or RoutingTable())
        dispatcher = Dispatcher(
            Gate(None, Caller()),
            services,
            invocations,
            None,
            pages or {},
            WebPageGuard(OriginPolicy(["test"])),
            ProgramImageGate(ProgramImages.LOOPBACK, Images().is_program),
            Denials(),
        )
        server = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(dispatcher.handle, connections=connections), "127.0.0.1", 0
        )
        return invocations, dispatcher, server

    invocations, dispatcher, server = loop.run(start())

    async def stop() -> None:
        server.close()
        for connection in list(connections):
            connection.abort()
        await dispatcher.close()
        invocations.close()

    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.run(stop())
