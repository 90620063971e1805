"""A front-end process: serves the connections that it is handed, and asks the engine's process for the answers."""

import asyncio
import os
import pickle
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, Never

from halimede.cli import logs, tuning
from halimede.cli.check.checks import receive_memory_share
from halimede.cli.endpoints import endpoints
from halimede.cli.options import ServeOptions
from halimede.cli.services import HTTP as HTTP_SERVICE
from halimede.cli.services import SAGEMAKER, VERTEX_AI, Services
from halimede.core.buffers import POOL
from halimede.core.clock import MILLISECOND, LoopClock
from halimede.core.errors import UnavailableError
from halimede.core.tasks import Tasks
from halimede.frontends.grpc.transport.call import Method, UnaryMethod
from halimede.frontends.http.inference import Inference
from halimede.frontends.http.transport.exchange import Handler
from halimede.frontends.log_settings import LogControl, LogSettings
from halimede.frontends.relay import wire
from halimede.frontends.relay.clients import MethodRow, Relay
from halimede.frontends.relay.link import Link
from halimede.frontends.relay.readers import INFER_PATH, GrpcReader, HttpReader
from halimede.frontends.relay.remote_models import NotHereError, RemoteModels
from halimede.frontends.request_log.entry import Entry
from halimede.frontends.restrictions import GRPC_HEADER_PREFIX, compile_forward_pattern, parse_restrictions
from halimede.frontends.shared_memory.registry import Place
from halimede.frontends.traffic import Counts, Traffic
from halimede.net.receiving import ReceiveBudget
from halimede.net.server import Endpoint, Server

MAIN: Final = "halimede.cli.front_end:run"
"""What a front end's process runs."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a front end is told when it starts.

    Attributes:
        options: what the flags say.
        log: the settings of the log.
    """

    options: ServeOptions
    log: LogSettings


def run(work: socket.socket, _control: socket.socket, settings: dict[str, Any]) -> None:
    """What the process does, until the engine's process has it end or is gone.

    Args:
        work: leads to the engine's process.
        settings: `methods`, the rows of the methods of gRPC, and `inherited`, a pickled `Inherited`.
    """
    import uvloop

    sys.path[:1] = [entry for entry in sys.path[:1] if entry]  # what lies where the server was started
    inherited: Inherited = pickle.loads(settings["inherited"])  # noqa: S301 - from the engine's process
    log = logs.configure(inherited.log)
    tuning.keep_freed_memory()
    POOL.number_by_process()  # the engine's process passes them on to workers
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        front_end = runner.run(_serve(work, settings["methods"], inherited.options, log))
    os._exit(0 if front_end else 1)


async def _serve(
    work: socket.socket, rows: Iterable[MethodRow], options: ServeOptions, log: LogControl
) -> bool:
    front_end = _FrontEnd(work, rows, options, log)
    tuning.tune_garbage_collector()
    return await front_end.closed


class _FrontEnd:
    """The front end of this process."""

    def __init__(
        self,
        work: socket.socket,
        rows: Iterable[MethodRow],
        options: ServeOptions,
        log: LogControl,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[bool] = loop.create_future()
        self._loop = loop
        self._log = log
        self._server = Server()
        self._tasks = Tasks()
        self._handed: dict[str, int] = {}
        self._refused: dict[str, int] = {}
        self._reports: set[str] = set()
        handlers: dict[int, Callable[..., None]] = {}
        self._link = Link(loop, work, handlers, self._lost)
        clock = LoopClock(loop)
        numbers = count(1)
        self._relay = Relay(self._link, numbers)
        self._models = RemoteModels(self._link, clock, numbers)
        handlers |= self._relay.handlers()
        handlers |= self._models.handlers()
        handlers |= {
            wire.LOG: self._change_log,
            wire.LEAVE: self._server.leave,
            wire.GOODBYE: self._server.stop_accepting,
            wire.CLOSE: self._close,
        }
        least_ns = options.slow_request_ms * MILLISECOND if options.access_log == "none" else 0
        requests = _PostedLog(self._link, least_ns) if _is_logged(options) else None
        services = self._services(options, rows)
        traffic: list[Traffic] = []
        self._endpoints: dict[str, Endpoint] = {}
        self._factories: dict[str, Callable[[], asyncio.BaseProtocol]] = {}
        for endpoint in endpoints(options, services, clock, requests, traffic, self._counts):
            self._endpoints[endpoint.protocol] = endpoint
            self._factories[endpoint.protocol] = self._server.attach(endpoint)
            endpoint.connections.on_change = lambda protocol=endpoint.protocol: self._changed(protocol)
        self._traffic = {each.protocol: each for each in traffic}
        self._link.on_connection = self._take
        self._link.post(wire.READY)

    def _services(self, options: ServeOptions, rows: Iterable[MethodRow]) -> Services:
        """What answers clients here."""
        handlers = {name: self._relay.http(name) for name in (HTTP_SERVICE, SAGEMAKER, VERTEX_AI)}
        methods = self._relay.methods(rows)
        self._read_here(options, handlers, methods)
        return Services(handlers, methods, None, ReceiveBudget(receive_memory_share(options)))

    def _read_here(
        self, options: ServeOptions, handlers: dict[str, Handler], methods: dict[str, Method]
    ) -> None:
        """Have requests for inference read here."""
        logged = _is_logged(options) or options.http_server_timing
        engine: Any = self._models
        regions: Any = _NoRegions()
        decoders: Any = _NoDecoders()
        if "inference" not in parse_restrictions(options.http_restricted_api):
            pattern = compile_forward_pattern(options.http_header_forward_pattern)
            inference = Inference(
                engine,
                options.http_max_input_size,
                options.http_max_output_size,
                pattern,
                regions,
                decoders,
            )
            handlers[HTTP_SERVICE] = HttpReader(
                self._models,
                inference,
                options.http_max_input_size,
                pattern,
                handlers[HTTP_SERVICE],
                HTTP_SERVICE,
                logged=logged,
            )
        restricted = parse_restrictions(options.grpc_restricted_protocol, "protocol", GRPC_HEADER_PREFIX)
        method = methods.get(INFER_PATH)
        if isinstance(method, UnaryMethod) and "inference" not in restricted:
            pattern = compile_forward_pattern(options.grpc_header_forward_pattern)
            methods[INFER_PATH] = replace(
                method, handler=GrpcReader(self._models, pattern, regions, decoders, method, logged=logged)
            )

    # connections

    def _take(self, protocol: str, elsewhere: int, descriptor: int = -1) -> None:
        """A connection was handed over; other front ends have `elsewhere` of its endpoint."""
        self._handed[protocol] = self._handed.get(protocol, 0) + 1
        if descriptor < 0:  # there are too many open files, and the client sees its connection closed
            self._changed(protocol)
            return
        self._endpoints[protocol].connections.elsewhere = elsewhere
        opening = self._open(protocol, socket.socket(fileno=descriptor))
        self._tasks.start("taking a connection over", opening)

    async def _open(self, protocol: str, connection: socket.socket) -> None:
        try:
            connection.setblocking(False)
            await self._loop.connect_accepted_socket(self._factories[protocol], connection)
        except OSError:  # the client has gone
            connection.close()
            self._changed(protocol)

    def _changed(self, protocol: str) -> None:
        """A connection has come or gone: say so, once in a turn of the loop."""
        if not self._reports:
            self._loop.call_soon(self._report)
        self._reports.add(protocol)

    def _report(self) -> None:
        reports, self._reports = self._reports, set()
        for protocol in reports:
            refused = self._traffic[protocol].refused or 0
            more, self._refused[protocol] = refused - self._refused.get(protocol, 0), refused
            count = len(self._endpoints[protocol].connections)
            self._link.post(wire.CONNECTIONS, protocol, count, self._handed.get(protocol, 0), more)

    def _counts(self, protocol: str) -> Counts:
        return _PostedCounts(self._link, protocol)

    # what the engine's process says

    def _change_log(self, info: bool, warning: bool, error: bool, verbose: int, form: str) -> None:
        self._log.put(
            replace(self._log.settings, info=info, warning=warning, error=error, verbose=verbose, format=form)
        )

    def _close(self, grace_s: float) -> None:
        self._tasks.start("closing connections", self._close_all(grace_s))

    async def _close_all(self, grace_s: float) -> None:
        answered = False
        try:
            answered = await self._server.close(grace_s)
            self._link.post(wire.CLOSED, answered)
            self._link.close()
        finally:
            self._end(answered)

    def _lost(self) -> None:
        """The engine's process is gone."""
        self._models.give_up(UnavailableError("the server has ended"))
        self._relay.give_up()
        self._end(False)

    def _end(self, answered: bool) -> None:
        if not self.closed.done():
            self.closed.set_result(answered)


class _NoRegions:
    """In place of clients' shared memory, which only the engine's process has."""

    state: Final = None

    def piece(self, _place: Place) -> Never:
        """Leave the request to it."""
        raise NotHereError


class _NoDecoders:
    """In place of processes that decode large requests, which only the engine's process has."""

    @property
    def budget(self) -> Never:
        """Leave the request to it."""
        raise NotHereError

    def decode(self, *_: object) -> Never:
        """Leave the request to it."""
        raise NotHereError


class _PostedCounts(Counts):
    """Counts requests in the engine's process."""

    def __init__(self, link: Link, protocol: str) -> None:
        super().__init__(int)
        self._link = link
        self._protocol = protocol

    def __missing__(self, key: tuple[str, int]) -> int:
        return 0

    def __setitem__(self, key: tuple[str, int], value: int) -> None:
        self._link.post(wire.COUNTED, self._protocol, *key)


class _PostedLog:
    """Has the engine's process log requests that took at least so long."""

    def __init__(self, link: Link, least_ns: int) -> None:
        self._link = link
        self._least_ns = least_ns

    def add(self, entry: Entry) -> None:
        """Log a request that was answered here."""
        if entry.total_ns >= self._least_ns:
            self._link.post(wire.LOGGED, entry.values())


def _is_logged(options: ServeOptions) -> bool:
    return options.access_log != "none" or options.slow_request_ms > 0
