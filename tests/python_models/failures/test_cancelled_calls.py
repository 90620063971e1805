"""Clients that give up while the model that works for them has called another one."""

from pathlib import Path

import pytest

from tests.python_models.cancelling import (
    ONE,
    ROWS,
    WAYS,
    Cancelling,
    cancel_by_grpc,
    cancel_by_http,
    cancel_running,
    cancelled,
    pending,
    said,
)
from tests.python_models.support import DECOUPLED, Models, executing, grpc_inputs, kill
from tests.support.waiting import wait_until

OUT = "pb_utils.InferenceResponse([pb_utils.Tensor('OUT', np.ones((1, 1), np.float32))])"
CALLED = """
    request = requests[0]
    print("began", request.request_id())
    sender = request.get_response_sender()
    {first}
    while not os.path.exists("{go_on}") and not sender.is_cancelled():
        time.sleep(0.005)
    print("cancelled" if sender.is_cancelled() else "not cancelled", request.request_id())
"""
CALL = """
        call = pb_utils.InferenceRequest(
            model_name="{called}", requested_output_names=["OUT"], inputs=request.inputs(),
            request_id=request.request_id(),
        )
"""
RESULT = """
        until = time.monotonic() + (60 if request.request_id() else 0)  # the server learns it after its client
        while not request.is_cancelled() and time.monotonic() < until:
            {sleep}(0.005)
        print("client", "gone" if request.is_cancelled() else "there")
        print("answer", answer.error().code() if answer.has_error() else "ok")
"""


def calling(statements: str, called: str, *, coroutine: bool = False) -> str:
    """A model that calls another one by these statements, of which the last makes `answer`."""
    return f"""
class TritonPythonModel:
    {"async " if coroutine else ""}def execute(self, requests):
        request = requests[0]
        {CALL.format(called=called).strip()}
        {statements.strip()}
        {RESULT.format(sleep="await asyncio.sleep" if coroutine else "time.sleep").strip()}
        return [{OUT}]
"""


def called_model(models: Models, go_on: Path, *, decoupled: bool = False, first: bool = False) -> str:
    """A model that answers when there is such a file, or when it is cancelled.

    A decoupled one may send a `first` response before.
    """
    body = CALLED.format(go_on=go_on, first=f"sender.send({OUT})" if first else "")
    if decoupled:
        return models.load(executing(f"{body}\n    sender.send({OUT}, 1)"), ROWS + DECOUPLED)
    return models.load(executing(f"{body}\n    return [{OUT}]"), ROWS)


@pytest.mark.parametrize("cancelling", WAYS)
@pytest.mark.parametrize(
    ("statements", "coroutine", "decoupled"),
    [
        ("answer = call.exec()", False, False),
        ("answer = await call.async_exec()", True, False),
        ("answer = next(iter(call.exec(decoupled=True)))", False, True),
    ],
    ids=["exec", "async_exec", "decoupled"],
)
def test_call_goes_on_and_its_caller_sees_that_the_client_is_gone(
    models: Models, tmp_path: Path, cancelling: Cancelling, statements: str, coroutine: bool, decoupled: bool
) -> None:
    go_on = tmp_path / "go on"
    called = called_model(models, go_on, decoupled=decoupled)
    caller = models.load(calling(statements, called, coroutine=coroutine), ROWS)
    request_id, cancel = cancel_running(cancelling, models, caller, called)
    cancel()
    assert not said(models, called, f"cancelled {request_id}")
    go_on.touch()
    wait_until(lambda: said(models, caller, "answer ok"), "the answer")
    assert said(models, called, f"not cancelled {request_id}")
    assert said(models, caller, "client gone")
    assert models.infer(caller, ONE).tolist() == [[1]]


@pytest.mark.parametrize("cancelling", [cancel_by_grpc, cancel_by_http])
@pytest.mark.parametrize("waits", [False, True], ids=["executing", "waiting"])
def test_model_that_awaits_a_call_may_cancel_it(
    models: Models, tmp_path: Path, cancelling: Cancelling, *, waits: bool
) -> None:
    called = called_model(models, tmp_path / "go on")
    statements = """
        task = asyncio.ensure_future(call.async_exec())
        while not task.done() and not request.is_cancelled():
            await asyncio.sleep(0.005)
        if not task.done():
            task.cancel()
            print("left")
            return [pb_utils.InferenceResponse(error=pb_utils.TritonError("gone", pb_utils.TritonError.CANCELLED))]
        answer = task.result()
    """
    caller = models.load(calling(statements, called, coroutine=True), ROWS)
    release = cancel_by_grpc(models, called, "first") if waits else None
    if waits:
        wait_until(lambda: said(models, called, "began first"), "the execution")
    cancel = cancelling(models, caller, "r")
    wait_until(lambda: pending(models, called) == 1 if waits else said(models, called, "began r"), "the call")
    cancel()
    wait_until(lambda: said(models, caller, "left"), "the model to give up")
    if release is None:
        wait_until(lambda: said(models, called, "cancelled r"), "the called model to learn of it")
        return
    release()
    wait_until(lambda: cancelled(models, called) == 1, "the call to be gone")
    assert pending(models, called) == 0
    assert not said(models, called, "began r")


@pytest.mark.parametrize("cancelling", WAYS)
def test_model_that_iterates_over_responses_may_cancel_them(
    models: Models, tmp_path: Path, cancelling: Cancelling
) -> None:
    called = called_model(models, tmp_path / "go on", decoupled=True, first=True)
    statements = """
        responses = call.exec(decoupled=True)
        while not request.is_cancelled():
            time.sleep(0.005)
        responses.cancel()
        answer = list(responses)[-1]
    """
    caller = models.load(calling(statements, called), ROWS)
    request_id, cancel = cancel_running(cancelling, models, caller, called)
    cancel()
    wait_until(lambda: said(models, called, f"cancelled {request_id}"), "the called model to learn of it")
    wait_until(lambda: said(models, caller, "answer ok"), "the last response")


def test_calls_of_a_process_that_ends_are_cancelled(models: Models, tmp_path: Path) -> None:
    called = called_model(models, tmp_path / "go on")
    caller = models.load(calling("answer = call.exec()", called), ROWS)
    models.grpc.async_infer(caller, grpc_inputs(IN=ONE), lambda result, error: None, request_id="r")
    wait_until(lambda: said(models, called, "began r"), "the call")
    kill(models.pids(caller)[0])
    wait_until(lambda: said(models, called, "cancelled r"), "the called model to learn of it")
