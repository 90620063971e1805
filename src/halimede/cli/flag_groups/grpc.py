"""The front end over gRPC."""

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
    choice,
    form,
    ignored,
    repeated,
    setting,
)
from halimede.frontends.restrictions import without_secret

GRPC: Final = "gRPC"
_NO_POOL: Final = "nothing is set aside for requests, which take memory only while they are under way"
_INT_MAX: Final = 2_147_483_647


@dataclass(frozen=True, kw_only=True)
class GrpcOptions:
    """The flags of the group "gRPC" that do something."""

    allow_grpc: bool = setting(GRPC, BOOL, True, "Whether to serve gRPC.")
    grpc_address: str = setting(GRPC, ADDRESS, "0.0.0.0", "Address to serve gRPC at.")  # noqa: S104 - tritonserver's
    grpc_port: int = setting(GRPC, PORT, 8001, "Port to serve gRPC at; 0 for a free one.")
    reuse_grpc_port: bool = setting(
        GRPC,
        BOOL,
        False,
        "Let several servers share the gRPC port; the kernel spreads connections over them.",
    )
    grpc_use_ssl: bool = setting(
        GRPC, BOOL, False, "Serve gRPC over TLS; needs --grpc-server-cert and --grpc-server-key."
    )
    grpc_server_cert: str = setting(
        GRPC, FILE, "", "The server's certificate, PEM. Read again when it changes."
    )
    grpc_server_key: str = setting(
        GRPC, FILE, "", "The key of the server's certificate, PEM. Read again when it changes."
    )
    grpc_use_ssl_mutual: bool = setting(
        GRPC,
        BOOL,
        False,
        "Over TLS, accept only clients whose certificate --grpc-root-cert vouches for. Implies --grpc-use-ssl.",
    )
    grpc_root_cert: str = setting(
        GRPC, FILE, "", "Certificates that vouch for clients', PEM. Read again when they change."
    )
    grpc_restricted_protocol: tuple[str, ...] = repeated(
        GRPC,
        form("API[,API…]:KEY=VALUE"),
        "Serve these groups of calls only to requests with this value under the metadata key "
        "triton-grpc-protocol-KEY. Groups and VALUE as for --http-restricted-api.",
        show=without_secret,
    )
    grpc_header_forward_pattern: str = setting(
        GRPC,
        form("REGEX"),
        "",
        "Metadata whose keys this regular expression (RE2) finds become parameters of the inference request. "
        "Case does not matter unless it begins with (?-i); keys are in lower case.",
    )
    grpc_infer_response_compression_level: str = setting(
        GRPC,
        choice("none", "low", "medium", "high"),
        "none",
        "How hard to compress responses to inference requests, for clients that accept it.",
    )
    grpc_max_connections: int = setting(
        GRPC,
        COUNT,
        0,
        "Connections that the gRPC port may have; calls over more are answered UNAVAILABLE, but for health checks. "
        "0 for any number.",
    )
    grpc_max_connection_age: int = setting(
        GRPC, COUNT, 0, "Milliseconds after which a connection is asked to close; 0 for never."
    )
    grpc_max_connection_age_grace: int = setting(
        GRPC, COUNT, 0, "Milliseconds that its calls then have to finish; 0 for as long as they take."
    )
    grpc_keepalive_time: int = setting(
        GRPC, POSITIVE, 7_200_000, "Milliseconds without traffic after which the server pings a connection."
    )
    grpc_keepalive_timeout: int = setting(
        GRPC,
        POSITIVE,
        20_000,
        "Milliseconds without an answer to a ping after which the connection is closed.",
    )
    grpc_keepalive_permit_without_calls: bool = setting(
        GRPC, BOOL, False, "Whether connections without calls are pinged, and may ping."
    )
    grpc_http2_max_pings_without_data: int = setting(
        GRPC, COUNT, 2, "Pings that the server sends without sending data between them; 0 for any number."
    )
    grpc_http2_min_recv_ping_interval_without_data: int = setting(
        GRPC,
        COUNT,
        300_000,
        "Shortest time, in milliseconds, between two pings of a client that sends no data.",
    )
    grpc_http2_max_ping_strikes: int = setting(
        GRPC,
        COUNT,
        2,
        "Too-frequent pings tolerated before disconnecting; 0 for any number.",
    )


IGNORED: Final = (
    ignored(
        GRPC,
        POSITIVE,
        "grpc-infer-thread-count",
        2,
        "Threads that serve gRPC.",
        ONE_LOOP,
    ),
    ignored(
        GRPC,
        COUNT,
        "grpc-infer-allocation-pool-size",
        8,
        "States kept for reuse.",
        _NO_POOL,
    ),
    ignored(
        GRPC,
        COUNT,
        "grpc-max-response-pool-size",
        _INT_MAX,
        "Responses kept for reuse.",
        _NO_POOL,
    ),
)
