"""Clients that give up, in whatever way, on models of every scheduler: the model that runs for them learns of it."""

import json
import re
import socket
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.python_models.support import FLOATS, Models, grpc_inputs, until
from tests.python_models.test_cancellation import BY_REQUEST, cancel_by_grpc, metric, pending, said

IDLE = "max_sequence_idle_microseconds: 60000000"
CONFIGS = {
    "default": FLOATS,
    "dynamic": FLOATS + "max_batch_size: 8 dynamic_batching { }",
    "direct": FLOATS + f"sequence_batching {{ direct {{ }} {IDLE} }}",
    "oldest": FLOATS + f"sequence_batching {{ oldest {{ max_candidate_sequences: 4 }} {IDLE} }}",
    "iterative": FLOATS + "sequence_batching { iterative_sequence: true }",
    "ensemble": FLOATS,
}
ENSEMBLE = (
    FLOATS
    + """
platform: "ensemble"
ensemble_scheduling { step {
    model_name: "%s" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "OUT" }
} }
"""
)
OF_A_SEQUENCE = {"sequence_id": 7, "sequence_start": True, "sequence_end": True}


def by_deadline(models: Models, name: str, options: dict[str, Any], rows: int) -> Callable[[], None]:
    """A gRPC call that is waited for until its deadline."""
    done = threading.Event()
    inputs = grpc_inputs(IN=np.ones((rows, 1) if rows else 1, np.float32))
    models.grpc.async_infer(
        name, inputs, lambda result, error: done.set(), request_id="r", client_timeout=3, **options
    )
    return lambda: until(done.is_set, "the deadline")


def by_cancelling(models: Models, name: str, options: dict[str, Any], rows: int) -> Callable[[], None]:
    """A gRPC call that is cancelled."""
    inputs = grpc_inputs(IN=np.ones((rows, 1) if rows else 1, np.float32))
    call = models.grpc.async_infer(name, inputs, lambda result, error: None, request_id="r", **options)
    return lambda: call.cancel() and None


def by_closing(models: Models, name: str, options: dict[str, Any], rows: int) -> Callable[[], None]:
    """A request over HTTP whose client closes the connection."""
    tensor = {"name": "IN", "datatype": "FP32", "shape": [rows, 1] if rows else [1], "data": [1]}
    body = json.dumps({"id": "r", "parameters": options, "inputs": [tensor]}).encode()
    host, _, port = models.server.http.partition(":")
    connection = socket.create_connection((host, int(port)))
    head = f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection.close


@pytest.mark.parametrize("begin", [by_deadline, by_cancelling, by_closing])
@pytest.mark.parametrize("scheduler", CONFIGS)
def test_running_model_learns_that_its_client_gave_up(
    models: Models,
    scheduler: str,
    begin: Callable[[Models, str, dict[str, Any], int], Callable[[], None]],
) -> None:
    name = step = models.load(BY_REQUEST, CONFIGS[scheduler])
    if scheduler == "ensemble":
        name = f"ensemble_of_{step}"
        directory = models.repository / name
        (directory / "1").mkdir(parents=True)
        (directory / "config.pbtxt").write_text(re.sub('backend: ".*?"', "", ENSEMBLE % step))
        models.http.load_model(name)
    options = OF_A_SEQUENCE if scheduler in ("direct", "oldest") else {}
    give_up = begin(models, name, options, int(scheduler == "dynamic"))
    until(lambda: said(models, step, "began r"), "the execution")
    give_up()
    until(lambda: said(models, step, "cancelled r"), "the model to learn of it")
    assert not said(models, step, "not cancelled r")


def test_thousands_of_requests_that_were_given_up_leave_nothing(models: Models) -> None:
    name = models.load(BY_REQUEST)
    release = cancel_by_grpc(models, name, "first")
    until(lambda: said(models, name, "began first"), "the execution")
    memory: list[int] = []
    for _ in range(15):
        for leave in [by_closing(models, name, {"timeout": 60_000_000}, 0) for _ in range(200)]:
            leave()
        until(
            lambda: metric(models, 'halimede_requests_in_flight{protocol="http"}') == 0, "the requests to end"
        )
        assert pending(models, name) == 0
        memory.append(metric(models, "\nhalimede_resident_memory_bytes"))
    assert memory[-1] - memory[4] < 8 << 20
    release()
