"""Front ends of a server, as the engine's process starts them."""

import asyncio
import pickle
from collections.abc import Iterable, Iterator
from dataclasses import astuple, replace

from halimede.cli.endpoints import exchange_maker
from halimede.cli.front_end import MAIN, Inherited
from halimede.cli.options import ServeOptions
from halimede.cli.services import GRPC, HTTP, SAGEMAKER, VERTEX_AI, Services
from halimede.engine.engine import Engine
from halimede.frontends.log_settings import LogControl, LogSettings
from halimede.frontends.relay import wire
from halimede.frontends.relay.exchanges import Service
from halimede.frontends.relay.front_ends import FrontEnds, Served
from halimede.frontends.relay.inferences import Told
from halimede.frontends.relay.traffic import RelayedTraffic
from halimede.frontends.request_log.log import RequestLog
from halimede.frontends.traffic import Traffic
from halimede.net.server import Connections, Endpoint

_FRONT_ENDS = {HTTP: "HTTP", SAGEMAKER: "SageMaker", VERTEX_AI: "Vertex AI"}
"""Protocol → what the log of requests calls it."""


def make_front_ends(
    options: ServeOptions,
    engine: Engine,
    services: Services,
    log: LogControl,
    requests: RequestLog | None,
    traffic: list[Traffic],
) -> FrontEnds:
    """The front ends that the options ask for, not started yet.

    Args:
        options: what the flags say.
        engine: what is served.
        services: what answers clients.
        log: the settings of the log, which front ends follow.
        requests: hears of each request; None for no such log.
        traffic: takes what passes through the endpoints.
    """
    http_limited, grpc_limited = options.http_max_connections > 0, options.grpc_max_connections > 0
    passing = {
        protocol: RelayedTraffic(protocol, limited=grpc_limited if protocol == GRPC else http_limited)
        for protocol in (GRPC, *services.handlers)
    }
    traffic.extend(each for each in passing.values() if each.protocol != GRPC or services.methods)
    served = Served(
        {
            protocol: Service(
                handler, exchange_maker(options, requests, _FRONT_ENDS[protocol]), passing[protocol]
            )
            for protocol, handler in services.handlers.items()
        },
        services.methods,
        requests,
        requests is not None or options.http_server_timing,
        passing,
        Told(engine),
    )
    inherited = pickle.dumps(Inherited(options, log.settings))
    loop = asyncio.get_running_loop()
    front_ends = FrontEnds(loop, options.front_ends, MAIN, {"inherited": inherited}, served)

    def tell(settings: LogSettings) -> None:
        front_ends.tell(wire.LOG, *astuple(settings)[:-1])  # but for the file, which stays

    log.on_change = tell
    return front_ends


def relayed(endpoints: Iterable[Endpoint], front_ends: FrontEnds) -> Iterator[Endpoint]:
    """The endpoints, with the connections of those that front ends serve."""
    for endpoint in endpoints:
        if not endpoint.protocol:
            yield endpoint
            continue
        yield replace(
            endpoint,
            factory=front_ends.entrance(endpoint.protocol),
            connections=Connections(),
            tls=None,
            tokens=None,
        )
