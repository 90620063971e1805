"""What the flags say together: combinations that make no sense, and flags that hold several settings."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path

import click

from halimede.cli.options import ServeOptions
from halimede.cli.settings import BOOL

_BUCKETS = ("s3://", "gs://", "as://")


def check(options: ServeOptions) -> None:
    """Nothing, if a server can be started with these options.

    Raises:
        click.UsageError: it cannot; the text says what would be right.
    """
    _check_models(options)
    _check_endpoints(options)
    _check_tls(options)
    backend_settings(options.backend_config)
    metrics_switches(options.metrics_config)


def backend_settings(entries: Iterable[str]) -> dict[str, dict[str, str]]:
    """The settings of `--backend-config`, backend → key → value; those under "" are for every backend.

    Raises:
        click.UsageError: an entry is not of the form [backend,]key=value.
    """
    settings: dict[str, dict[str, str]] = {"": {"default-max-batch-size": "4"}}
    for entry in entries:
        front, equals, value = entry.partition("=")
        backend, _, key = front.rpartition(",")
        if not equals or not key:
            msg = f"--backend-config: '{entry}' is not of the form [BACKEND,]KEY=VALUE"
            raise click.UsageError(msg)
        settings.setdefault(backend, {})[key] = value
    return settings


def metrics_switches(entries: Iterable[str]) -> dict[str, bool]:
    """`counter_latencies` and `histogram_latencies` of `--metrics-config`.

    Raises:
        click.UsageError: an entry is not known, or asks for summaries.
    """
    switches = {"counter_latencies": True, "histogram_latencies": False}
    for entry in entries:
        key, equals, value = entry.partition("=")
        if not equals:
            msg = f"--metrics-config: '{entry}' is not of the form KEY=VALUE"
            raise click.UsageError(msg)
        if key == "summary_quantiles":  # says nothing while there are no summaries
            continue
        if key not in {*switches, "summary_latencies"}:
            msg = f"--metrics-config: there is no '{key}'; there are {', '.join(switches)}"
            raise click.UsageError(msg)
        try:
            switch = BOOL.parse(value)
        except ValueError as error:
            msg = f"--metrics-config {key}: {error}"
            raise click.UsageError(msg) from None
        if key != "summary_latencies":
            switches[key] = switch
        elif switch:
            msg = (
                "--metrics-config summary_latencies is not available in this version; "
                "quantiles can be computed from the histograms, which are always there"
            )
            raise click.UsageError(msg)
    return switches


def _check_models(options: ServeOptions) -> None:
    if not options.model_repository:
        msg = "--model-repository is missing: name a directory of models"
        raise click.UsageError(msg)
    for repository in options.model_repository:
        if repository.startswith(_BUCKETS):
            msg = f"--model-repository {repository}: object storage is not available in this version"
            raise click.UsageError(msg)
        if not Path(repository).is_dir():
            what = "is not a directory" if Path(repository).exists() else "does not exist"
            msg = f"--model-repository: '{repository}' {what}"
            raise click.UsageError(msg)
    if options.load_model and options.model_control_mode != "explicit":
        msg = "--load-model needs --model-control-mode=explicit; other modes load all models"
        raise click.UsageError(msg)
    if "*" in options.load_model and len(set(options.load_model)) > 1:
        msg = "Wildcard model name '*' must be the ONLY startup model if specified at all."
        raise click.UsageError(msg)


def _check_endpoints(options: ServeOptions) -> None:
    endpoints: Sequence[tuple[bool, str, str, int]] = (
        (options.allow_http, "HTTP requests", options.http_address, options.http_port),
        (options.allow_grpc, "GRPC requests", options.grpc_address, options.grpc_port),
        (options.allow_metrics, "metrics requests", metrics_address(options), options.metrics_port),
    )
    used = [endpoint for endpoint in endpoints if endpoint[0] and endpoint[3]]
    for (_, one, address, port), (_, other, *place) in combinations(used, 2):
        if [address, port] == place:
            msg = (
                f"The server cannot listen to {one} and {other} at the same address and port {address}:{port}"
            )
            raise click.UsageError(msg)


def metrics_address(options: ServeOptions) -> str:
    """Where metrics are served: where HTTP is, unless a flag says otherwise."""
    return options.metrics_address or options.http_address


def uses_tls(options: ServeOptions) -> bool:
    """Whether gRPC is served over TLS."""
    return options.grpc_use_ssl or options.grpc_use_ssl_mutual


def _check_tls(options: ServeOptions) -> None:
    if not options.allow_grpc or not uses_tls(options):
        return
    files = [("--grpc-server-cert", options.grpc_server_cert), ("--grpc-server-key", options.grpc_server_key)]
    if options.grpc_use_ssl_mutual:
        files.append(("--grpc-root-cert", options.grpc_root_cert))
    for flag, file in files:
        if not file:
            msg = f"--grpc-use-ssl{'-mutual' * options.grpc_use_ssl_mutual} needs {flag}"
            raise click.UsageError(msg)
        if not Path(file).is_file():
            msg = f"{flag}: '{file}' is not a file"
            raise click.UsageError(msg)
