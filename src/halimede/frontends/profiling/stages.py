"""The stages of a request, and which of them a stack is in.

A stage is found by the innermost function that says so: code that all stages use, such as that of `core/` and of
libraries, belongs to whoever called it.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple


class Frame(NamedTuple):
    """A function on a stack.

    Attributes:
        file: its file's full path.
        function: its name, perhaps with that of its class in front.
    """

    file: str
    function: str


SOCKET: Final = "socket"
PARSE: Final = "parse"
SCHEDULE: Final = "schedule"
GATHER: Final = "gather"
HOP: Final = "hop"
COMPUTE: Final = "compute"
WRITE: Final = "write"
OTHER: Final = "other"

STAGES: Final = {
    SOCKET: "bytes from connections, heads and frames; the event loop itself",
    PARSE: "the request is read and checked: JSON, protobuf, tensors",
    SCHEDULE: "the queue, batches, ensembles, statistics, the response cache",
    GATHER: "the tensors of a batch are put together, and its outputs cut up",
    HOP: "to a thread or process of the model, and back",
    COMPUTE: "the model runs, in this process",
    WRITE: "the response is made and sent",
    OTHER: "everything else: metrics, logs, traces, loading",
}
"""What each stage is, in the order of a request."""

_RULES: Final = tuple(
    (re.compile(file), re.compile(function), stage)
    for file, function, stage in (
        (r"frontends/http/codec/(response|generate_reply)", "", WRITE),
        (r"frontends/grpc/codec_(response|contents)", "", WRITE),
        (r"frontends/grpc/transport/(flow|responses|compression)", "", WRITE),
        (r"frontends/grpc/transport/call", r"\b(reply|send|finish|enqueue|end)$", WRITE),
        (
            r"frontends/http/transport/",
            r"\b(respond|reply_ready|_advance|write|response|_response_head|stream\w*)$",
            WRITE,
        ),
        (r"frontends/(\w+/)?(transport|tls)/|frontends/(server|receiving)", "", SOCKET),
        (r"frontends/relay/", "", HOP),
        (r"frontends/(metrics|traffic|request_log|profiling|gauges|openmetrics)", "", OTHER),
        (r"frontends/(http|sagemaker|vertex|shared_memory)/|frontends/\w+\.py", "", PARSE),
        (r"frontends/grpc/", "", PARSE),
        (r"workers/in_server/", "", HOP),
        (r"engine/scheduling/instances", "", HOP),
        (r"engine/(lifecycle|tracing|memory)/", "", OTHER),
        (r"engine/", "", SCHEDULE),
        (r"backends/loop_share", "", HOP),
        (r"backends/(batch|ragged|states|initial_states|execution)", "", GATHER),
        (r"backends/", "", COMPUTE),
        (r"workers/(zygote|process|environments|batch_process)", "", OTHER),
        (r"workers/|worker_site/", "", HOP),
    )
)
_PACKAGE: Final = re.compile(r"(?:^|/)halimede/(.*)")
_EXECUTE: Final = "worker_site/halimede_worker/execution.py"
_LOOP: Final = re.compile(r"(?:^|/)asyncio/runners\.py$")


def stage_of(stack: Iterable[Frame]) -> str:
    """The stage that a stack is in; the innermost function comes first."""
    foreign = False  # code of others runs, perhaps of a model
    loop = True  # nothing but the event loop so far
    for frame in stack:
        found = _PACKAGE.search(frame.file)
        if found is None:
            if loop and _LOOP.search(frame.file):
                return SOCKET
            foreign = True
            loop = False
            continue
        loop = False
        path = found[1]
        if path == _EXECUTE and foreign:
            return COMPUTE
        for file, function, stage in _RULES:
            if file.match(path) and function.search(frame.function):
                return stage
    return OTHER
