"""The server as a whole: its start, readiness, limits and end."""

from dataclasses import dataclass
from typing import Final

from halimede.cli.settings import BOOL, COUNT, POSITIVE, SECONDS, Kind, count, form, setting
from halimede.core.cpus import cpu_budget

SERVER: Final = "Server"

_MOST_FRONT_ENDS: Final = 4
_PROCESSORS_EACH: Final = 4


def suitable_front_ends(processors: int) -> int:
    """How many front ends suit a server that may keep so many processors busy.

    A front end pays only where processors would be idle. Two keep the server's own process busy with small requests;
    four nearly doubled the rate of 4 KB over 256 connections.
    """
    return max(1, min(_MOST_FRONT_ENDS, processors // _PROCESSORS_EACH))


def _front_ends(text: str) -> int:
    if text == "auto":
        return suitable_front_ends(cpu_budget())
    try:
        return POSITIVE.parse(text)
    except ValueError as error:
        msg = f"{error}; or write auto"
        raise ValueError(msg) from None


FRONT_ENDS: Final = Kind("COUNT|auto", _front_ends)
"""A number of front ends; `auto` for what suits the processors of this process's cgroup."""


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
        FRONT_ENDS,
        1,
        "Number of processes that hold the connections of clients, read requests and write responses, while the "
        "server's main process schedules and runs models. With 1, one process does everything. auto uses one for every "
        "four processors of the process's cgroup, from 1 to 4.",
    )
    busy_wait: int = setting(
        SERVER,
        count("PERCENT"),
        0,
        "CPU time, in percent of one core, that the server and the processes of its models may spend on polling for "
        "each other's messages instead of sleeping, while cores are idle and requests come one at a time. 0 turns this "
        "off.",
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
        "Memory for request bodies while they are received, decompressed bodies and messages, decoded JSON and typed "
        "contents, and answers that clients do not read, over HTTP and gRPC together: a size, such as 1GiB, or a share "
        "of the memory available to the server, such as 20%. When it runs short, large requests wait and slow readers "
        "are disconnected; when it runs out, some requests and answers are refused.",
    )
