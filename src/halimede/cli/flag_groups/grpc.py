"""The front end over gRPC."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import (
    ADDRESS,
    BOOL,
    COUNT,
    FILE,
    MILLISECONDS,
    PORT,
    POSITIVE_MILLISECONDS,
    choice,
    form,
    repeated,
    setting,
)
from halimede.frontends.restrictions import without_secret

GRPC: Final = "gRPC"


@dataclass(frozen=True, kw_only=True)
class GrpcOptions:
    """The flags of the group "gRPC"."""

    allow_grpc: bool = setting(GRPC, BOOL, True, "Serve gRPC.")
    grpc_address: str = setting(GRPC, ADDRESS, "0.0.0.0", "Address to listen on for gRPC.")  # noqa: S104 - tritonserver's
    grpc_port: int = setting(GRPC, PORT, 8001, "Port to listen on for gRPC; 0 picks a free one.")
    reuse_grpc_port: bool = setting(
        GRPC,
        BOOL,
        False,
        "Let several server processes listen on the same gRPC port; the kernel distributes connections among "
        "them.",
    )
    grpc_use_ssl: bool = setting(
        GRPC, BOOL, False, "Serve gRPC over TLS. Needs --grpc-server-cert and --grpc-server-key."
    )
    grpc_server_cert: str = setting(
        GRPC,
        FILE,
        "",
        "The server's certificate, followed by its chain, in PEM. It is reloaded when it changes.",
    )
    grpc_server_key: str = setting(
        GRPC, FILE, "", "The private key of the certificate, in PEM. It is reloaded when it changes."
    )
    grpc_use_ssl_mutual: bool = setting(
        GRPC,
        BOOL,
        False,
        "Serve gRPC over TLS, and only to clients with a certificate that is signed by one of --grpc-root-cert. "
        "Implies --grpc-use-ssl.",
    )
    grpc_root_cert: str = setting(
        GRPC,
        FILE,
        "",
        "The root certificates that client certificates are checked against, in PEM. "
        "They are reloaded when they change.",
    )
    grpc_restricted_protocol: tuple[str, ...] = repeated(
        GRPC,
        form("API[,API…]:KEY=VALUE"),
        "Serve these groups of calls only to requests that have the metadata key triton-grpc-protocol-KEY with "
        "this value. Groups and VALUE are those of --http-restricted-api.",
        show=without_secret,
    )
    grpc_header_forward_pattern: str = setting(
        GRPC,
        form("REGEX"),
        "",
        "Pass request metadata to the model, as request parameters, if this regular expression (RE2) matches "
        "anywhere in its key. Keys are in lower case. Case is ignored unless the expression begins with (?-i).",
    )
    grpc_infer_response_compression_level: str = setting(
        GRPC,
        choice("none", "low", "medium", "high"),
        "none",
        "Compression of inference responses, for clients that accept it.",
    )
    grpc_max_connections: int = setting(
        GRPC,
        COUNT,
        0,
        "Maximum number of connections on the gRPC port. Calls on further connections fail with UNAVAILABLE, "
        "except health checks. 0 means no limit.",
    )
    grpc_max_connection_age: int = setting(
        GRPC,
        MILLISECONDS,
        0,
        "Age at which a connection takes no more calls, so that its client connects again; 0 means never.",
    )
    grpc_max_connection_age_grace: int = setting(
        GRPC,
        MILLISECONDS,
        0,
        "Time in which the last calls of such a connection must finish; 0 means no limit.",
    )
    grpc_keepalive_time: int = setting(
        GRPC, POSITIVE_MILLISECONDS, 7_200_000, "Time without traffic after which the server pings a client."
    )
    grpc_keepalive_timeout: int = setting(
        GRPC,
        POSITIVE_MILLISECONDS,
        20_000,
        "Time without an answer to such a ping after which the connection is closed.",
    )
    grpc_keepalive_permit_without_calls: bool = setting(
        GRPC,
        BOOL,
        False,
        "Ping clients also when they have no calls in flight, and allow them to do the same.",
    )
    grpc_http2_max_pings_without_data: int = setting(
        GRPC,
        COUNT,
        2,
        "Maximum number of pings that the server sends without sending data in between; 0 means no limit.",
    )
    grpc_http2_min_recv_ping_interval_without_data: int = setting(
        GRPC,
        MILLISECONDS,
        300_000,
        "Shortest time between two pings of a client that sends no data. A ping that comes sooner is a strike.",
    )
    grpc_http2_max_ping_strikes: int = setting(
        GRPC,
        COUNT,
        2,
        "Number of strikes that are tolerated before the connection is closed; 0 means any number.",
    )
