import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from halimede.core.datatypes import FP32
from halimede.core.errors import CancelledError, InternalError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede_worker.calls.calls import channels
from halimede_worker.calls.iterators import ResponseIterator
from halimede_worker.errors import TritonError, TritonModelException
from tests.workers.calling import (
    IDENTITY,
    SQUARE,
    ScriptedModel,
    Server,
    count,
    echo,
    error_of,
    failure,
    fp32,
    result,
    worker_of,
)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server, worker_of(server):
        server.add(IDENTITY)
        server.add(SQUARE)
        yield server


def stream(request: Any) -> ResponseIterator:
    responses = request.exec(decoupled=True)
    assert isinstance(responses, ResponseIterator)
    return responses


def begin(server: Server, model: ScriptedModel) -> tuple[ResponseIterator, InferRequest]:
    """A stream with its first response, [0]."""
    made: list[ResponseIterator] = []
    thread = threading.Thread(target=lambda: made.append(stream(echo([1], model=model.name))))
    thread.start()
    request = model.came()
    server.respond(request, fp32(0), False)
    thread.join()
    return made.pop(), request


def is_congested(request: InferRequest) -> bool:
    return request.congested


def values(responses: Any) -> list[list[float]]:
    return [result(response) for response in responses]


def test_a_final_flag_by_itself_is_one_more_empty_response(server: Server) -> None:
    responses = list(stream(count(3)))
    assert values(responses[:3]) == [[3], [3], [3]]
    assert responses[3].output_tensors() == []
    assert not responses[3].has_error()
    assert len(responses) == 4


def test_no_responses_at_all_are_one_empty_one(server: Server) -> None:
    (response,) = stream(count(0))
    assert response.output_tensors() == []


def test_a_model_that_is_not_decoupled_gives_exactly_one_response(server: Server) -> None:
    assert values(stream(echo([4]))) == [[4]]


def test_a_request_that_cannot_be_made_gives_one_response_that_says_so(server: Server) -> None:
    (response,) = stream(echo([1], model="nope"))
    assert "Request for unknown model: 'nope' is not found" in error_of(response)


def test_a_final_response_with_outputs_is_the_last(server: Server) -> None:
    responses, request = begin(server, server.script("m", decoupled=True))
    server.respond(request, fp32(1), True)
    assert values(responses) == [[0], [1]]


def test_a_finished_iterator_begins_again_for_a_new_loop_but_not_for_next(server: Server) -> None:
    responses = stream(count(2))
    assert len(list(responses)) == 3
    with pytest.raises(StopIteration):
        next(responses)
    assert len(list(responses)) == 3


def test_a_loop_that_was_left_goes_on_where_it_was(server: Server) -> None:
    responses, request = begin(server, server.script("m", decoupled=True))
    for response in responses:
        assert result(response) == [0]
        break
    for number in (1, 2, 3):
        server.respond(request, fp32(number), number == 3)
    assert result(next(responses)) == [1]
    assert values(responses) == [[2], [3]]
    assert values(responses) == [[0], [1], [2], [3]]
    iter(responses)
    assert result(next(responses)) == [0]
    assert values(responses) == [[1], [2], [3]]


def test_an_error_in_the_middle_comes_in_its_place(server: Server) -> None:
    responses, request = begin(server, server.script("m", decoupled=True))
    server.respond(request, failure(InternalError("this one failed")), False)
    server.respond(request, fp32(2), True)
    first, error, last = responses
    assert result(first) == [0]
    assert error_of(error) == "this one failed"
    assert result(last) == [2]


def test_cancel_asks_the_model_which_decides(server: Server) -> None:
    responses, request = begin(server, server.script("m", decoupled=True))
    asked = threading.Event()
    request.on_cancel = lambda _: asked.set()
    responses.cancel()
    assert asked.wait(10)
    server.respond(request, fp32(1), False)
    server.respond(request, failure(CancelledError("as you wish")), True)
    first, second, last = responses
    assert [result(first), result(second)] == [[0], [1]]
    error = last.error()
    assert error is not None
    assert error.code() == TritonError.CANCELLED
    responses.cancel()


def test_cancel_after_the_end_does_not_touch_the_next_stream_on_that_socket(server: Server) -> None:
    responses, request = begin(server, server.script("m", decoupled=True))
    server.respond(request, None, True)
    assert len(list(responses)) == 2
    following, request = begin(server, server.script("n", decoupled=True))
    responses.cancel()
    server.respond(request, fp32(1), True)
    assert values(following) == [[0], [1]]
    assert not request.cancelled


def test_a_stream_that_is_left_is_cancelled_and_its_socket_serves_others(server: Server) -> None:
    model = server.script("m", decoupled=True)
    opened = set()
    for _ in range(200):
        responses, request = begin(server, model)
        cancelled = threading.Event()
        request.on_cancel = lambda _, event=cancelled: event.set()
        for _ in range(3):
            server.respond(request, fp32(9), False)
        assert result(next(responses)) == [0]
        del responses
        assert cancelled.wait(10)
        server.respond(request, fp32(9), True)
        assert result(echo([5]).exec()) == [5]
        opened.add(server.opened)
    assert opened == {1}


def test_a_request_that_is_executed_for_its_effect_alone_runs_to_its_end(server: Server) -> None:
    responses, request = begin(server, server.script("m", decoupled=True))
    del responses
    assert result(echo([1]).exec()) == [1]  # over the same socket, so it has been heard
    assert not request.cancelled
    server.respond(request, fp32(1), True)
    assert result(echo([2]).exec()) == [2]


def test_a_slow_reader_holds_the_model_back_and_a_leaver_does_not(server: Server) -> None:
    responses, request = begin(server, server.script("m", decoupled=True))
    drained = threading.Semaphore(0)
    request.on_drain = lambda _: drained.release()
    sent = 0
    while not is_congested(request):
        sent += 1
        server.respond(request, fp32(sent), False)
        assert sent < 10_000
    assert result(next(responses)) == [0]
    for number in range(1, sent + 1):
        assert result(next(responses)) == [number]
    assert drained.acquire(timeout=60)
    while not is_congested(request):
        server.respond(request, fp32(0), False)
    del responses
    assert drained.acquire(timeout=60)
    server.respond(request, None, True)
    assert result(echo([3]).exec()) == [3]


def test_large_responses_are_kept_for_a_second_loop(server: Server) -> None:
    responses, request = begin(server, server.script("m", decoupled=True))
    for number in range(20):
        array = np.full(50_000, number, np.float32)
        server.respond(request, InferResponse({"OUTPUT0": Tensor.from_array(FP32, array)}), number == 19)
    for _ in range(2):
        assert [result(response)[-1] for response in responses] == [0, *range(20)]
    del responses, array
    gc.collect()
    echo([1]).exec()
    assert server.loop.call(lambda: len(server.memory._answered)) == 0  # noqa: SLF001 - what is left is seen only inside


def test_many_threads_may_share_an_iterator(server: Server) -> None:
    responses = stream(count(500))
    seen: list[Any] = []
    threads = [threading.Thread(target=lambda: seen.extend(responses)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) >= 501
    assert len(list(responses)) == 501


def test_an_iterator_can_be_awaited(server: Server) -> None:
    async def run() -> list[Any]:
        return await asyncio.gather(*[count(n).async_exec(decoupled=True) for n in range(30)])

    for number, responses in enumerate(asyncio.run(run())):
        assert len(list(responses)) == number + 1


def test_awaiting_an_iterator_holds_up_no_other_coroutine(server: Server) -> None:
    model = server.script("m", decoupled=True)

    async def run() -> Any:
        awaited = echo([1], model="m").async_exec(decoupled=True)
        assert result(await echo([2]).async_exec()) == [2]
        request = await asyncio.get_running_loop().run_in_executor(None, model.came)
        server.loop.loop.call_soon_threadsafe(request.respond, fp32(1), True)
        return await awaited

    assert values(asyncio.run(run())) == [[1]]


def test_a_cancelled_await_of_an_iterator_cancels_the_inference(server: Server) -> None:
    model = server.script("m", decoupled=True)

    async def run() -> InferRequest:
        in_thread = asyncio.get_running_loop().run_in_executor
        awaited = echo([1], model="m").async_exec(decoupled=True)
        request = await in_thread(None, model.came)
        cancelled = threading.Event()
        request.on_cancel = lambda _: cancelled.set()
        awaited.cancel()
        with pytest.raises(asyncio.CancelledError):
            await awaited
        assert await in_thread(None, cancelled.wait, 10)
        return request

    server.respond(asyncio.run(run()), None, True)
    assert result(echo([2]).exec()) == [2]


def test_a_server_that_goes_away_ends_a_stream_with_an_error(server: Server) -> None:
    responses, request = begin(server, server.script("m", decoupled=True))
    server.loop.call(server.calls.close)
    assert result(next(responses)) == [0]
    with pytest.raises(TritonModelException, match="does not answer any more"):
        next(responses)
    with pytest.raises(StopIteration):
        next(responses)
    assert request.cancelled
    assert not channels._idle  # noqa: SLF001 - what is left is seen only inside
