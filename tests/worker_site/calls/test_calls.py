import asyncio
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halimede.core.errors import InvalidArgumentError
from halimede.workers.channel import Message
from halimede_worker.calls.calls import MAX_IDLE, call, channels
from halimede_worker.errors import TritonModelException
from halimede_worker.messages import wire
from halimede_worker.messages.memory import Outgoing
from halimede_worker.runtime import runtime
from tests.support.waiting import wait_until
from tests.workers import model_process
from tests.workers.calling import IDENTITY, SQUARE, Server, worker_of


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        server.add(IDENTITY)
        server.add(SQUARE)
        yield server


@pytest.fixture
def worker(server: Server) -> Iterator[None]:
    with worker_of(server):
        yield


def double(message: Message) -> Any:
    return message[1] * 2


@pytest.mark.usefixtures("worker")
def test_a_call_gives_what_the_server_answers(server: Server) -> None:
    server.handlers[wire.METRIC_VALUE] = double
    assert call((wire.METRIC_VALUE, 21)) == 42


@pytest.mark.usefixtures("worker")
def test_a_failed_call_raises_what_the_server_says(server: Server) -> None:
    def refuse(message: Message) -> None:
        raise InvalidArgumentError("Invalid metric name")

    server.handlers[wire.NEW_FAMILY] = refuse
    with pytest.raises(TritonModelException, match=r"^Invalid metric name$"):
        call((wire.NEW_FAMILY, "1", "", 0))
    server.handlers[wire.METRIC_VALUE] = double
    assert call((wire.METRIC_VALUE, 1)) == 2


@pytest.mark.usefixtures("worker")
def test_a_call_may_carry_more_than_a_packet_both_ways(server: Server) -> None:
    server.handlers[wire.METRIC_VALUE] = double
    assert call((wire.METRIC_VALUE, b"x" * 500_000)) == b"x" * 1_000_000
    outgoing = Outgoing(runtime.memory)
    reference = outgoing.put_bytes(np.full(300_000, 7, np.uint8))
    server.handlers[wire.LOAD_MODEL] = lambda message: sum(server.memory.view(message[1]))
    assert call((wire.LOAD_MODEL, reference), outgoing.fresh) == 2_100_000


@pytest.mark.usefixtures("worker")
def test_thousands_of_threads_one_after_the_other_share_a_socket(server: Server) -> None:
    server.handlers[wire.METRIC_VALUE] = double
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(2000):
        thread = threading.Thread(target=call, args=((wire.METRIC_VALUE, number),))
        thread.start()
        thread.join()
    assert server.opened == 1
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2


@pytest.mark.usefixtures("worker")
def test_no_more_sockets_are_kept_than_may_be_of_use(server: Server) -> None:
    asked: list[asyncio.Future[int]] = []

    async def answer_all_at_once(message: Message) -> int:
        asked.append(asyncio.get_running_loop().create_future())
        if len(asked) == MAX_IDLE + 20:
            for future in asked:
                future.set_result(0)
        return await asked[-1]

    server.handlers[wire.METRIC_VALUE] = answer_all_at_once
    threads = [threading.Thread(target=call, args=((wire.METRIC_VALUE, 0),)) for _ in range(MAX_IDLE + 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.opened == MAX_IDLE + 20
    assert len(channels._idle) == MAX_IDLE  # noqa: SLF001 - what is left is seen only inside


@pytest.mark.usefixtures("worker")
def test_an_interrupted_call_spoils_no_later_one(server: Server) -> None:
    interrupted, cancelled = threading.Event(), threading.Event()

    def raise_once(*_: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    async def interrupt(message: Message) -> None:
        try:
            while True:  # a signal that comes before the thread is in the system call does not end the call
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                await asyncio.sleep(0.01)  # sleeps: between signals
        finally:
            cancelled.set()

    server.handlers[wire.MODEL_READY] = interrupt
    server.handlers[wire.METRIC_VALUE] = double
    usual = signal.signal(signal.SIGINT, raise_once)
    try:
        with pytest.raises(KeyboardInterrupt):
            call((wire.MODEL_READY, "m", ""))
        assert cancelled.wait(60), "the server is told that nobody waits"
    finally:
        signal.signal(signal.SIGINT, usual)
    assert call((wire.METRIC_VALUE, 4)) == 8


@pytest.mark.usefixtures("worker")
def test_a_server_that_goes_away_is_an_error(server: Server) -> None:
    def close(message: Message) -> int:
        server.calls.close()
        return 0

    server.handlers[wire.METRIC_VALUE] = close
    with pytest.raises(TritonModelException, match="does not answer any more"):
        call((wire.METRIC_VALUE, 0))
    server.disconnect()
    with pytest.raises(TritonModelException, match="does not answer any more"):
        call((wire.METRIC_VALUE, 0))


def test_a_process_that_is_no_worker_cannot_call() -> None:
    with pytest.raises(TritonModelException, match="can only be called in the process of a model"):
        call((wire.METRIC_VALUE, 0))


def test_children_of_a_pool_call_models(server: Server) -> None:
    answers = model_process.in_worker(server, model_process.call_from_pool)
    assert answers == [100, *range(40), 200]
    calls = server.calls
    wait_until(
        lambda: not server.loop.call(lambda: calls._servers or calls._children),  # noqa: SLF001 - what is left of them
        "it to be read that they have ended",
    )


def test_children_use_shared_memory_again(server: Server) -> None:
    assert model_process.in_worker(server, model_process.call_much_from_pool) == list(range(6))


def test_a_child_may_pass_on_what_came_before_the_fork(server: Server) -> None:
    answer = model_process.in_worker(server, model_process.pass_on_in_child)
    assert answer == [99_997, 99_998, 99_999]


def test_a_stream_cannot_be_read_in_a_child_and_is_not_spoilt_by_it(server: Server) -> None:
    text = model_process.in_worker(server, model_process.read_stream_in_child)
    assert "only be read in the process that executed it" in text
