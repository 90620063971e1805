import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from halimede.core.errors import InvalidArgumentError
from halimede_worker.calls.calls import channels
from halimede_worker.calls.preferred_memory import MemoryType, PreferredMemory
from halimede_worker.errors import TritonError, TritonModelException
from halimede_worker.requests import InferenceRequest
from halimede_worker.runtime import Stage, runtime
from tests.workers.calling import (
    IDENTITY,
    SQUARE,
    Server,
    count,
    echo,
    error_of,
    failure,
    fp32,
    result,
    worker_of,
)

LARGE = 100_000


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server, worker_of(server):
        server.add(IDENTITY)
        server.add(SQUARE)
        yield server


def test_exec_gives_the_response_of_the_other_model(server: Server) -> None:
    assert result(echo([1, 2, 3]).exec()) == [1, 2, 3]


def test_one_request_object_can_be_executed_again_and_at_the_same_time(server: Server) -> None:
    request = echo(np.arange(LARGE))
    assert result(request.exec()) == result(request.exec())
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(request.exec())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result(answer)[-1] for answer in answers] == [LARGE - 1] * 8


def test_what_is_wrong_with_a_request_comes_as_a_response(server: Server) -> None:
    unknown = error_of(echo([1], model="nope").exec())
    assert unknown == (
        "Model nope - Error when running inference: Failed for execute the inference request. Model 'nope' is not "
        "ready. Request for unknown model: 'nope' is not found"
    )
    missing = InferenceRequest(inputs=[], requested_output_names=[], model_name="identity").exec()
    assert error_of(missing) == (
        "Model identity - Error when running inference: [request id: <id_unknown>] expected 1 inputs but got 0 "
        "inputs for model 'identity'. Got input(s) [], but missing required input(s) ['INPUT0']. Please provide "
        "all required input(s)."
    )
    output = InferenceRequest(
        inputs=echo([1]).inputs(), requested_output_names=["NOPE"], model_name="identity"
    ).exec()
    assert "unexpected inference output 'NOPE' for model 'identity'" in error_of(output)
    twice = InferenceRequest(
        request_id="r", inputs=echo([1]).inputs() * 2, requested_output_names=[], model_name="identity"
    ).exec()
    assert error_of(twice) == (
        "Model identity - Error when running inference: [request id: r] input 'INPUT0' already exists in request"
    )
    assert result(echo([7]).exec()) == [7]


def test_a_failed_execution_is_told_verbatim_with_its_code(server: Server) -> None:
    model = server.script("broken")
    responses: list[Any] = []
    thread = threading.Thread(target=lambda: responses.append(echo([1], model="broken").exec()))
    thread.start()
    server.respond(model.came(), failure(InvalidArgumentError("that is no picture")))
    thread.join()
    assert error_of(responses[0]) == "that is no picture"
    assert responses[0].error().code() == TritonError.INVALID_ARG


def test_a_decoupled_model_needs_decoupled(server: Server) -> None:
    assert error_of(count(2).exec()) == (
        "Model square - Error when running inference: Model square is using the decoupled. The current BLS request "
        "call doesn't support models using the decoupled transaction policy. Please use 'decoupled=True' argument "
        "to the 'exec' or 'async_exec' calls for decoupled models.'"
    )


def test_outputs_preferred_on_a_gpu_that_is_not_there_are_an_error(server: Server) -> None:
    gpu = PreferredMemory(MemoryType.TRITONSERVER_MEMORY_GPU, 0)
    refused = error_of(echo([1], preferred_memory=gpu).exec())
    assert refused.startswith("BackendMemory::Create, all allocation types failed:\n\tGPU: ")
    cpu = PreferredMemory(MemoryType.TRITONSERVER_MEMORY_CPU, 0)
    assert result(echo([1], preferred_memory=cpu).exec()) == [1]


@pytest.mark.parametrize("stage", [Stage.LOADING, Stage.FINALIZING])
def test_no_bls_in_initialize_and_finalize(server: Server, stage: Stage) -> None:
    runtime.stage = stage
    with pytest.raises(
        TritonModelException, match=r"^BLS is only supported during the 'execute' function\.$"
    ):
        echo([1]).exec()
    with pytest.raises(
        TritonModelException, match=r"^BLS is only supported during the 'execute' function\.$"
    ):
        echo([1]).async_exec()


def test_all_that_a_request_says_reaches_the_model(server: Server) -> None:
    model = server.script("m")
    request = echo(
        [1],
        model="m",
        request_id="r",
        correlation_id="sequence",
        flags=3,
        timeout=1000,
        parameters={"text": "ä", "number": 3, "truth": True},
    )
    thread = threading.Thread(target=request.exec)
    thread.start()
    got = model.came()
    assert (got.id, got.sequence_id, got.sequence_start, got.sequence_end) == ("r", "sequence", True, True)
    assert (got.timeout_us, got.priority, got.outputs) == (1000, 0, ("OUTPUT0",))
    assert got.parameters == {"text": "ä", "number": 3, "truth": True}
    server.respond(got, fp32(1))
    thread.join()


def test_fifty_threads_call_at_once(server: Server) -> None:
    server.script("gather", gather=50)
    answers: list[list[float]] = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(result(echo([n], model="gather").exec())))
        for n in range(50)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [[n] for n in range(50)]


def test_a_hundred_awaited_calls_run_at_once_over_one_socket(server: Server) -> None:
    server.script("gather", gather=100)

    async def run() -> list[Any]:
        return await asyncio.gather(*[echo([n], model="gather").async_exec() for n in range(100)])

    answers = asyncio.run(run())
    assert [result(answer) for answer in answers] == [[n] for n in range(100)]
    assert server.opened == 1
    asyncio.run(run_again())
    assert server.opened == 1, "the socket was given back when the loop had no calls left"


async def run_again() -> None:
    assert result(await echo([5]).async_exec()) == [5]


def test_async_exec_needs_a_running_loop(server: Server) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        echo([1]).async_exec()


def test_exec_works_inside_a_coroutine(server: Server) -> None:
    async def run() -> list[Any]:
        awaited = echo([1]).async_exec()
        return [echo([2]).exec(), await awaited]

    assert [result(answer) for answer in asyncio.run(run())] == [[2], [1]]


def test_a_cancelled_await_cancels_the_inference_and_spoils_no_other(server: Server) -> None:
    model = server.script("slow")

    async def run() -> Any:
        slow = echo([1], model="slow").async_exec()
        in_thread = asyncio.get_running_loop().run_in_executor
        request = await in_thread(None, model.came)
        cancelled = threading.Event()
        request.on_cancel = lambda _: cancelled.set()
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        answer = await echo([2]).async_exec()
        assert await in_thread(None, cancelled.wait, 10)
        request_loop = server.loop.loop
        request_loop.call_soon_threadsafe(request.respond, fp32(9), True)
        assert result(await echo([3]).async_exec()) == [3]
        return answer

    assert result(asyncio.run(run())) == [2]
    assert result(echo([4]).exec()) == [4]


def test_a_loop_that_was_closed_with_calls_under_way_spoils_no_later_one(server: Server) -> None:
    server.script("never")

    async def leave() -> None:
        echo([1], model="never").async_exec()

    asyncio.run(leave())
    asyncio.run(run_again())


def test_large_tensors_are_passed_on_without_being_copied(server: Server) -> None:
    data = np.arange(LARGE, dtype=np.float32)
    response: Any = echo(data).exec()
    (output,) = response.output_tensors()
    output._name = "INPUT0"  # noqa: SLF001 - what the package does itself
    model = server.script("m")
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(echo(output, model="m").exec()))
    thread.start()
    request = model.came()
    assert request.inputs["INPUT0"].shape == (LARGE,)
    assert np.array_equal(request.inputs["INPUT0"].array, data)
    server.respond(request, fp32(1))
    thread.join()
    assert result(answers[0]) == [1]


def test_memory_of_requests_and_responses_is_used_again(server: Server) -> None:
    kept: Any = echo(np.full(LARGE, 7)).exec()
    for number in range(100):
        assert result(echo(np.full(LARGE, number)).exec())[0] == number
    assert result(kept)[0] == 7, "what a model keeps is not written over"
    assert len(runtime.memory._lent) + len(runtime.memory._free) < 8  # noqa: SLF001 - what is left is seen only inside
    assert len(server.memory._answered) < 4  # noqa: SLF001 - what is left is seen only inside


def test_a_server_that_goes_away_is_an_error_and_not_a_wait(server: Server) -> None:
    model = server.script("never")
    failures: list[TritonModelException] = []

    def wait() -> None:
        with pytest.raises(TritonModelException, match="does not answer any more") as raised:
            echo([1], model="never").exec()
        failures.append(raised.value)

    thread = threading.Thread(target=wait)
    thread.start()
    request = model.came()
    server.loop.call(server.calls.close)
    thread.join()
    assert failures
    assert request.cancelled


def test_awaited_calls_fail_when_the_server_goes_away(server: Server) -> None:
    model = server.script("never")

    async def run() -> None:
        future = echo([1], model="never").async_exec()
        await asyncio.get_running_loop().run_in_executor(None, model.came)
        server.loop.loop.call_soon_threadsafe(server.calls.close)
        with pytest.raises(TritonModelException, match="does not answer any more"):
            await future

    asyncio.run(run())
    assert not channels._idle  # noqa: SLF001 - what is left is seen only inside
