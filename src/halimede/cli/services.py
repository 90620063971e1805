"""What answers clients, as the options say: the calls of each protocol, without its connections."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from halimede.cli.check.checks import metrics_switches, receive_memory_share, summary_quantiles
from halimede.cli.options import ServeOptions
from halimede.cli.settings import BOOL
from halimede.core.errors import InvalidArgumentError
from halimede.core.uploads import CodeUpload
from halimede.engine.engine import Engine
from halimede.frontends.console.console import Console, ConsoleSettings
from halimede.frontends.decoders import Decoders
from halimede.frontends.gpu_gauges import open_gpu_gauges
from halimede.frontends.grpc.service import ServiceSettings
from halimede.frontends.grpc.service import methods as grpc_methods
from halimede.frontends.grpc.transport.call import Method
from halimede.frontends.http.handler import create_handler
from halimede.frontends.http.settings import HttpSettings
from halimede.frontends.http.transport.exchange import Handler
from halimede.frontends.log_settings import LogControl
from halimede.frontends.metrics import Metrics, MetricsSettings
from halimede.frontends.openai.handler import create_handler as create_openai_handler
from halimede.frontends.openai.openapi import paths as openai_paths
from halimede.frontends.openai.settings import OpenaiSettings
from halimede.frontends.request_log.log import RequestLog
from halimede.frontends.restrictions import GRPC_HEADER_PREFIX, compile_forward_pattern, parse_restrictions
from halimede.frontends.sagemaker.handler import create_handler as create_sagemaker_handler
from halimede.frontends.sagemaker.settings import (
    DEFAULT_MODEL,
    INFERENCE_TYPE,
    OUTPUT_FORMATTER,
    PING_MODE,
    TGI_COMPAT,
    InferenceType,
    PingMode,
    SagemakerSettings,
    TextFormat,
)
from halimede.frontends.shared_memory.registry import Regions
from halimede.frontends.tokens import parse_groups
from halimede.frontends.traffic import Traffic
from halimede.frontends.vertex.content_type import DIALECT as VERTEX_DIALECT
from halimede.frontends.vertex.handler import create_handler as create_vertex_handler
from halimede.frontends.vertex.settings import VertexSettings, read_routes
from halimede.net.receiving import ReceiveBudget

if TYPE_CHECKING:
    from halimede.frontends.profiling.sampler import Sampler

GRPC: Final = "grpc"
HTTP: Final = "http"
SAGEMAKER: Final = "sagemaker"
VERTEX_AI: Final = "vertex_ai"

_ZLIB_LEVELS = {"none": 0, "low": 1, "medium": 6, "high": 9}


@dataclass(frozen=True, slots=True)
class Services:
    """What answers clients.

    Attributes:
        handlers: protocol → what answers its requests over HTTP.
        methods: what answers calls over gRPC, by their full paths.
        metrics: the metrics; None where they are not served.
        budget: the memory of requests before they run, and of unsent answers, in this process.
    """

    handlers: Mapping[str, Handler]
    methods: Mapping[str, Method]
    metrics: Metrics | None
    budget: ReceiveBudget


def services(
    options: ServeOptions,
    engine: Engine,
    log: LogControl,
    requests: RequestLog | None,
    traffic: Sequence[Traffic],
) -> Services:
    """What answers clients in the engine's process.

    Args:
        options: what the flags say.
        engine: what is served.
        log: what clients change of the log.
        requests: hears of each request of a stream; None for no such log.
        traffic: what passes through the endpoints; looked at when metrics are asked for.

    Raises:
        InvalidArgumentError: a restriction, a pattern or a variable of SageMaker's is malformed.
    """
    budget = ReceiveBudget(receive_memory_share(options))
    regions, decoders = Regions(allowed=options.allow_client_shm), Decoders(budget)
    metrics = metrics_of(options, engine, traffic) if options.allow_metrics else None
    handlers: dict[str, Handler] = {}
    methods: Mapping[str, Method] = {}
    if options.allow_grpc:
        methods = _grpc(options, engine, log, requests, regions, decoders)
    if options.allow_http:
        settings = _http_settings(options, log, regions, decoders)
        console = _console(options, engine, log, traffic).calls if options.allow_console else None
        handlers[HTTP] = create_handler(engine, settings, further=console)
        if options.allow_openai:
            handlers[HTTP] = create_openai_handler(
                engine, _openai_settings(options, decoders), handlers[HTTP]
            )
    if options.allow_sagemaker:
        handlers[SAGEMAKER] = create_sagemaker_handler(
            engine, _sagemaker_settings(options, regions, decoders)
        )
    if options.allow_vertex_ai:
        handlers[VERTEX_AI] = create_vertex_handler(
            engine,
            VertexSettings(*read_routes(os.environ), options.vertex_ai_default_model),
            create_handler(engine, _http_settings(options, log, regions, decoders), VERTEX_DIALECT),
            None if metrics is None else metrics.answer,
        )
    return Services(handlers, methods, metrics, budget)


def _grpc(
    options: ServeOptions,
    engine: Engine,
    log: LogControl,
    requests: RequestLog | None,
    regions: Regions,
    decoders: Decoders,
) -> Mapping[str, Method]:
    return grpc_methods(
        engine,
        ServiceSettings(
            server_id=options.id,
            restrictions=parse_restrictions(options.grpc_restricted_protocol, "protocol", GRPC_HEADER_PREFIX),
            forward_pattern=compile_forward_pattern(options.grpc_header_forward_pattern),
            compression=_ZLIB_LEVELS[options.grpc_infer_response_compression_level],
            log=log,
            code_upload=CodeUpload(options.allow_model_code_upload),
            request_log=requests,
            regions=regions,
            decoders=decoders,
        ),
    )


def _http_settings(
    options: ServeOptions, log: LogControl, regions: Regions, decoders: Decoders
) -> HttpSettings:
    return HttpSettings(
        server_id=options.id,
        max_input_size=options.http_max_input_size,
        max_output_size=options.http_max_output_size,
        restrictions=parse_restrictions(options.http_restricted_api),
        forward_pattern=compile_forward_pattern(options.http_header_forward_pattern),
        log=log,
        code_upload=CodeUpload(options.allow_model_code_upload),
        regions=regions,
        decoders=decoders,
        sampler=_sampler() if options.profile else None,
        further_paths=openai_paths() if options.allow_openai else {},
    )


def _openai_settings(options: ServeOptions, decoders: Decoders) -> OpenaiSettings:
    return OpenaiSettings(
        max_input_size=options.http_max_input_size,
        restrictions=parse_restrictions(options.http_restricted_api),
        forward_pattern=compile_forward_pattern(options.http_header_forward_pattern),
        decoders=decoders,
    )


def _sampler() -> "Sampler":
    """What takes profiles.

    Raises:
        InvalidArgumentError: there is nothing to take them with.
    """
    from halimede.frontends.profiling.sampler import MISSING, Sampler, program

    if not program():
        raise InvalidArgumentError(f"--profile: {MISSING}")
    return Sampler()


def _console(options: ServeOptions, engine: Engine, log: LogControl, traffic: Sequence[Traffic]) -> Console:
    with_token = bool(options.token_file) and "logging" in parse_groups(options.token_apis)
    settings = ConsoleSettings(
        server_id=options.id,
        restrictions=parse_restrictions(options.http_restricted_api),
        openai=options.allow_openai,
        logs_for_all=with_token or options.http_use_ssl_mutual,
    )
    return Console(engine, settings, log.recent, traffic)


def _sagemaker_settings(options: ServeOptions, regions: Regions, decoders: Decoders) -> SagemakerSettings:
    return SagemakerSettings(
        default_model=os.environ.get(DEFAULT_MODEL, ""),
        inference_type=_inference_type(os.environ.get(INFERENCE_TYPE, "")),
        ping_mode=PingMode.LIVE if os.environ.get(PING_MODE) == "live" else PingMode.READY,
        max_input_size=options.http_max_input_size,
        max_output_size=options.http_max_output_size,
        restrictions=parse_restrictions(options.http_restricted_api),
        forward_pattern=compile_forward_pattern(options.http_header_forward_pattern),
        regions=regions,
        decoders=decoders,
        text_format=_text_format(os.environ.get(TGI_COMPAT, ""), os.environ.get(OUTPUT_FORMATTER, "")),
    )


def _text_format(compatible: str, formatter: str) -> TextFormat:
    """How texts are told.

    Raises:
        InvalidArgumentError: a variable has no such value.
    """
    try:
        tgi = BOOL.parse(compatible) if compatible else False
    except ValueError as error:
        raise InvalidArgumentError(f"{TGI_COMPAT}: {error}") from None
    if formatter not in ("", "json", "jsonlines", "sse"):
        raise InvalidArgumentError(f"{OUTPUT_FORMATTER} is '{formatter}'; it must be json, jsonlines or sse")
    return TextFormat(tgi, events=formatter == "sse" if formatter else tgi)


def _inference_type(text: str) -> InferenceType:
    """What ``/invocations`` does, infer unless the environment says otherwise."""
    try:
        return InferenceType(text or "infer")
    except ValueError:
        known = ", ".join(each.value for each in InferenceType)
        msg = f"{INFERENCE_TYPE} is '{text}'; it must be one of {known}"
        raise InvalidArgumentError(msg) from None


def metrics_of(options: ServeOptions, engine: Engine, traffic: Sequence[Traffic]) -> Metrics:
    """The metrics of a server."""
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
        traffic,
    )
