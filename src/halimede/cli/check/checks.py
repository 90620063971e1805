"""What the flags say together: combinations that make no sense, and flags that hold several settings."""

import logging
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import click

from halimede.cli.cache_options import read_cache_config
from halimede.cli.check.access import check_access, metrics_address
from halimede.cli.check.host_policies import host_policies
from halimede.cli.check.rate_limits import resource_limits
from halimede.cli.check.tls import check_tls
from halimede.cli.options import ServeOptions
from halimede.cli.settings import BOOL, PORT
from halimede.cli.trace_options import trace_config
from halimede.config.model_files import looks_like_model
from halimede.core.errors import HalimedeError
from halimede.core.memory import memory_limit
from halimede.engine.memory.budget import DEFAULT_SHARE, budget_bytes, parse_budget
from halimede.engine.settings import LocalCacheSettings, RedisCacheSettings
from halimede.repository.cloud.locations import is_bucket_url, parse_location

logger = logging.getLogger("halimede")

DEFAULT_QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
"""Quantiles of summaries (`--metrics-config summary_latencies=true`)."""

_RECEIVED_WHERE_UNKNOWN = 1 << 30
"""Memory for request bodies where the system does not tell how much memory there is."""

_SAGEMAKER = "SageMaker requests"


def check(options: ServeOptions) -> None:
    """Nothing, if a server can be started with these options.

    Raises:
        click.UsageError: it cannot; the text says what would be right.
    """
    _check_models(options)
    model_memory_budget(options)
    receive_memory_budget(options.receive_memory_budget)
    _check_endpoints(options)
    check_access(options)
    check_tls(options)
    backend_settings(options.backend_config)
    metrics_switches(options.metrics_config)
    resource_limits(options.rate_limit_resource)
    host_policies(options.host_policy)
    check_cache(options)
    trace_config(options)


def check_cache(options: ServeOptions) -> None:
    """Nothing, if the flags of the response cache make sense.

    Raises:
        click.UsageError: they do not; the text says what would be right.
    """
    if options.cache_config and options.response_cache_byte_size:
        msg = (
            "Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. Please provide "
            "one or the other."
        )
        raise click.UsageError(msg)
    cache_settings(options)


def cache_settings(options: ServeOptions) -> LocalCacheSettings | RedisCacheSettings | None:
    """What the flags say of the response cache; None for none.

    Raises:
        click.UsageError: they make no sense; the text says what would be right, and repeats no password.
    """
    size = options.response_cache_byte_size
    try:
        return read_cache_config([f"local,size={size}"] if size else options.cache_config)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def backend_settings(entries: Iterable[str]) -> dict[str, dict[str, str]]:
    """The settings of `--backend-config`, backend → key → value; those under "" are for every backend.

    Raises:
        click.UsageError: an entry is not of the form [backend,]key=value.
    """
    settings: dict[str, dict[str, str]] = {"": {"default-max-batch-size": "4"}}
    for entry in entries:
        front, equals, value = entry.partition("=")
        backend, _, key = front.rpartition(",")
        if not (equals and key and value):
            msg = f"--backend-config option format is '<backend name>,<setting>=<value>'. Got {entry}"
            raise click.UsageError(msg)
        if front.startswith(","):
            form = "<backend name>,<setting>=<value> or <setting>=<value>"
            msg = f"No backend specified. --backend-config option format is {form}. Got {entry}"
            raise click.UsageError(msg)
        settings.setdefault(backend, {})[key] = value
    return settings


def metrics_switches(entries: Iterable[str]) -> dict[str, bool]:
    """`counter_latencies`, `histogram_latencies` and `summary_latencies` of `--metrics-config`.

    Raises:
        click.UsageError: an entry is not known.
    """
    switches = {"counter_latencies": True, "histogram_latencies": False, "summary_latencies": False}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals:
            msg = f"--metrics-config option format is <setting>=<value>. Got {entry}"
            raise click.UsageError(msg)
        if key == "summary_quantiles":
            continue
        if key not in switches:
            msg = f"--metrics-config: there is no '{key}'; there are {', '.join(switches)}, summary_quantiles"
            raise click.UsageError(msg)
        try:
            switches[key] = BOOL.parse(value)
        except ValueError as error:
            msg = f"--metrics-config {key}: {error}"
            raise click.UsageError(msg) from None
    return switches


def summary_quantiles(entries: Iterable[str]) -> tuple[float, ...]:
    """The quantiles of summaries that `--metrics-config` asks for, each once; pairs that are none are left out."""
    quantiles: tuple[float, ...] = DEFAULT_QUANTILES
    for entry in entries:
        key, _, value = entry.partition("=")
        if key != "summary_quantiles":
            continue
        quantiles = ()
        for pair in value.split(","):
            try:
                share, error = map(float, pair.split(":"))
            except ValueError:
                share = error = -1.0
            if 0 <= share <= 1 and 0 <= error <= 1:
                quantiles = (*quantiles, share)
            else:
                logger.error(
                    "--metrics-config summary_quantiles: '%s' is not of the form QUANTILE:ERROR", pair
                )
    return tuple(dict.fromkeys(quantiles))


def _check_models(options: ServeOptions) -> None:
    if not options.model_repository:
        msg = "--model-repository must be specified: name a directory of models"
        raise click.UsageError(msg)
    for repository in options.model_repository:
        if is_bucket_url(repository):
            check_bucket(repository)
            continue
        if not repository or (options.exit_on_error and not Path(repository).is_dir()):
            what = "is not a directory" if repository and Path(repository).exists() else "does not exist"
            msg = f"--model-repository: '{repository}' {what}"
            raise click.UsageError(msg)
        if message := model_instead(Path(repository)):
            msg = f"--model-repository: {message}"
            raise click.UsageError(msg)
    cloud_cache_size(options.cloud_cache_size)
    if options.load_model and options.model_control_mode not in ("explicit", "ondemand"):
        msg = (
            "Use of '--load-model' requires setting '--model-control-mode=explicit' as well. Mode ondemand takes it "
            "too; other modes load all models"
        )
        raise click.UsageError(msg)
    if "*" in options.load_model and len(set(options.load_model)) > 1:
        msg = "Wildcard model name '*' must be the ONLY startup model if specified at all."
        raise click.UsageError(msg)


def check_bucket(url: str) -> None:
    """Nothing, if a URL can be that of a repository in a bucket.

    Raises:
        click.UsageError: it cannot.
    """
    try:
        parse_location(url)
    except HalimedeError as error:
        msg = f"--model-repository: {error}"
        raise click.UsageError(msg) from None


def cloud_cache_size(text: str) -> int | float:
    """`--cloud-cache-size`: bytes as an int, or a share of the disk as a float between 0 and 1.

    Raises:
        click.UsageError: it says no such thing.
    """
    try:
        return parse_budget(text)
    except ValueError:
        msg = (
            f"--cloud-cache-size: '{text}' is no size; it must be a number of bytes (200GiB, 500MB) or a share of the "
            "disk (80%, 0.8)"
        )
        raise click.UsageError(msg) from None


def model_instead(repository: Path) -> str:
    """Why a directory is no repository if it is a model itself, with what to name instead; else ""."""
    if not looks_like_model(repository):
        return ""
    place = repository.absolute()
    return (
        f"'{repository}' is a model, not a directory of models; name the directory around it, '{place.parent}' "
        f"(for a server of this model alone, add --model-control-mode=explicit --load-model={place.name})"
    )


def model_memory_budget(options: ServeOptions) -> int | None:
    """The bytes of `--model-memory-budget`, None for any number.

    Raises:
        click.UsageError: it says no such thing, or the control mode takes none.
    """
    text, mode = options.model_memory_budget, options.model_control_mode
    if text and mode not in ("explicit", "ondemand"):
        msg = (
            f"--model-memory-budget needs --model-control-mode=ondemand or explicit; mode {mode} keeps all models "
            f"loaded, whatever they take"
        )
        raise click.UsageError(msg)
    try:
        budget = parse_budget(text) if text else DEFAULT_SHARE if mode == "ondemand" else None
        return None if budget is None else budget_bytes(budget)
    except ValueError as error:
        msg = f"--model-memory-budget: {error}"
        raise click.UsageError(msg) from None


def receive_memory_budget(text: str) -> int:
    """The bytes of `--receive-memory-budget`.

    Raises:
        click.UsageError: it says no such thing.
    """
    try:
        budget = parse_budget(text)
        if isinstance(budget, float) and not memory_limit():
            return _RECEIVED_WHERE_UNKNOWN
        return budget_bytes(budget)
    except ValueError as error:
        msg = f"--receive-memory-budget: {error}"
        raise click.UsageError(msg) from None


def receive_memory_share(options: ServeOptions) -> int:
    """The bytes of `--receive-memory-budget` that each process has: the engine's, which decodes, and the front ends.

    Raises:
        click.UsageError: as of `receive_memory_budget`.
    """
    processes = options.front_ends + 1 if options.front_ends > 1 else 1
    return receive_memory_budget(options.receive_memory_budget) // processes


class _Listener(NamedTuple):
    """A protocol that is served: what it is for, its address and its port."""

    requests: str
    address: str
    port: int


def _check_endpoints(options: ServeOptions) -> None:
    listeners = list(_listeners(options))
    safe = safe_ports(options.sagemaker_safe_port_range)
    if options.allow_sagemaker and safe is not None:
        for requests, address, port in listeners:
            if requests != _SAGEMAKER and address == options.sagemaker_address and port not in safe:
                msg = (
                    f"The server cannot listen to {requests} at port {port}, "
                    f"allowed port range is [{safe[0]}, {safe[-1]}]"
                )
                raise click.UsageError(msg)
    used = [listener for listener in listeners if listener.port]
    for (one, address, port), (other, *place) in combinations(used, 2):
        if [address, port] == place:
            msg = (
                f"The server cannot listen to {one} and {other} at the same address and port {address}:{port}"
            )
            raise click.UsageError(msg)


def _listeners(options: ServeOptions) -> Iterator[_Listener]:
    if options.allow_http:
        yield _Listener("HTTP requests", options.http_address, options.http_port)
    if options.allow_grpc:
        yield _Listener("GRPC requests", options.grpc_address, options.grpc_port)
    if options.allow_metrics:
        yield _Listener("metrics requests", metrics_address(options), options.metrics_port)
    if options.allow_sagemaker:
        yield _Listener(_SAGEMAKER, options.sagemaker_address, options.sagemaker_port)
    if options.allow_vertex_ai:
        yield _Listener("Vertex AI requests", options.vertex_ai_address, options.vertex_ai_port)


def safe_ports(text: str) -> range | None:
    """The ports of `--sagemaker-safe-port-range`, None for any.

    Raises:
        click.UsageError: it is not two ports, the lower one first.
    """
    if not text:
        return None
    low, _, high = text.partition("-")
    try:
        first, last = PORT.parse(low), PORT.parse(high)
    except ValueError:
        first, last = 1, 0
    if first > last:
        msg = f"--sagemaker-safe-port-range: '{text}' is not of the form PORT-PORT, the lower one first"
        raise click.UsageError(msg)
    return range(first, last + 1)
