"""All router processes: started, given connections, told of changes, and replaced when they end.

    a client ─▶ the host's own process accepts ─▶ the router with the fewest connections
                          ▲                                   │
                          └──── any request but an invocation ┘

The host's own process accepts, and does not leave that to whichever router comes first: so connections are spread
evenly, a router that ends takes none with it but its own, and the port is never without a listener.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import cast

from halimede.core.backoff import Backoff
from halimede.core.clock import WALL_CLOCK
from halimede.core.tasks import Tasks
from halimede.hosting.access.roles import InstanceRoles
from halimede.hosting.capture.settings import capture_directory
from halimede.hosting.http.connection import ClientConnection, Handler
from halimede.hosting.http.reserve import refuse_all_but_ping
from halimede.hosting.identity import EndpointId
from halimede.hosting.routers.connection import SharedConnection, is_invocation
from halimede.hosting.routers.door import Adoption, Handed
from halimede.hosting.routers.link import RouterLink
from halimede.hosting.routers.messages import Begin, SessionClosed
from halimede.hosting.routers.publisher import Publisher
from halimede.hosting.routers.shared_counts import SharedCounts
from halimede.hosting.routing.counts import InvocationCounts
from halimede.hosting.routing.sessions import Sessions
from halimede.hosting.routing.table import RoutingTable
from halimede.hosting.settings import HostSettings
from halimede.net.connection_limit import ConnectionLimit
from halimede.net.receiving import ReceiveBudget
from halimede.net.server import Connections

logger = logging.getLogger("halimede")

_SOON_S = 10.0
"""A router that ends so soon after its start is replaced with more patience."""

_HEARTBEAT_S = 2.0
"""How often routers are asked whether they are well."""

_BACKOFF_S = 0.1
_LONGEST_BACKOFF_S = 5.0
_LAST_WORDS_S = 2.0


class Routers:
    """The router processes. Lives on the event loop.

    Attributes:
        limit: makes the protocols of the connections that the host's own process has.
    """

    def __init__(
        self,
        settings: HostSettings,
        table: RoutingTable,
        roles: InstanceRoles,
        absorb: Callable[[EndpointId, str, str, InvocationCounts], None],
        sessions: Sessions,
    ) -> None:
        """No router has been started.

        Args:
            settings: the host's, with how many routers there are to be.
            table: the endpoints that take requests.
            roles: the keys of instances.
            absorb: takes what routers have counted of an endpoint's variant, of a configuration or "".
            sessions: what the host's own process knows of sessions.
        """
        self._settings = settings
        self._count = settings.router_processes
        self._roles = roles
        self._absorb = absorb
        self._sessions = sessions
        sessions.on_closed = lambda token, expires: self._tell_closed(SessionClosed(token, expires))
        self._counts = SharedCounts(self._count)
        self._links: set[RouterLink] = set()
        self._publisher = Publisher(table, self._counts, self._links, self._settle)
        table.watcher = roles.watcher = self._publisher
        self._table = table
        # of the routers and of the host's own process, as each knows only of its own bodies
        self._receive_bytes = settings.receive_bytes // (self._count + 1)
        self._keepers = Tasks()
        self._adoption = Adoption(self._adopt)
        self.limit: ConnectionLimit
        self._stopping = False

    @property
    def processes(self) -> list[int]:
        """The numbers of the processes that take connections."""
        return [link.pid for link in self._links if link.is_ready]

    # connections

    def listen(self, handler: Handler, connections: Connections[ClientConnection]) -> ConnectionLimit:
        """What makes new connections; `handler` answers what no router does.

        Args:
            handler: called with each request of the host's own process.
            connections: those that it has.
        """
        budget = ReceiveBudget(self._receive_bytes)

        def make(
            handler: Handler, connections: Connections[ClientConnection], handed: Handed | None = None
        ) -> SharedConnection:
            if handed is None:
                return SharedConnection(handler, self, connections, budget)
            return SharedConnection(
                handler,
                self,
                connections,
                budget,
                client=handed.client,
                from_loopback=handed.from_loopback,
                data=handed.data,
            )

        self.limit = ConnectionLimit(
            0,
            connections,
            partial(make, handler, connections),
            lambda turned_away, error, *handed: make(
                refuse_all_but_ping(handler, error), turned_away, *handed
            ),
        )
        return self.limit

    def _adopt(self, handed: Handed) -> ClientConnection:
        return cast("ClientConnection", self.limit.protocol(handed.socket.fileno(), handed))

    def wants(self, data: bytes) -> bool:
        """Whether a request that begins so is a router's."""
        return is_invocation(data)

    def hand(self, descriptor: int, client: str, data: bytes, *, from_loopback: bool) -> bool:
        """Hand a connection to the router that has the fewest; False if there is none."""
        ready = [link for link in self._links if link.is_ready]
        if not ready:
            return False
        link = min(ready, key=lambda each: each.connections)
        try:
            link.hand(descriptor, client, data, from_loopback=from_loopback)
        except OSError:  # it is about to be replaced
            return False
        return True

    # processes

    async def start(self) -> None:
        """Return when all routers take connections.

        Raises:
            OSError: a process cannot be started.
        """
        links = await asyncio.gather(*(self._begin(row) for row in range(self._count)))
        for row, link in enumerate(links):
            self._keepers.start(f"looking after router {row}", self._keep(row, link))
        logger.info(
            "invocations are answered by the processes %s", ", ".join(map(str, sorted(self.processes)))
        )

    async def _begin(self, row: int) -> RouterLink:
        link = RouterLink(
            row, self._counts, self._publisher, self._adoption.take, self._absorb, self._session_closed
        )
        try:
            await self._introduce(link)
        except BaseException:  # nobody else knows of it
            self._links.discard(link)
            await link.bury()
            raise
        return link

    async def _introduce(self, link: RouterLink) -> None:
        """Start a router and tell it everything: it takes connections."""
        await link.start(self._count)
        settings = self._settings
        link.send(
            Begin(
                settings.address,
                settings.allowed_hosts,
                settings.allowed_origins,
                settings.keys,
                settings.caller,
                settings.invocation,
                self._receive_bytes,
                self._roles.all(),
                capture_directory(settings.directory),
                settings.capture.shared(self._count + 1),
                self._sessions.key,
                self._sessions.closed(),
                WALL_CLOCK.state(),
            )
        )
        for message in self._publisher.whole():
            link.send(message)
        self._links.add(link)  # in the same turn: it misses no change
        await link.sync()
        link.is_ready = not link.gone.is_set()

    def _session_closed(self, link: RouterLink, message: SessionClosed) -> None:
        """A session was closed by what a router has passed on."""
        self._sessions.note(message.token, message.expires)
        self._tell_closed(message, link)

    def _tell_closed(self, message: SessionClosed, known_to: RouterLink | None = None) -> None:
        for link in self._links:
            if link is not known_to:
                link.send(message)

    async def _keep(self, row: int, link: RouterLink) -> None:
        """Have a router, and another one when it has ended."""
        backoff = Backoff(_BACKOFF_S, _LONGEST_BACKOFF_S, _SOON_S)
        while True:
            try:
                await _ended(link)
            except Exception:  # nobody would notice its end
                logger.exception("router process %d cannot be looked after, and is ended", link.pid)
            self._links.discard(link)
            try:
                await link.bury()
            except Exception:  # another one may work
                logger.exception("router process %d cannot be forgotten", link.pid)
            if self._stopping:
                return
            logger.error("router process %d has ended; another one is started", link.pid)
            link = await self._replaced(row, backoff)

    async def _replaced(self, row: int, backoff: Backoff) -> RouterLink:
        while True:
            await backoff.pause()
            try:
                return await self._begin(row)
            except OSError as error:
                logger.error("a router process cannot be started: %s", error.strerror or error)
            except Exception:  # whatever it is, it may work the next time
                logger.exception("a router process cannot be started")

    async def _settle(self) -> None:
        await asyncio.gather(*(link.sync() for link in list(self._links)))

    async def stop(self, grace_s: float) -> None:
        """Have the routers answer what they have been asked, and end."""
        self._stopping = True
        self._table.watcher = self._roles.watcher = None
        self._adoption.stop()
        for link in self._links:
            link.stop(grace_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s + _LAST_WORDS_S):
                await asyncio.gather(*(link.gone.wait() for link in list(self._links)))
        await self._keepers.wait(_LAST_WORDS_S)
        await self._keepers.close()
        for link in list(self._links):
            await link.bury()
        self._links.clear()

    def close(self) -> None:
        """Give back what they shared; they have been stopped, and nobody looks at the table any more."""
        self._counts.close()


async def _ended(link: RouterLink) -> None:
    """Return when a router has ended, or is ended as it hangs."""
    while not link.gone.is_set():
        await link.sync()
        with suppress(TimeoutError):
            async with asyncio.timeout(_HEARTBEAT_S):
                await link.gone.wait()
