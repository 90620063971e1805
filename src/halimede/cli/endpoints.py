"""Which protocol is served where, as the options say."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from halimede.cli.check.access import metrics_address
from halimede.cli.check.checks import (
    metrics_switches,
    receive_memory_budget,
    summary_quantiles,
)
from halimede.cli.check.tls import GRPC, HTTP, tls_files
from halimede.cli.options import ServeOptions
from halimede.core.errors import InvalidArgumentError
from halimede.core.origins import OriginPolicy
from halimede.core.uploads import CodeUpload
from halimede.engine.engine import Engine
from halimede.frontends.connection_limit import ConnectionLimit, too_many
from halimede.frontends.gpu_gauges import open_gpu_gauges
from halimede.frontends.grpc.crowded import health_only, short_lived
from halimede.frontends.grpc.logged import LoggedCall
from halimede.frontends.grpc.service import ServiceSettings, methods
from halimede.frontends.grpc.transport.call import Call
from halimede.frontends.grpc.transport.connection import GrpcProtocol
from halimede.frontends.grpc.transport.limits import GrpcSettings
from halimede.frontends.http.answers import refuse_all_but_health
from halimede.frontends.http.handler import create_handler
from halimede.frontends.http.logged import LoggedExchange
from halimede.frontends.http.routes import group_of, is_health
from halimede.frontends.http.settings import HttpLimits, HttpSettings
from halimede.frontends.http.timed import TimedExchange
from halimede.frontends.http.transport.bearers import BearerCheck, GroupOf
from halimede.frontends.http.transport.exchange import Exchange, Handler, MakeExchange
from halimede.frontends.http.transport.head import JsonLength, json_length
from halimede.frontends.http.transport.protocol import HttpProtocol
from halimede.frontends.http.transport.web_access import WebAccess
from halimede.frontends.log_settings import LogControl
from halimede.frontends.metrics import Metrics, MetricsSettings
from halimede.frontends.receiving import ReceiveBudget
from halimede.frontends.request_log.log import RequestLog
from halimede.frontends.restrictions import GRPC_HEADER_PREFIX, compile_forward_pattern, parse_restrictions
from halimede.frontends.sagemaker.content_type import json_length as sagemaker_json_length
from halimede.frontends.sagemaker.handler import create_handler as create_sagemaker_handler
from halimede.frontends.sagemaker.routes import group_of as sagemaker_group_of
from halimede.frontends.sagemaker.routes import is_health as is_sagemaker_health
from halimede.frontends.sagemaker.settings import (
    DEFAULT_MODEL,
    INFERENCE_TYPE,
    PING_MODE,
    InferenceType,
    PingMode,
    SagemakerSettings,
)
from halimede.frontends.server import Connections, Endpoint, ListenError
from halimede.frontends.shared_memory.registry import Regions
from halimede.frontends.tls.certificates import CertificateError
from halimede.frontends.tls.identity import Identity
from halimede.frontends.tokens import METRICS, TokenFileError, Tokens, parse_groups
from halimede.frontends.traffic import Traffic, new_counts
from halimede.frontends.vertex.content_type import DIALECT as VERTEX_DIALECT
from halimede.frontends.vertex.handler import create_handler as create_vertex_handler
from halimede.frontends.vertex.handler import group_of as vertex_group_of
from halimede.frontends.vertex.settings import VertexSettings, read_routes

_NAMES = {HTTP: "HTTP", GRPC: "gRPC"}
_ZLIB_LEVELS = {"none": 0, "low": 1, "medium": 6, "high": 9}


@dataclass(frozen=True, slots=True)
class _Shared:
    """What the endpoints have in common.

    Attributes:
        options: what the flags say.
        engine: what is served.
        log: what clients change of the log.
        requests: hears of each request; None for no such log.
        access: which requests over HTTP are refused for the names that they give.
        budget: the memory of unfinished bodies.
        traffic: the connections and the counts of each endpoint, for the metrics.
        http_identity: with what HTTP is encrypted; None for not at all.
        tokens: by which clients show who they are; None if they need not.
        regions: clients' shared memory.
    """

    options: ServeOptions
    engine: Engine
    log: LogControl
    requests: RequestLog | None
    access: WebAccess
    budget: ReceiveBudget
    traffic: list[Traffic]
    http_identity: Identity | None
    tokens: Tokens | None
    regions: Regions

    def bearers(self, connections: Connections[HttpProtocol], group_of: GroupOf) -> BearerCheck | None:
        """Which requests of these connections need a token, by the groups of their calls."""
        if self.tokens is None:
            return None
        self.tokens.admits(connections)
        return BearerCheck(self.tokens, group_of)

    def http(
        self,
        name: str,
        place: tuple[str, str, int],
        handler: Handler,
        *,
        front_end: str,
        service: str,
        group_of: GroupOf,
        is_health: Callable[[str], bool],
        json_length: JsonLength = json_length,
    ) -> Endpoint:
        """A front end over HTTP.

        Args:
            name: what the log calls its listener.
            place: the flag of its port, its address and its port.
            handler: what answers its requests.
            front_end: what the log of requests calls it; the metrics call it so in lower case.
            service: what an error of the start calls it.
            group_of: the groups of its calls.
            is_health: whether a path is that of a health check.
            json_length: where binary tensors begin in a body.
        """
        connections: Connections[HttpProtocol] = Connections()
        counts = new_counts()

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
            )

        limits = HttpLimits(json_bytes=self.options.http_max_input_size)
        make_exchange = self._make_exchange(front_end)
        bearers = self.bearers(connections, group_of)
        usual = partial(make, connections, handler)
        limit = None
        if most := self.options.http_max_connections:
            refuse = refuse_all_but_health(handler, is_health, too_many(most))
            limit = ConnectionLimit(most, connections, usual, partial(make, handler=refuse))
        self.traffic.append(Traffic(front_end.lower().replace(" ", "_"), connections, counts, limit))
        flag, address, port = place
        return Endpoint(
            name, flag, address, port, limit or usual, connections, service=service, tokens=self.tokens
        )

    def _make_exchange(self, front_end: str) -> MakeExchange:
        if self.options.http_server_timing:
            return partial(TimedExchange, self.requests, front_end)
        return Exchange if self.requests is None else partial(LoggedExchange, self.requests, front_end)


def endpoints(
    options: ServeOptions, engine: Engine, log: LogControl, requests: RequestLog | None = None
) -> Iterator[Endpoint]:
    """Every endpoint to open, in tritonserver's order.

    Args:
        options: what the flags say.
        engine: what is served.
        log: what clients change of the log.
        requests: hears of each request; None for no such log.

    Raises:
        ListenError: a certificate or key cannot be used.
        InvalidArgumentError: a restriction, a pattern or a variable of SageMaker's is malformed.
    """
    access = WebAccess(OriginPolicy(options.allow_host, options.allow_origin))
    budget = ReceiveBudget(receive_memory_budget(options.receive_memory_budget))
    identity = _identity(options, HTTP, "http/1.1")
    regions = Regions(allowed=options.allow_client_shm)
    shared = _Shared(options, engine, log, requests, access, budget, [], identity, _tokens(options), regions)
    if options.allow_grpc:
        yield _grpc(shared)
    if options.allow_http:
        yield _http(shared)
    if options.allow_sagemaker:
        yield _sagemaker(shared)
    metrics = _metrics(shared) if options.allow_metrics else None
    if options.allow_vertex_ai:
        yield _vertex_ai(shared, metrics)
    if metrics is not None:
        yield _metrics_endpoint(shared, metrics)


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
    options, engine, requests = shared.options, shared.engine, shared.requests
    served = methods(
        engine,
        ServiceSettings(
            server_id=options.id,
            restrictions=parse_restrictions(options.grpc_restricted_protocol, "protocol", GRPC_HEADER_PREFIX),
            forward_pattern=compile_forward_pattern(options.grpc_header_forward_pattern),
            compression=_ZLIB_LEVELS[options.grpc_infer_response_compression_level],
            log=shared.log,
            code_upload=CodeUpload(options.allow_model_code_upload),
            request_log=requests,
            regions=shared.regions,
        ),
    )
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
    counts = new_counts()
    authorize = None
    if shared.tokens is not None:
        shared.tokens.admits(connections)
        authorize = shared.tokens.refusal
    make_call = Call if requests is None else partial(LoggedCall, requests)
    make = partial(GrpcProtocol, served, limits, engine.clock, connections, counts, make_call, authorize)
    limit = None
    if most := options.grpc_max_connections:
        refused, short = health_only(served, too_many(most)), short_lived(limits)
        limit = ConnectionLimit(
            most,
            connections,
            make,
            lambda turned_away: GrpcProtocol(
                refused, short, engine.clock, turned_away, counts, make_call, authorize
            ),
        )
    shared.traffic.append(Traffic("grpc", connections, counts, limit))
    return Endpoint(
        "GRPCInferenceService",
        "--grpc-port",
        options.grpc_address,
        options.grpc_port,
        limit or make,
        connections,
        options.reuse_grpc_port,
        _identity(options, GRPC, "h2", required=True),
        says_goodbye=True,
        service="GRPC",
        tokens=shared.tokens,
    )


def _http(shared: _Shared) -> Endpoint:
    options = shared.options
    endpoint = shared.http(
        "HTTPService",
        ("--http-port", options.http_address, options.http_port),
        create_handler(shared.engine, _http_settings(shared)),
        front_end="HTTP",
        service="HTTP",
        group_of=lambda head: group_of(head.path),
        is_health=is_health,
    )
    return replace(endpoint, reuse_port=options.reuse_http_port, tls=shared.http_identity)


def _http_settings(shared: _Shared) -> HttpSettings:
    options = shared.options
    return HttpSettings(
        server_id=options.id,
        max_input_size=options.http_max_input_size,
        restrictions=parse_restrictions(options.http_restricted_api),
        forward_pattern=compile_forward_pattern(options.http_header_forward_pattern),
        log=shared.log,
        code_upload=CodeUpload(options.allow_model_code_upload),
        regions=shared.regions,
    )


def _vertex_ai(shared: _Shared, metrics: Metrics | None) -> Endpoint:
    options, engine = shared.options, shared.engine
    predict_route, health_route = read_routes(os.environ)
    settings = VertexSettings(predict_route, health_route, options.vertex_ai_default_model)
    handler = create_vertex_handler(
        engine,
        settings,
        create_handler(engine, _http_settings(shared), VERTEX_DIALECT),
        None if metrics is None else metrics.answer,
    )
    return shared.http(
        "Vertex AI HTTPService",
        ("--vertex-ai-port", options.vertex_ai_address, options.vertex_ai_port),
        handler,
        front_end="Vertex AI",
        service="Vertex AI",
        group_of=partial(vertex_group_of, settings),
        is_health=lambda path: path == settings.health_route,
        json_length=VERTEX_DIALECT.json_length,
    )


def _sagemaker(shared: _Shared) -> Endpoint:
    options, engine = shared.options, shared.engine
    handler = create_sagemaker_handler(
        engine,
        SagemakerSettings(
            default_model=os.environ.get(DEFAULT_MODEL, ""),
            inference_type=_inference_type(os.environ.get(INFERENCE_TYPE, "")),
            ping_mode=PingMode.LIVE if os.environ.get(PING_MODE) == "live" else PingMode.READY,
            max_input_size=options.http_max_input_size,
            restrictions=parse_restrictions(options.http_restricted_api),
            forward_pattern=compile_forward_pattern(options.http_header_forward_pattern),
            regions=shared.regions,
        ),
    )
    endpoint = shared.http(
        "Sagemaker HTTPService",
        ("--sagemaker-port", options.sagemaker_address, options.sagemaker_port),
        handler,
        front_end="SageMaker",
        service="Sagemaker",
        group_of=lambda head: sagemaker_group_of(head.path, head.method),
        is_health=is_sagemaker_health,
        json_length=sagemaker_json_length,
    )
    return replace(endpoint, unix_socket=options.sagemaker_unix_socket)


def _inference_type(text: str) -> InferenceType:
    """What ``/invocations`` does, infer unless the environment says otherwise."""
    try:
        return InferenceType(text or "infer")
    except ValueError:
        known = ", ".join(each.value for each in InferenceType)
        msg = f"{INFERENCE_TYPE} is '{text}'; it must be one of {known}"
        raise InvalidArgumentError(msg) from None


def _metrics(shared: _Shared) -> Metrics:
    options, engine = shared.options, shared.engine
    switches = metrics_switches(options.metrics_config)
    return Metrics(
        engine,
        MetricsSettings(
            cpu=options.allow_cpu_metrics,
            counter_latencies=switches["counter_latencies"],
            histogram_latencies=switches["histogram_latencies"],
            summary_quantiles=summary_quantiles(options.metrics_config)
            if switches["summary_latencies"]
            else None,
            interval_ms=options.metrics_interval_ms,
            pinned_memory_bytes=options.pinned_memory_pool_byte_size,
        ),
        # as tritonserver, which measures twice an interval
        open_gpu_gauges(max(1, options.metrics_interval_ms // 2)) if options.allow_gpu_metrics else None,
        shared.traffic,
    )


def _metrics_endpoint(shared: _Shared, metrics: Metrics) -> Endpoint:
    options = shared.options
    connections: Connections[HttpProtocol] = Connections()
    return Endpoint(
        "Metrics Service",
        "--metrics-port",
        metrics_address(options),
        options.metrics_port,
        partial(
            HttpProtocol,
            metrics.answer,
            HttpLimits(json_bytes=options.http_max_input_size),
            connections,
            access=shared.access,
            budget=shared.budget,
            bearers=shared.bearers(connections, lambda _head: METRICS),
        ),
        connections,
        tls=shared.http_identity if options.metrics_use_ssl else None,
        service="Metrics",
        tokens=shared.tokens,
    )
