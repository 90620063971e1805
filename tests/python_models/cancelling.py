"""Clients of Python models that give up, each in another way."""

import json
import socket
import threading
import time
from collections.abc import Callable

import numpy as np
from tritonclient.utils import InferenceServerException

from tests.python_models.support import Models, executing, grpc_inputs
from tests.support.waiting import wait_until

WAITING = """
    for request in requests:
        print("began", request.request_id())
    def wait(request, is_cancelled):
        until = time.monotonic() + 60
        while not is_cancelled() and time.monotonic() < until:
            time.sleep(0.005)
        said = "cancelled" if is_cancelled() else "not cancelled"
        print(f"{said} {request.request_id()}\\n", end="")  # at once, as other threads write too
"""
BY_REQUEST = executing(
    WAITING
    + """
    wait(requests[0], requests[0].is_cancelled)
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32))]) for _ in requests]
"""
)

ROWS = """
max_batch_size: 1
input { name: "IN" data_type: TYPE_FP32 dims: [1] }
output { name: "OUT" data_type: TYPE_FP32 dims: [1] }
"""
ONE = np.ones((1, 1), np.float32)


def said(models: Models, name: str, text: str) -> bool:
    return f"model '{name}' version 1: {text}\"" in models.server.log


Cancelling = Callable[..., Callable[[], None]]
"""``cancelling(models, name, request_id, sequence)`` sends a request: what cancels it, and sees that it is told so."""


def cancel_by_grpc(
    models: Models, name: str, request_id: str, sequence: int = 0, deadline: float | None = None
) -> Callable[[], None]:
    """A request over gRPC, which its client cancels, or which has a deadline."""
    done = threading.Event()
    errors: list[InferenceServerException | None] = []

    def callback(result: object, error: InferenceServerException | None) -> None:
        errors.append(error)
        done.set()

    call = models.grpc.async_infer(
        name,
        grpc_inputs(IN=ONE),
        callback,
        request_id=request_id,
        sequence_id=sequence,
        sequence_start=sequence > 0,
        sequence_end=sequence > 0,
        client_timeout=deadline,
    )

    def cancel() -> None:
        if deadline is None:
            call.cancel()
        assert done.wait(60)
        assert errors[0] is not None
        assert errors[0].status() == f"StatusCode.{'CANCELLED' if deadline is None else 'DEADLINE_EXCEEDED'}"

    return cancel


def cancel_by_deadline(
    models: Models, name: str, request_id: str, sequence: int = 0, deadline: float = 1
) -> Callable[[], None]:
    """A request over gRPC, whose deadline passes."""
    return cancel_by_grpc(models, name, request_id, sequence, deadline)


def cancel_by_http(models: Models, name: str, request_id: str, sequence: int = 0) -> Callable[[], None]:
    """A request over HTTP, whose client closes its connection."""
    tensor = {"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [1]}
    flags = {"sequence_id": sequence, "sequence_start": True, "sequence_end": True} if sequence else {}
    body = json.dumps({"id": request_id, "inputs": [tensor], "parameters": flags}).encode()
    host, _, port = models.server.http.partition(":")
    connection = socket.create_connection((host, int(port)))
    connection.sendall(
        f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return connection.close


WAYS: tuple[Cancelling, ...] = (cancel_by_grpc, cancel_by_deadline, cancel_by_http)


def cancel_running(
    cancelling: Cancelling, models: Models, name: str, running: str = "", sequence: int = 0
) -> tuple[str, Callable[[], None]]:
    """A request that a model executes: its ID, and what cancels it as in `WAYS`.

    Args:
        cancelling: one of `WAYS`.
        models: the server.
        name: the model that is asked.
        running: the one that executes for it; itself if empty.
        sequence: the number of the sequence, 0 for none.
    """
    running = running or name
    if cancelling is not cancel_by_deadline:
        cancel = cancelling(models, name, "r", sequence)
        wait_until(lambda: said(models, running, "began r"), "the execution")
        return "r", cancel
    for deadline in (0.4, 4, 40):  # if a busy machine does not begin in time, its request is cancelled before
        request_id = f"r{deadline}"
        cancel = cancel_by_deadline(models, name, request_id, sequence, deadline)
        over = time.monotonic() + deadline
        wait_until(
            lambda: said(models, running, f"began {request_id}") or time.monotonic() > over,  # noqa: B023
            "the execution",
        )
        if said(models, running, f"began {request_id}"):
            return request_id, cancel
        cancel()
    raise AssertionError(f"no request to '{name}' began within its deadline")


def pending(models: Models, name: str) -> int:
    return metric(models, f'nv_inference_pending_request_count{{model="{name}",version="1"}}')


def cancelled(models: Models, name: str) -> int:
    return metric(models, f'nv_inference_request_failure{{model="{name}",reason="CANCELED",version="1"}}')


def has_cancelled(models: Models, name: str, count: int) -> bool:
    return cancelled(models, name) == count


def metric(models: Models, series: str) -> int:
    metrics = models.server.get("/metrics", models.server.metrics)[1].decode()
    return int(metrics.partition(f"{series} ")[2].partition("\n")[0] or 0)
