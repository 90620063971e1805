"""Clients that give up: the model that works for them learns of it; what waits is never run."""

import json
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from tests.python_models.support import DECOUPLED, FLOATS, ONES, Models, Stream, executing, grpc_inputs, until

WAITING = """
    for request in requests:
        print("began", request.request_id())
    def wait(request, is_cancelled):
        until = time.monotonic() + 10
        while not is_cancelled() and time.monotonic() < until:
            time.sleep(0.005)
        said = "cancelled" if is_cancelled() else "not cancelled"
        sys.stdout.write(f"{said} {request.request_id()}\\n")  # at once, as other threads write too
"""
BY_REQUEST = executing(
    WAITING
    + """
    wait(requests[0], requests[0].is_cancelled)
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32))]) for _ in requests]
"""
)
BY_SENDER = executing(
    WAITING
    + """
    wait(requests[0], requests[0].get_response_sender().is_cancelled)
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32))]) for _ in requests]
"""
)
BY_THREAD = executing(
    WAITING
    + """
    sender = requests[0].get_response_sender()
    def work(request):
        wait(request, sender.is_cancelled)
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32))]), 1)
    threading.Thread(target=work, args=(requests[0],)).start()
    return None
"""
)
BY_COROUTINE = """
class TritonPythonModel:
    async def execute(self, requests):
        request = requests[0]
        print("began", request.request_id())
        for _ in range(2000):
            if request.is_cancelled():
                print("cancelled", request.request_id())
                break
            await asyncio.sleep(0.005)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32))])]
"""


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
        assert done.wait(20)
        assert errors[0] is not None
        assert errors[0].status() == f"StatusCode.{'CANCELLED' if deadline is None else 'DEADLINE_EXCEEDED'}"

    return cancel


def cancel_by_deadline(models: Models, name: str, request_id: str, sequence: int = 0) -> Callable[[], None]:
    """A request over gRPC, whose deadline passes."""
    return cancel_by_grpc(models, name, request_id, sequence, deadline=1)


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


@pytest.mark.parametrize("cancelling", WAYS)
@pytest.mark.parametrize(
    "source",
    [BY_REQUEST, BY_SENDER, BY_THREAD, BY_COROUTINE],
    ids=["request", "sender", "thread", "coroutine"],
)
def test_model_learns_that_its_client_gave_up(models: Models, cancelling: Cancelling, source: str) -> None:
    name = models.load(source, ROWS)
    cancel = cancelling(models, name, "r")
    until(lambda: said(models, name, "began r"), "the execution")
    cancel()
    until(lambda: said(models, name, "cancelled r"), "the model to learn of it")
    assert not said(models, name, "not cancelled r")
    until(lambda: models.statistics(name)["execution_count"] == 1, "the end of the execution")


def test_model_learns_that_a_stream_was_cancelled(models: Models) -> None:
    source = executing(
        WAITING
        + """
    sender = requests[0].get_response_sender()
    sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32))]))
    def work(request):
        wait(request, sender.is_cancelled)
        sender.send(flags=1)
    threading.Thread(target=work, args=(requests[0],)).start()
"""
    )
    name = models.load(source, FLOATS + DECOUPLED)
    stream = Stream(models)
    stream.send(name, request_id="s1")
    stream.send(name, request_id="s2")
    assert stream.take_all(2)
    stream.close(cancel=True)
    for request_id in ("s1", "s2"):
        until(partial(said, models, name, f"cancelled {request_id}"), "the model to learn of it")


@pytest.mark.parametrize(
    "scheduling",
    [
        "",
        "dynamic_batching { }",
        "dynamic_batching { priority_levels: 2 default_priority_level: 2 }",
        "dynamic_batching { preserve_ordering: true }",
        "sequence_batching { direct { } }",
        "sequence_batching { oldest { max_candidate_sequences: 1 } }",
        "sequence_batching { iterative_sequence: true direct { } }",
    ],
)
def test_cancelled_request_that_waits_is_never_run(models: Models, scheduling: str) -> None:
    name = models.load(BY_REQUEST, f"{ROWS} {scheduling}")
    sequence = int("oldest" in scheduling or ("direct" in scheduling and "iterative" not in scheduling))
    release = cancel_by_grpc(models, name, "first", sequence)
    until(lambda: said(models, name, "began first"), "the execution")
    for number, cancelling in enumerate(WAYS, 2):
        cancel = cancelling(models, name, f"r{number}", number * sequence)
        if cancelling is not cancel_by_deadline:
            until(lambda: pending(models, name) == 1, "the request to wait")
        cancel()
        until(partial(has_cancelled, models, name, number - 1), "the request to be counted")
        assert pending(models, name) == 0
    release()
    until(lambda: said(models, name, "cancelled first"), "the end of the first")
    last = cancel_by_grpc(models, name, "last", 9 * sequence)
    until(lambda: said(models, name, "began last"), "the next one to be served")
    last()
    assert not any(said(models, name, f"began r{number}") for number in (2, 3, 4))
    until(lambda: models.statistics(name)["inference_stats"]["success"]["count"] == 2, "the end of the last")
    assert models.statistics(name)["inference_stats"]["fail"]["count"] == cancelled(models, name) == 3


def test_steps_of_an_ensemble_are_cancelled_with_it(models: Models) -> None:
    step = models.load(BY_REQUEST, ROWS)
    after = models.load(BY_REQUEST, ROWS)
    name = models.load_config(
        'platform: "ensemble" max_batch_size: 1 '
        'input { name: "IN" data_type: TYPE_FP32 dims: [1] } output { name: "OUT" data_type: TYPE_FP32 dims: [1] } '
        f'ensemble_scheduling {{ step {{ model_name: "{step}" model_version: -1 '
        'input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "half" } } '
        f'step {{ model_name: "{after}" model_version: -1 '
        'input_map { key: "IN" value: "half" } output_map { key: "OUT" value: "OUT" } } }'
    )
    release = cancel_by_grpc(models, step, "first")
    until(lambda: said(models, step, "began first"), "the execution")
    for number, cancelling in enumerate(WAYS):
        cancel = cancelling(models, name, f"waits{number}")
        if cancelling is not cancel_by_deadline:
            until(lambda: pending(models, step) == 1, "the step to wait")
        cancel()
        until(partial(has_cancelled, models, step, number + 1), "the step to be counted")
        assert pending(models, step) == 0
    release()
    for number, cancelling in enumerate(WAYS):
        cancel = cancelling(models, name, f"runs{number}")
        until(partial(said, models, step, f"began runs{number}"), "the step")
        cancel()
        until(partial(said, models, step, f"cancelled runs{number}"), "the model to learn of it")
    until(lambda: cancelled(models, name) == 6, "the requests to be counted")
    assert cancelled(models, step) == 3
    assert models.statistics(after)["execution_count"] == 0


def pending(models: Models, name: str) -> int:
    return metric(models, f'nv_inference_pending_request_count{{model="{name}",version="1"}}')


def cancelled(models: Models, name: str) -> int:
    return metric(models, f'nv_inference_request_failure{{model="{name}",reason="CANCELED",version="1"}}')


def has_cancelled(models: Models, name: str, count: int) -> bool:
    return cancelled(models, name) == count


def metric(models: Models, series: str) -> int:
    metrics = models.server.get("/metrics", models.server.metrics)[1].decode()
    return int(metrics.partition(f"{series} ")[2].partition("\n")[0] or 0)


def test_request_that_was_sent_ahead_and_cancelled_is_known_to_be_when_it_runs(
    models: Models, tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"
    name = models.load(
        executing(f"""
            request = requests[0]
            if request.request_id():
                print("began", request.request_id(), "cancelled" if request.is_cancelled() else "wanted")
            while request.request_id() == "long" and not os.path.exists("{go_on}"):
                time.sleep(0.2)  # and what is told of them meanwhile is read by another thread
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.ones(1, np.float32))])]
        """),
        ROWS,
    )
    for _ in range(100):  # so that it is known to be quick, and is sent requests ahead
        models.infer(name, ONE)
    models.grpc.async_infer(name, grpc_inputs(IN=ONE), lambda result, error: None, request_id="long")
    until(lambda: said(models, name, "began long wanted"), "the execution")
    cancels = {request_id: cancel_by_grpc(models, name, request_id) for request_id in "abc"}
    for request_id in "abc":
        cancels[request_id]()
    assert models.grpc.is_server_live()  # on the same connection: it has read of the cancellations
    go_on.touch()
    models.infer(name, ONE)
    for request_id in "abc":
        assert not said(models, name, f"began {request_id} wanted")


def test_one_of_a_batch_is_cancelled_alone(models: Models) -> None:
    name = models.load(
        executing("""
            until = time.monotonic() + 10
            while not any(request.is_cancelled() for request in requests) and time.monotonic() < until:
                time.sleep(0.005)
            return [
                pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([[request.is_cancelled()]], np.float32))])
                for request in requests
            ]
        """),
        FLOATS
        + "max_batch_size: 8\ndynamic_batching { max_queue_delay_microseconds: 2000000 preferred_batch_size: [3] }",
    )
    results: list[float] = []
    inputs = grpc_inputs(IN=np.ones((1, 1), np.float32))

    def take(result: grpcclient.InferResult | None, error: Exception | None) -> None:
        results.append(-1 if result is None else float(result.as_numpy("OUT")[0, 0]))

    calls = [models.grpc.async_infer(name, inputs, take) for _ in range(3)]
    until(lambda: pending(models, name) == 0, "the execution")
    calls[1].cancel()
    until(lambda: len(results) == 3, "the answers")
    assert sorted(results) == [-1, 0, 0]


def test_cancelling_what_is_answered_harms_nobody(models: Models) -> None:
    name = models.load(
        executing("return [pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.ones(1, np.float32))])]")
    )
    for _ in range(20):
        done = threading.Event()
        call = models.grpc.async_infer(
            name, grpc_inputs(IN=ONES), lambda result, error, done=done: done.set()
        )
        assert done.wait(20)
        call.cancel()
    assert models.infer(name).tolist() == [1]
