"""Dynamic batching, with models whose executions last as long as their input says."""

from typing import Any

import numpy as np

from tests.conformance.asking import grpc_infer, infer, message, tensor
from tests.conformance.case import Case, case
from tests.conformance.cases.grpc_stream import stream
from tests.conformance.differences import OWN_TIMEOUT
from tests.conformance.steps import Step, Together


def hold(milliseconds: int, model: str = "batches", rows: int = 1, **parameters: Any) -> Step:
    """A request that takes so long."""
    return infer(model, tensor("HOLD", "INT32", [[milliseconds]] * rows), parameters=parameters)


def behind(*steps: Step, busy: int = 400, model: str = "batches") -> Together:
    """Requests that come while the only instance is busy."""
    return Together((hold(busy, model), *steps))


ROW = np.array([[1]], np.int32)

TIMED_OUT = (
    "a timeout",
    "a timeout of 1 µs",
    "a timeout of one among others",
    "a timeout with an id",
    "a timeout over gRPC",
    "a timeout in a stream",
)
"""Cases of requests with timeouts of their own on a model without one."""

CASES: list[Case] = [
    case(name, step, alone=True, differs=OWN_TIMEOUT if name in TIMED_OUT else None)
    for name, step in {
        "one request": hold(1),
        "rows": hold(1, rows=3),
        "the batch too large": hold(1, rows=5),
        "requests that wait become a batch": behind(hold(1), hold(1), hold(1)),
        "a batch is no larger than allowed": behind(*(hold(1) for _ in range(6))),
        "rows that do not fit together": behind(hold(1, rows=3), hold(1, rows=3)),
        "a full queue": behind(*(hold(1) for _ in range(8))),
        "a timeout": behind(hold(1, timeout=50000)),
        "a timeout of 1 µs": behind(hold(1, timeout=1)),
        "a timeout that is long": behind(hold(1, timeout=5000000)),
        "a timeout of one among others": behind(hold(1), hold(1, timeout=50000), hold(1)),
        "a timeout with an id": behind(
            infer("batches", tensor("HOLD", "INT32", [[1]]), id="my id", parameters={"timeout": 50000})
        ),
        "priorities": behind(
            hold(250, rows=4, priority=2), hold(260, rows=4, priority=2), hold(270, rows=4, priority=1)
        ),
        "an unknown priority": hold(1, priority=3),
        "priority 0": hold(1, priority=0),
        "a timeout over gRPC": behind(grpc_infer("batches", ("HOLD", ROW), timeout=50000)),
        "a timeout in a stream": behind(stream(message("batches", ("HOLD", ROW), id="1", timeout=50000))),
        "a full queue over gRPC": behind(
            *(hold(1) for _ in range(6)),
            grpc_infer("batches", ("HOLD", ROW)),
            grpc_infer("batches", ("HOLD", ROW)),
        ),
        "a delay ends with the preferred size": Together((hold(1, "delayed"), hold(1, "delayed"))),
        "a delay ends by itself": hold(1, "delayed"),
        "a preferred size of rows": hold(1, "delayed", rows=2),
        "requests that are late are delayed": behind(
            hold(1, "delayed"), hold(1, "delayed"), model="delayed", busy=700
        ),
        "a timeout where none may be given": behind(hold(1, "delayed", timeout=1000), model="delayed"),
        "a priority where there is none": hold(1, "delayed", priority=1),
    }.items()
]
