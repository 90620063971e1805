"""The server as a whole: its start, readiness, limits and end."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import BOOL, COUNT, POSITIVE, SECONDS, count, form, setting

SERVER: Final = "Server"


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The flags of the group "Server"."""

    id: str = setting(SERVER, form("NAME"), "triton", "Name of the server in its metadata.")
    exit_on_error: bool = setting(SERVER, BOOL, True, "Exit if a model fails to load at start.")
    strict_readiness: bool = setting(
        SERVER,
        BOOL,
        True,
        "Report the server as ready only while all its models are ready. If false, it is ready as soon as it has "
        "started.",
    )
    front_ends: int = setting(
        SERVER,
        POSITIVE,
        1,
        "Processes that hold the connections of clients, read requests and write responses, while the server's own "
        "process schedules and runs models. With 1, one process does everything.",
    )
    busy_wait: int = setting(
        SERVER,
        count("PERCENT"),
        100,
        "Processor time, in percent of one core, that the server and the processes of its models may spend on "
        "watching for each other's messages instead of sleeping, while cores are idle and requests come one at a "
        "time. 0 turns this off.",
    )
    exit_timeout_secs: int = setting(
        SERVER,
        SECONDS,
        30,
        "When the server stops: longest time it waits for requests in flight. Then it exits with an error.",
    )
    drain_delay_secs: int = setting(
        SERVER,
        SECONDS,
        0,
        "When the server stops: time in which it still answers but reports that it is not ready, so that load "
        "balancers stop sending requests before its ports close. A second signal ends this time.",
    )
    max_inflight_requests: int = setting(
        SERVER,
        COUNT,
        0,
        "Maximum number of inference requests in flight, for all models and protocols together. Further requests "
        "are refused with 503 or UNAVAILABLE. 0 means no limit.",
    )
    receive_memory_budget: str = setting(
        SERVER,
        form("BYTES|SHARE"),
        "20%",
        "Memory for request bodies while they are received, over HTTP and gRPC together: a size, such as 1GiB, or "
        "a share of the memory available to the server, such as 20%. When it runs short, large bodies wait; "
        "when it runs out, some are refused.",
    )
