"""Clients that give up: the model that works for them learns of it; what waits is never run."""

import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as grpcclient

from tests.python_models.cancelling import (
    BY_REQUEST,
    ONE,
    ROWS,
    WAITING,
    WAYS,
    Cancelling,
    cancel_by_grpc,
    cancel_running,
    pending,
    said,
)
from tests.python_models.support import DECOUPLED, FLOATS, ONES, Models, Stream, executing, grpc_inputs
from tests.support.waiting import wait_until

IN_SERVER_TOO = True

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


@pytest.mark.parametrize("cancelling", WAYS)
@pytest.mark.parametrize(
    "source",
    [BY_REQUEST, BY_SENDER, BY_THREAD, BY_COROUTINE],
    ids=["request", "sender", "thread", "coroutine"],
)
def test_model_learns_that_its_client_gave_up(models: Models, cancelling: Cancelling, source: str) -> None:
    name = models.load(source, ROWS)
    request_id, cancel = cancel_running(cancelling, models, name)
    cancel()
    wait_until(lambda: said(models, name, f"cancelled {request_id}"), "the model to learn of it")
    assert not said(models, name, f"not cancelled {request_id}")
    wait_until(lambda: models.statistics(name)["execution_count"] == 1, "the end of the execution")


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
        wait_until(partial(said, models, name, f"cancelled {request_id}"), "the model to learn of it")


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
    wait_until(lambda: said(models, name, "began long wanted"), "the execution")
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
            until = time.monotonic() + 60
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
    wait_until(lambda: pending(models, name) == 0, "the execution")
    calls[1].cancel()
    wait_until(lambda: len(results) == 3, "the answers")
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
        assert done.wait(60)
        call.cancel()
    assert models.infer(name).tolist() == [1]
