"""The front end over HTTP."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import (
    ADDRESS,
    BOOL,
    COUNT,
    FILE,
    ONE_LOOP,
    PORT,
    POSITIVE,
    form,
    ignored,
    repeated,
    setting,
)
from halimede.frontends.restrictions import without_secret

HTTP: Final = "HTTP"


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    """The flags of the group "HTTP" that do something."""

    allow_http: bool = setting(HTTP, BOOL, True, "Whether to serve HTTP.")
    http_address: str = setting(HTTP, ADDRESS, "0.0.0.0", "Address to serve HTTP at.")  # noqa: S104 - tritonserver's
    http_port: int = setting(HTTP, PORT, 8000, "Port to serve HTTP at; 0 for a free one.")
    reuse_http_port: bool = setting(
        HTTP,
        BOOL,
        False,
        "Let several servers share the HTTP port; the kernel spreads connections over them.",
    )
    http_use_ssl: bool = setting(
        HTTP, BOOL, False, "Serve HTTP over TLS; needs --http-server-cert and --http-server-key."
    )
    http_server_cert: str = setting(
        HTTP, FILE, "", "The server's certificate, PEM. Read again when it changes."
    )
    http_server_key: str = setting(
        HTTP, FILE, "", "The key of the server's certificate, PEM. Read again when it changes."
    )
    http_use_ssl_mutual: bool = setting(
        HTTP,
        BOOL,
        False,
        "Over TLS, accept only clients whose certificate --http-root-cert vouches for. Implies --http-use-ssl.",
    )
    http_root_cert: str = setting(
        HTTP, FILE, "", "Certificates that vouch for clients', PEM. Read again when they change."
    )
    http_restricted_api: tuple[str, ...] = repeated(
        HTTP,
        form("API[,API…]:HEADER=VALUE"),
        "Serve these groups of calls only to requests with this header and value. Groups: health, metadata, "
        "inference, shared-memory, model-config, model-repository, statistics, trace, logging. VALUE may be file:PATH, "
        "for the one line of a file, or env:NAME, for an environment variable.",
        show=without_secret,
    )
    http_header_forward_pattern: str = setting(
        HTTP,
        form("REGEX"),
        "",
        "Request headers whose names this regular expression (RE2) finds become parameters of the inference "
        "request. Case does not matter unless it begins with (?-i).",
    )
    http_max_input_size: int = setting(
        HTTP,
        POSITIVE,
        67_108_864,
        "Largest JSON of a request, largest tensor in it, raw input and decompressed body, in bytes. Binary tensors "
        "are not bounded by it: --receive-memory-budget bounds them.",
    )
    http_max_connections: int = setting(
        HTTP,
        COUNT,
        0,
        "Connections that the HTTP port may have, and that of SageMaker; more are answered 503 and closed, but for "
        "health checks. 0 for any number.",
    )
    http_server_timing: bool = setting(
        HTTP,
        BOOL,
        False,
        "Tell clients how long each stage of their requests took, in the header Server-Timing of responses.",
    )


IGNORED: Final = (
    ignored(
        HTTP,
        POSITIVE,
        "http-thread-count",
        8,
        "Threads that serve HTTP.",
        ONE_LOOP,
    ),
)
