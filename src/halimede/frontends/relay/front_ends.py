"""The front-end processes of a server, as the engine's process knows them.

The engine's process listens. It hands each connection, unread, to the front end that has the fewest, so that a few
clients with long connections are spread evenly, and a front end that dies takes none with it but its own.
"""

import asyncio
import logging
import os
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from halimede.core.errors import InternalError
from halimede.core.tasks import Tasks
from halimede.frontends.grpc.transport.call import Method, UnaryMethod
from halimede.frontends.relay import wire
from halimede.frontends.relay.calls import RelayedCalls
from halimede.frontends.relay.clients import MethodRow
from halimede.frontends.relay.exchanges import RelayedExchanges, Service
from halimede.frontends.relay.inferences import RelayedInferences, Told
from halimede.frontends.relay.link import Link
from halimede.frontends.relay.remote_models import ModelRow
from halimede.frontends.relay.traffic import RelayedTraffic
from halimede.frontends.request_log.entry import Entry
from halimede.frontends.request_log.log import RequestLog
from halimede.workers.process import WorkerProcess
from halimede.workers.zygote import Zygote

logger = logging.getLogger("halimede")

_RESTART_S: Final = 1.0
"""How long after its start a front end that ends is thought to end again: the next one waits for so long."""

_LONGEST_START_S: Final = 10.0
"""So long connections wait at most for front ends that start, while others take them."""

_IDLE_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Served:
    """What front ends ask the engine's process for.

    Attributes:
        services: protocol → what answers its requests over HTTP.
        methods: what answers calls over gRPC, by their full paths.
        log: hears of each request; None for no such log.
        logged: whether front ends have to know the times of the requests that they read, for that log or for clients.
        traffic: protocol → what passes through its endpoint.
        told: what they know of the models.
    """

    services: Mapping[str, Service]
    methods: Mapping[str, Method]
    log: RequestLog | None
    logged: bool
    traffic: Mapping[str, RelayedTraffic]
    told: Told

    def rows(self) -> tuple[MethodRow, ...]:
        """What a front end has to know of the methods."""
        return tuple(
            (path, isinstance(method, UnaryMethod), method.compression, method.group)
            for path, method in self.methods.items()
        )


class FrontEnds:
    """All of them. Lives on the event loop."""

    def __init__(
        self, loop: AbstractEventLoop, number: int, main: str, settings: Mapping[str, Any], served: Served
    ) -> None:
        """Front ends that are to be started.

        Args:
            loop: the event loop.
            number: how many.
            main: what they run, as ``module:function``.
            settings: what that is told; simple values only.
            served: what they ask for.
        """
        self._loop = loop
        self._served = served
        served.told.on_change = self._models_changed
        self._settings = {**settings, "methods": served.rows()}
        self._zygote = Zygote(Path(sys.executable), {}, main, _IDLE_S)
        self._members: list[FrontEnd | None] = [None] * number
        self._starting = set(range(number))  # which have not been ready yet, nor failed to start
        self._tasks = Tasks()
        self._waiting: list[tuple[str, int]] = []
        self._messages: dict[str, tuple[Any, ...]] = {}  # what a new front end has to hear first
        self._stopped = False
        self._closing = False
        self._tell_if_traced()
        served.told.engine.tracing.on_change.append(self._tell_if_traced)

    def start(self) -> None:
        """Start them. Connections wait until all of them have started, so that they are spread evenly."""
        indices = range(len(self._members))
        for index in indices:
            self._tasks.forever(f"looking after front end {index}", partial(self._look_after, index))
        self._loop.call_later(_LONGEST_START_S, self._have_started, *indices)

    async def _look_after(self, index: int) -> None:
        """Start a front end, and again when it has ended."""
        while not self._closing:
            began = self._loop.time()
            try:
                pid, reason = await self._serve(index)
                if not self._closing:
                    msg = "front-end process %d is gone: the process %s; it is started again"
                    logger.error(msg, pid, reason)
            except (InternalError, OSError) as error:
                logger.error("cannot start a front-end process: %s", error)
            finally:
                self._members[index] = None
                self._have_started(index)
            if not self._closing:
                await asyncio.sleep(max(0.0, began + _RESTART_S - self._loop.time()))

    async def _serve(self, index: int) -> tuple[int, str]:
        """Have a front end until it ends: its process, and what it ended by.

        Raises:
            InternalError, OSError: it cannot be started.
        """
        process = await asyncio.to_thread(
            self._zygote.spawn, self._loop, {**self._settings, "index": index}, f"front{index}"
        )
        try:
            process.on_output(_print)
            member = FrontEnd(self._loop, process, self._served, partial(self._have_started, index))
            try:
                self._members[index] = member
                member.post(wire.MODELS, [], self._served.told.rows())
                for message in self._messages.values():
                    member.post(*message)
                await member.gone.wait()
            finally:
                member.give_up()
        except Exception:
            await process.end(kill=True)
            raise
        reason = await process.end(within_s=_RESTART_S)
        return process.pid, reason.words

    def _have_started(self, *indices: int) -> None:
        """These front ends take connections, have ended before they did, or are not waited for any longer."""
        self._starting.difference_update(indices)
        waiting, self._waiting = self._waiting, []
        for protocol, descriptor in waiting:
            self._hand(protocol, descriptor)

    def _takers(self) -> "list[FrontEnd]":
        return [member for member in self._members if member is not None and member.is_ready]

    @property
    def pids(self) -> list[int]:
        """The processes that run."""
        return [member.pid for member in self._members if member is not None]

    def entrance(self, protocol: str) -> Callable[[], asyncio.BaseProtocol]:
        """What makes the protocol of connections that go to front ends."""
        return lambda: _Entrance(self._hand, protocol)

    def _hand(self, protocol: str, descriptor: int) -> None:
        takers = self._takers()
        if self._starting or not takers:
            self._waiting.append((protocol, descriptor))
            return
        least = min(takers, key=lambda member: member.connections)
        elsewhere = self._served.traffic[protocol].open - least.open.get(protocol, 0)
        least.hand(protocol, elsewhere, descriptor)

    def tell(self, *message: Any) -> None:
        """Post an item to each, also to those that are started later."""
        self._messages[str(message[0])] = message
        for member in self._members:
            if member is not None:
                member.post(*message)

    def _tell_if_traced(self) -> None:
        self.tell(wire.TRACED, self._served.told.engine.tracing.active)

    def _models_changed(self, gone: Sequence[tuple[str, int]], rows: Sequence[ModelRow]) -> None:
        for member in self._members:
            if member is not None:
                member.post(wire.MODELS, gone, rows)

    def leave(self) -> None:
        """Ask clients to go elsewhere with their next request, if their protocol has words for it."""
        self.tell(wire.LEAVE)

    def stop_accepting(self) -> None:
        """No connections come any more. May be called again."""
        if self._stopped:
            return
        self._stopped = True
        for _, descriptor in self._waiting:
            os.close(descriptor)
        self._waiting.clear()
        self.tell(wire.GOODBYE)

    async def close(self, grace_s: float) -> bool:
        """Have every connection closed once it has got its answers; whether that took no longer than `grace_s`."""
        self._closing = True
        members = [member for member in self._members if member is not None]
        closed = await asyncio.gather(*(member.close(grace_s) for member in members))
        await asyncio.to_thread(self._zygote.close)
        await self._tasks.wait(2 * _RESTART_S)
        self._tasks.cancel()  # it waits to start another one
        return all(closed)


class FrontEnd:
    """One that was started.

    Attributes:
        is_ready: it takes connections.
        open: protocol → how many connections it has.
        gone: set once the process has closed its end.
    """

    def __init__(
        self, loop: AbstractEventLoop, process: WorkerProcess, served: Served, on_ready: Callable[[], None]
    ) -> None:
        """A front end that starts; `on_ready` is called when it takes connections."""
        self.is_ready = False
        self.open: dict[str, int] = {}
        self._handed: dict[str, int] = {}
        self._process = process
        self._on_ready = on_ready
        self.gone = asyncio.Event()
        self._served = served
        self._closed: asyncio.Future[bool] = loop.create_future()
        handlers: dict[int, Callable[..., None]] = {}
        self._link = Link(loop, process.work, handlers, self.gone.set)
        self._link.on_room = self._room
        self._exchanges = RelayedExchanges(self._link, served.services)
        self._calls = RelayedCalls(self._link, served.methods, served.log, served.traffic["grpc"])
        self._inferences = RelayedInferences(self._link, served.told, served.traffic, logged=served.logged)
        handlers |= self._inferences.handlers()
        handlers |= self._exchanges.handlers()
        handlers |= self._calls.handlers()
        handlers |= {
            wire.GONE: self._client_gone,
            wire.TAKEN: self._taken,
            wire.CONNECTIONS: self._connections,
            wire.COUNTED: self._counted,
            wire.LOGGED: self._logged,
            wire.READY: self._ready,
            wire.CLOSED: self._all_closed,
        }

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def connections(self) -> int:
        """How many it has."""
        return sum(self.open.values())

    def post(self, *item: Any) -> None:
        """Tell it something."""
        self._link.post(*item)

    def hand(self, protocol: str, elsewhere: int, descriptor: int) -> None:
        """Hand it a connection, whose descriptor it closes; other front ends have `elsewhere` of that endpoint."""
        self._set_open(protocol, self.open.get(protocol, 0) + 1)
        self._handed[protocol] = self._handed.get(protocol, 0) + 1
        self._link.hand(protocol, elsewhere, descriptor=descriptor)

    def _connections(self, protocol: str, count: int, handed: int, refused: int) -> None:
        """It has so many connections of those that it had been handed, and has since refused so many more."""
        self._set_open(protocol, count + self._handed.get(protocol, 0) - handed)
        if refused:
            self._served.traffic[protocol].add_refused(refused)

    def _set_open(self, protocol: str, count: int) -> None:
        self._served.traffic[protocol].open += count - self.open.get(protocol, 0)
        self.open[protocol] = count

    def give_up(self) -> None:
        """Give up all that it has to do, as its process has ended or is to end."""
        self.is_ready = False
        for protocol in self.open:
            self._set_open(protocol, 0)
        if not self._closed.done():
            self._closed.set_result(False)
        with ExitStack() as rest:  # each is closed, whatever another one fails by
            rest.callback(self._calls.close)
            rest.callback(self._exchanges.close)
            rest.callback(self._inferences.close)
            rest.callback(self._link.close)

    async def close(self, grace_s: float) -> bool:
        """Have it close its connections, and end: whether each had got its answers."""
        self._link.post(wire.CLOSE, grace_s)
        return await self._closed

    def _counted(self, protocol: str, route: str, status: int) -> None:
        self._served.traffic[protocol].counts[route, status] += 1

    def _logged(self, values: tuple[Any, ...]) -> None:
        assert self._served.log is not None, "front ends log where the server does"
        self._served.log.add(Entry.restored(values))

    def _client_gone(self, number: int, status: int) -> None:
        if not (self._inferences.gone(number, status) or self._exchanges.gone(number)):
            self._calls.gone(number, status)

    def _taken(self, number: int, size: int) -> None:
        if not self._exchanges.taken(number, size):
            self._calls.taken(number, size)

    def _room(self) -> None:
        self._exchanges.room()
        self._calls.room()

    def _ready(self) -> None:
        self.is_ready = True
        self._on_ready()

    def _all_closed(self, answered: bool) -> None:
        if not self._closed.done():
            self._closed.set_result(answered)


class _Entrance(asyncio.Protocol):
    """What accepts a connection, to hand it over."""

    def __init__(self, hand: Callable[[str, int], None], protocol: str) -> None:
        self._hand = hand
        self._protocol = protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        descriptor = os.dup(transport.get_extra_info("socket").fileno())
        cast(
            "asyncio.Transport", transport
        ).abort()  # before a byte is read; it goes on under the other descriptor
        self._hand(self._protocol, descriptor)


def _print(data: bytes, error: bool) -> None:
    """What a front end prints, its log most of all, is printed here."""
    os.write(2 if error else 1, data)
