"""The server as a whole: its start, readiness, limits and end."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import BOOL, COUNT, TEXT, form, setting

SERVER: Final = "Server"


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The flags of the group "Server" that do something."""

    id: str = setting(SERVER, TEXT, "triton", "Name of the server, as its metadata tell it.")
    exit_on_error: bool = setting(
        SERVER, BOOL, True, "Whether the server exits when a model fails to load at start."
    )
    strict_readiness: bool = setting(
        SERVER,
        BOOL,
        True,
        "Whether the server is ready only while each of its models is; otherwise it is as soon as it has started.",
    )
    exit_timeout_secs: int = setting(
        SERVER,
        COUNT,
        30,
        "Longest time that a stopping server waits for requests in flight; after it, it exits with an error.",
    )
    drain_delay_secs: int = setting(
        SERVER,
        COUNT,
        0,
        "Seconds that a stopping server still answers while it says that it is not ready, so that load balancers send "
        "requests elsewhere before its sockets close. A second signal ends them.",
    )
    max_inflight_requests: int = setting(
        SERVER,
        COUNT,
        0,
        "Inference requests of clients that may be in flight at once, of all models and protocols together; more are "
        "refused: 503, UNAVAILABLE. 0 for any number.",
    )
    receive_memory_budget: str = setting(
        SERVER,
        form("BYTES|SHARE"),
        "20%",
        "Memory that request bodies may take together while they are received, over HTTP and gRPC: bytes (1GiB) or a "
        "share of the memory that the server may use. As it runs out, large bodies wait; then they are refused.",
    )
