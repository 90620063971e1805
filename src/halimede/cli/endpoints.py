"""Which protocol is served where, as the options say."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from halimede.cli.check.access import metrics_address
from halimede.cli.check.tls import GRPC, HTTP, tls_files
from halimede.cli.options import ServeOptions
from halimede.cli.services import GRPC as GRPC_SERVICE
from halimede.cli.services import HTTP as HTTP_SERVICE
from halimede.cli.services import SAGEMAKER, VERTEX_AI, Services
from halimede.codec.sagemaker_media_type import json_length as sagemaker_json_length
from halimede.core.clock import Clock
from halimede.core.origins import OriginPolicy
from halimede.frontends.grpc.crowded import health_only, short_lived
from halimede.frontends.grpc.logged import LoggedCall
from halimede.frontends.grpc.transport.call import Call
from halimede.frontends.grpc.transport.connection import GrpcProtocol
from halimede.frontends.grpc.transport.limits import GrpcSettings
from halimede.frontends.http.answers import refuse_all_but_health
from halimede.frontends.http.logged import LoggedExchange
from halimede.frontends.http.routes import group_of, is_health
from halimede.frontends.http.settings import HttpLimits
from halimede.frontends.http.timed import TimedExchange
from halimede.frontends.http.transport.bearers import BearerCheck, GroupOf
from halimede.frontends.http.transport.exchange import Exchange, Handler, MakeExchange
from halimede.frontends.http.transport.protocol import HttpProtocol, RefusalBody, refusal_body
from halimede.frontends.http.transport.web_access import WebAccess
from halimede.frontends.metrics import Metrics
from halimede.frontends.openai.errors import refusal_body as openai_refusal_body
from halimede.frontends.openai.routes import group_of as openai_group_of
from halimede.frontends.request_log.log import EntryLog
from halimede.frontends.sagemaker.routes import group_of as sagemaker_group_of
from halimede.frontends.sagemaker.routes import is_health as is_sagemaker_health
from halimede.frontends.tokens import METRICS, TokenFileError, Tokens, parse_groups
from halimede.frontends.traffic import Counts, LocalTraffic, Traffic, new_counts
from halimede.frontends.vertex.content_type import DIALECT as VERTEX_DIALECT
from halimede.frontends.vertex.handler import group_of as vertex_group_of
from halimede.frontends.vertex.settings import VertexSettings, read_routes
from halimede.http1.head import Head, JsonLength, json_length
from halimede.net.connection_limit import ConnectionLimit
from halimede.net.receiving import ReceiveBudget
from halimede.net.server import Connections, Endpoint, ListenError
from halimede.net.tls.certificates import CertificateError
from halimede.net.tls.identity import Identity

_NAMES = {HTTP: "HTTP", GRPC: "gRPC"}


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the endpoints have in common.

    Attributes:
        options: what the flags say.
        services: what answers clients.
        clock: the time that connections go by.
        requests: hears of each request; None for no such log.
        access: which requests over HTTP are refused for the names that they give.
        budget: the memory of unfinished bodies.
        traffic: takes the connections and the counts of each endpoint, for the metrics.
        new_counts: makes what counts the requests of a protocol.
        http_identity: with what HTTP is encrypted; None for not at all.
        tokens: by which clients show who they are; None if they need not.
    """

    options: ServeOptions
    services: Services
    clock: Clock
    requests: EntryLog | None
    access: WebAccess
    budget: ReceiveBudget
    traffic: list[Traffic]
    new_counts: Callable[[str], Counts]
    http_identity: Identity | None
    tokens: Tokens | None

    def bearers(self, connections: Connections[HttpProtocol], group_of: GroupOf) -> BearerCheck | None:
        """Which requests of these connections need a token, by the groups of their calls."""
        if self.tokens is None:
            return None
        self.tokens.admits(connections)
        return BearerCheck(self.tokens, group_of)

    def http(
        self,
        protocol: str,
        name: str,
        place: tuple[str, str, int],
        *,
        front_end: str,
        service: str,
        group_of: GroupOf,
        is_health: Callable[[str], bool],
        json_length: JsonLength = json_length,
        refusal_body: RefusalBody = refusal_body,
    ) -> Endpoint:
        """A front end over HTTP.

        Args:
            protocol: what metrics call it.
            name: what the log calls its listener.
            place: the flag of its port, its address and its port.
            front_end: what the log of requests calls it.
            service: what an error of the start calls it.
            group_of: the groups of its calls.
            is_health: whether a path is that of a health check.
            json_length: where binary tensors begin in a body.
            refusal_body: the JSON that tells why a request is refused.
        """
        connections: Connections[HttpProtocol] = Connections()
        handler = self.services.handlers[protocol]
        counts = self.new_counts(protocol)

        def make(connections: Connections[HttpProtocol], handler: Handler) -> HttpProtocol:
            return HttpProtocol(
                handler,
                limits,
                connections,
                json_length,
                access=self.access,
                budget=self.budget,
                counts=counts,
                make_exchange=make_exchange,
                bearers=bearers,
                refusal_body=refusal_body,
            )

        limits = HttpLimits(json_bytes=self.options.http_max_input_size)
        make_exchange = exchange_maker(self.options, self.requests, front_end)
        bearers = self.bearers(connections, group_of)
        usual = partial(make, connections, handler)
        most = self.options.http_max_connections
        limit = ConnectionLimit(
            most,
            connections,
            usual,
            lambda turned_away, error: make(turned_away, refuse_all_but_health(handler, is_health, error)),
        )
        self.traffic.append(LocalTraffic(protocol, connections, counts, limit if most else None))
        flag, address, port = place
        return Endpoint(
            name,
            flag,
            address,
            port,
            limit,
            connections,
            service=service,
            protocol=protocol,
            tokens=self.tokens,
        )


def exchange_maker(options: ServeOptions, requests: EntryLog | None, front_end: str) -> MakeExchange:
    """What makes the exchanges of a front end.

    Args:
        options: what the flags say.
        requests: hears of each request; None for no such log.
        front_end: what the log calls it.
    """
    if options.http_server_timing:
        return partial(TimedExchange, requests, front_end)
    return Exchange if requests is None else partial(LoggedExchange, requests, front_end)


def endpoints(
    options: ServeOptions,
    services: Services,
    clock: Clock,
    requests: EntryLog | None,
    traffic: list[Traffic],
    counts: Callable[[str], Counts] = lambda _: new_counts(),
) -> Iterator[Endpoint]:
    """Every endpoint to open, in tritonserver's order.

    Args:
        options: what the flags say.
        services: what answers clients.
        clock: the time that connections go by.
        requests: hears of each request; None for no such log.
        traffic: takes the connections and the counts of each endpoint.
        counts: makes what counts the requests of a protocol.

    Raises:
        ListenError: a certificate or key cannot be used.
    """
    access = WebAccess(OriginPolicy(options.allow_host, options.allow_origin))
    budget = services.budget
    identity = _identity(options, HTTP, "http/1.1")
    shared = _Shared(
        options, services, clock, requests, access, budget, traffic, counts, identity, _tokens(options)
    )
    if options.allow_grpc:
        yield _grpc(shared)
    if options.allow_http:
        yield _http(shared)
    if options.allow_sagemaker:
        yield _sagemaker(shared)
    if options.allow_vertex_ai:
        yield _vertex_ai(shared)
    if services.metrics is not None:
        yield _metrics_endpoint(shared, services.metrics)


def _identity(
    options: ServeOptions, protocol: str, spoken: str, *, required: bool = False
) -> Identity | None:
    """With what a protocol is encrypted, None for not at all; `spoken` is its name in ALPN."""
    files = tls_files(options, protocol)
    if files is None:
        return None
    try:
        return Identity(files, spoken, required=required, name=f"TLS of {_NAMES[protocol]}")
    except CertificateError as error:
        raise ListenError(str(error)) from error


def _tokens(options: ServeOptions) -> Tokens | None:
    if not options.token_file:
        return None
    try:
        return Tokens(Path(options.token_file), parse_groups(options.token_apis))
    except TokenFileError as error:
        raise ListenError(f"--token-file: {error}") from None


def _grpc(shared: _Shared) -> Endpoint:
    options, clock, requests = shared.options, shared.clock, shared.requests
    served = shared.services.methods
    limits = GrpcSettings(
        keepalive_time_ms=options.grpc_keepalive_time,
        keepalive_timeout_ms=options.grpc_keepalive_timeout,
        keepalive_permit_without_calls=options.grpc_keepalive_permit_without_calls,
        max_pings_without_data=options.grpc_http2_max_pings_without_data,
        min_ping_interval_ms=options.grpc_http2_min_recv_ping_interval_without_data,
        max_ping_strikes=options.grpc_http2_max_ping_strikes,
        max_connection_age_ms=options.grpc_max_connection_age,
        max_connection_age_grace_ms=options.grpc_max_connection_age_grace,
        budget=shared.budget,
    )
    connections: Connections[GrpcProtocol] = Connections()
    counts = shared.new_counts(GRPC_SERVICE)
    authorize = None
    if shared.tokens is not None:
        shared.tokens.admits(connections)
        authorize = shared.tokens.refusal
    make_call = Call if requests is None else partial(LoggedCall, requests)
    make = partial(GrpcProtocol, served, limits, clock, connections, counts, make_call, authorize)
    most, short = options.grpc_max_connections, short_lived(limits)
    limit = ConnectionLimit(
        most,
        connections,
        make,
        lambda turned_away, error: GrpcProtocol(
            health_only(served, error), short, clock, turned_away, counts, make_call, authorize
        ),
    )
    shared.traffic.append(LocalTraffic(GRPC_SERVICE, connections, counts, limit if most else None))
    return Endpoint(
        "GRPCInferenceService",
        "--grpc-port",
        options.grpc_address,
        options.grpc_port,
        limit,
        connections,
        options.reuse_grpc_port,
        _identity(options, GRPC, "h2", required=True),
        says_goodbye=True,
        service="GRPC",
        protocol=GRPC_SERVICE,
        tokens=shared.tokens,
    )


def _http(shared: _Shared) -> Endpoint:
    options = shared.options
    endpoint = shared.http(
        HTTP_SERVICE,
        "HTTPService",
        ("--http-port", options.http_address, options.http_port),
        front_end="HTTP",
        service="HTTP",
        group_of=_openai_or_http_group if options.allow_openai else lambda head: group_of(head.path),
        is_health=is_health,
        refusal_body=openai_refusal_body if options.allow_openai else refusal_body,
    )
    return replace(endpoint, reuse_port=options.reuse_http_port, tls=shared.http_identity)


def _openai_or_http_group(head: Head) -> str:
    return openai_group_of(head.path) or group_of(head.path)


def _vertex_ai(shared: _Shared) -> Endpoint:
    options = shared.options
    settings = VertexSettings(*read_routes(os.environ), options.vertex_ai_default_model)
    return shared.http(
        VERTEX_AI,
        "Vertex AI HTTPService",
        ("--vertex-ai-port", options.vertex_ai_address, options.vertex_ai_port),
        front_end="Vertex AI",
        service="Vertex AI",
        group_of=partial(vertex_group_of, settings),
        is_health=lambda path: path == settings.health_route,
        json_length=VERTEX_DIALECT.json_length,
    )


def _sagemaker(shared: _Shared) -> Endpoint:
    options = shared.options
    endpoint = shared.http(
        SAGEMAKER,
        "Sagemaker HTTPService",
        ("--sagemaker-port", options.sagemaker_address, options.sagemaker_port),
        front_end="SageMaker",
        service="Sagemaker",
        group_of=lambda head: sagemaker_group_of(head.path, head.method),
        is_health=is_sagemaker_health,
        json_length=sagemaker_json_length,
    )
    return replace(endpoint, unix_socket=options.sagemaker_unix_socket)


def _metrics_endpoint(shared: _Shared, metrics: Metrics) -> Endpoint:
    options = shared.options
    connections: Connections[HttpProtocol] = Connections()
    bearers = shared.bearers(connections, lambda _head: METRICS)

    def make(connections: Connections[HttpProtocol]) -> HttpProtocol:
        return HttpProtocol(
            metrics.answer,
            HttpLimits(json_bytes=options.http_max_input_size),
            connections,
            access=shared.access,
            budget=shared.budget,
            bearers=bearers,
        )

    return Endpoint(
        "Metrics Service",
        "--metrics-port",
        metrics_address(options),
        options.metrics_port,
        # metrics show why others are refused, so they are answered as health checks are
        ConnectionLimit(
            0, connections, partial(make, connections), lambda turned_away, _error: make(turned_away)
        ),
        connections,
        tls=shared.http_identity if options.metrics_use_ssl else None,
        service="Metrics",
        tokens=shared.tokens,
    )
