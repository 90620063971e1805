"""What the flags say of who may call what: what is wrong with it, and what is open that should not be."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from halimede.cli.check.tls import GRPC, HTTP, tls_files, unused_certificates
from halimede.cli.options import ServeOptions
from halimede.core.errors import InvalidArgumentError
from halimede.core.origins import is_local, is_origin
from halimede.core.uploads import UPLOAD_FLAG, CodeUpload
from halimede.frontends.restrictions import GRPC_HEADER_PREFIX, compile_forward_pattern, parse_restrictions
from halimede.frontends.tokens import METRICS, TokenFileError, parse_groups, parse_tokens

_LOADING: Final = "model-repository"


def check_access(options: ServeOptions) -> None:
    """Nothing, if the restrictions, patterns and origins are what they should be.

    Raises:
        click.UsageError: one is not; the text names its flag, and repeats no secret.
    """
    _tell("", lambda: parse_restrictions(options.http_restricted_api))
    _tell("", lambda: parse_restrictions(options.grpc_restricted_protocol, "protocol", GRPC_HEADER_PREFIX))
    _tell(
        "--http-header-forward-pattern: ",
        lambda: compile_forward_pattern(options.http_header_forward_pattern),
    )
    _tell(
        "--grpc-header-forward-pattern: ",
        lambda: compile_forward_pattern(options.grpc_header_forward_pattern),
    )
    check_tokens(options)
    for origin in options.allow_origin:
        if not is_origin(origin):
            msg = f"--allow-origin: '{origin}' is not an origin, such as https://app.example or http://localhost:3000"
            raise click.UsageError(msg)
    for host in options.allow_host:
        if not host or "/" in host:
            msg = f"--allow-host: '{host}' is not the name of a host, such as models.example"
            raise click.UsageError(msg)


def check_tokens(options: ServeOptions) -> None:
    """Nothing, if the tokens and the groups of calls that need one are what they should be.

    Raises:
        click.UsageError: they are not; the text repeats nothing of the file.
    """
    if options.token_apis and not options.token_file:
        raise click.UsageError("--token-apis needs --token-file")
    try:
        parse_groups(options.token_apis)
    except ValueError as error:
        raise click.UsageError(f"--token-apis: {error}") from None
    if options.token_file:
        try:
            parse_tokens(Path(options.token_file).read_text("utf-8", "replace"))
        except OSError as error:
            raise click.UsageError(
                f"--token-file: cannot read '{options.token_file}': {error.strerror}"
            ) from None
        except TokenFileError as error:
            raise click.UsageError(f"--token-file: '{options.token_file}', {error}") from None


def access_remarks(options: ServeOptions) -> list[str]:
    """What to warn of at start: open loading of models, tokens that can be overheard, certificates without effect."""
    return [*_open_loading(options), *_readable_tokens(options), *unused_certificates(options)]


def metrics_address(options: ServeOptions) -> str:
    """Where metrics are served: at the address of HTTP unless a flag says otherwise."""
    return options.metrics_address or options.http_address


def _readable_tokens(options: ServeOptions) -> list[str]:
    if not options.token_file:
        return []
    metrics = options.allow_metrics and METRICS in parse_groups(options.token_apis)
    behind = "=127.0.0.1 behind a proxy with TLS"
    fixes = [
        fix
        for fix, served, address, encrypted in (
            ("--http-use-ssl", options.allow_http, options.http_address, tls_files(options, HTTP)),
            ("--grpc-use-ssl", options.allow_grpc, options.grpc_address, tls_files(options, GRPC)),
            ("--metrics-use-ssl", metrics, metrics_address(options), options.metrics_use_ssl),
            (f"--sagemaker-address{behind}", options.allow_sagemaker, options.sagemaker_address, False),
            (f"--vertex-ai-address{behind}", options.allow_vertex_ai, options.vertex_ai_address, False),
        )
        if served and not is_local(address) and not encrypted
    ]
    if not fixes:
        return []
    *others, last = fixes
    listed = f"{', '.join(others)} and {last}" if others else last
    return [f"bearer tokens cross the network unencrypted; use {listed}"]


def _open_loading(options: ServeOptions) -> list[str]:
    if options.token_file and _LOADING in parse_groups(options.token_apis):
        return []
    if options.model_control_mode not in ("explicit", "ondemand"):
        return []
    http = parse_restrictions(options.http_restricted_api)
    grpc = parse_restrictions(options.grpc_restricted_protocol, "protocol", GRPC_HEADER_PREFIX)
    open_to: list[tuple[str, str, str]] = []
    if options.allow_http and not (
        _LOADING in http or options.http_use_ssl_mutual or is_local(options.http_address)
    ):
        place = f"HTTP at {options.http_address}:{options.http_port}"
        open_to.append((place, f"--http-restricted-api={_LOADING}:HEADER=VALUE", "--http-address"))
    if options.allow_grpc and not (
        _LOADING in grpc or options.grpc_use_ssl_mutual or is_local(options.grpc_address)
    ):
        place = f"gRPC at {options.grpc_address}:{options.grpc_port}"
        open_to.append((place, f"--grpc-restricted-protocol={_LOADING}:KEY=VALUE", "--grpc-address"))
    if options.allow_vertex_ai and _LOADING not in http and not is_local(options.vertex_ai_address):
        place = f"Vertex AI at {options.vertex_ai_address}:{options.vertex_ai_port}"
        open_to.append((place, f"--http-restricted-api={_LOADING}:HEADER=VALUE", "--vertex-ai-address"))
    if not open_to:
        return []
    where = " and ".join(place for place, _, _ in open_to)
    flags = " ".join(dict.fromkeys(flag for _, flag, _ in open_to))
    addresses = " ".join(f"{flag}=127.0.0.1" for _, _, flag in open_to)
    everyone = options.allow_model_code_upload == CodeUpload.ALL.value
    what = f"load models, and code of theirs ({UPLOAD_FLAG}=all)" if everyone else "load and unload models"
    return [f"everyone who reaches {where} can {what}; close it with {flags}, or with {addresses}"]


def _tell(flag: str, parse: Callable[[], object]) -> None:
    try:
        parse()
    except InvalidArgumentError as error:
        raise click.UsageError(flag + error.message) from None
