"""What the flags say of TLS."""

from pathlib import Path
from typing import Final

import click

from halimede.cli.options import ServeOptions
from halimede.net.tls.certificates import TlsFiles

HTTP: Final = "http"
GRPC: Final = "grpc"


def tls_files(options: ServeOptions, protocol: str) -> TlsFiles | None:
    """Where the certificates of a protocol are; None if it is not encrypted."""
    mutual = getattr(options, f"{protocol}_use_ssl_mutual")
    if not (mutual or getattr(options, f"{protocol}_use_ssl")):
        return None
    certificate, key, roots = (
        Path(getattr(options, f"{protocol}_{name}")) for name in ("server_cert", "server_key", "root_cert")
    )
    return TlsFiles(certificate, key, roots if mutual else None)


def check_tls(options: ServeOptions) -> None:
    """Nothing, if the files that TLS needs are given and exist.

    Raises:
        click.UsageError: one is missing; the text names its flag.
    """
    if options.allow_metrics and options.metrics_use_ssl and tls_files(options, HTTP) is None:
        msg = "--metrics-use-ssl needs --http-use-ssl, whose certificate it uses"
        raise click.UsageError(msg)
    if options.allow_grpc:
        _check(options, GRPC)
    if options.allow_http or (options.allow_metrics and options.metrics_use_ssl):
        _check(options, HTTP)


def unused_certificates(options: ServeOptions) -> list[str]:
    """What to warn of at start: files that are given, though the flag that uses them is not."""
    remarks = []
    served = ((HTTP, "HTTP", options.allow_http), (GRPC, "gRPC", options.allow_grpc))
    for protocol, title in ((protocol, title) for protocol, title, allowed in served if allowed):
        files = tls_files(options, protocol)
        for name in ("server-cert", "server-key"):
            if files is None and getattr(options, f"{protocol}_{name.replace('-', '_')}"):
                flag = f"--{protocol}-use-ssl"
                remarks.append(f"--{protocol}-{name} has no effect without {flag}: {title} is not encrypted")
        if getattr(options, f"{protocol}_root_cert") and (files is None or files.clients is None):
            flag = f"--{protocol}-use-ssl-mutual"
            remarks.append(
                f"--{protocol}-root-cert has no effect without {flag}: clients need no certificate"
            )
    return remarks


def _check(options: ServeOptions, protocol: str) -> None:
    if tls_files(options, protocol) is None:
        return
    mutual = getattr(options, f"{protocol}_use_ssl_mutual")
    for name in ("server-cert", "server-key", *(["root-cert"] if mutual else [])):
        file = getattr(options, f"{protocol}_{name.replace('-', '_')}")
        if not file:
            msg = f"--{protocol}-use-ssl{'-mutual' * mutual} needs --{protocol}-{name}"
            raise click.UsageError(msg)
        if not Path(file).is_file():
            msg = f"--{protocol}-{name}: '{file}' is not a file"
            raise click.UsageError(msg)
