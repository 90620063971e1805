import os
import threading
from queue import Empty, SimpleQueue
from time import thread_time_ns

import pytest

from halimede.backends.base import Instance
from halimede.backends.batch import Batch
from halimede.backends.execution import execute
from halimede.backends.loop_share import ALONE_RUNS, MIN_WATCHED
from halimede.core.clock import MICROSECOND
from halimede.core.datatypes import FP32
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.scheduling import instances
from halimede.engine.scheduling.instances import AHEAD_COST_NS, Runner
from tests.engine.scheduling.helpers import signature, spec
from tests.support.loops import LoopThread

MANY = 30
"""Runs after which an instance's cost is known."""


class Recording(Instance):
    """Notes the thread of each execution; computes for `cost_us`."""

    may_block = False

    def __init__(self, cost_us: int = 0) -> None:
        self.cost_us = cost_us
        self.threads: list[str] = []

    def execute(self, batch: Batch) -> None:
        self.threads.append(threading.current_thread().name)
        end = thread_time_ns() + self.cost_us * MICROSECOND
        while thread_time_ns() < end:
            pass
        batch.responses = [InferResponse() for _ in batch.requests]


class Blocking(Recording):
    may_block = True


def batch(size: int = 16) -> Batch:
    def respond(response: InferResponse | None, final: bool) -> None:
        """Nobody waits."""

    request = InferRequest("m", {"IN": Tensor(FP32, (1, size), bytes(4 * size))}, respond)
    return Batch(signature(spec("IN", (-1,))), [request], 1, 4 * size)


def run(instance: Instance, batches: list[Batch]) -> None:
    """Run the batches one after the other on a loop."""
    with LoopThread() as loop:
        done = threading.Semaphore(0)
        runner = Runner("instance-thread", instance, loop.loop, lambda runner, batch: done.release())
        for item in batches:
            if not loop.call(runner.run, item):
                assert done.acquire(timeout=60)
        runner.close()


def test_a_tiny_model_moves_to_the_loop_once_it_is_measured() -> None:
    instance = Recording()
    run(instance, [batch() for _ in range(MANY)])
    assert instance.threads[0] == "instance-thread"
    assert instance.threads[-1] == "test-loop"


def test_a_slow_model_stays_on_its_thread() -> None:
    instance = Recording(cost_us=700)
    run(instance, [batch() for _ in range(MANY)])
    assert set(instance.threads) == {"instance-thread"}


def test_a_model_of_some_time_runs_on_the_loop_while_requests_come_one_by_one() -> None:
    instance = Recording(cost_us=200)
    run(instance, [batch() for _ in range(MIN_WATCHED + ALONE_RUNS + MANY)])
    assert set(instance.threads[:MIN_WATCHED]) == {"instance-thread"}
    first = instance.threads.index("test-loop")
    assert first >= MIN_WATCHED
    assert (
        instance.threads.count("test-loop") > MANY
    )  # fewer than ALONE_RUNS if the machine holds one of them up
    assert "instance-thread" in instance.threads[first:]  # to see whether requests still come one by one


def test_a_model_of_some_time_stays_on_its_thread_while_others_are_under_way() -> None:
    instance, other = Recording(cost_us=200), Recording(cost_us=200)
    with LoopThread() as loop:
        done = threading.Semaphore(0)
        first = Runner("first", instance, loop.loop, lambda runner, batch: done.release())
        second = Runner("second", other, loop.loop, lambda runner, batch: done.release())
        for _ in range(2 * MIN_WATCHED + MANY):
            started = loop.call(lambda: [runner.run(batch()) for runner in (first, second)])
            for on_loop in started:
                assert on_loop or done.acquire(timeout=60)
        first.close()
        second.close()
    assert set(instance.threads) == {"first"}
    assert set(other.threads) == {"second"}


def test_a_model_of_some_time_stays_on_its_thread_while_requests_wait_for_it() -> None:
    instance = Recording(cost_us=200)
    waiting = [batch() for _ in range(2 * MIN_WATCHED + MANY)]
    with LoopThread() as loop:
        done = threading.Event()

        def next_batch(runner: Runner, _: Batch) -> None:
            if not waiting:
                done.set()
            elif runner.run(waiting.pop()):
                next_batch(runner, _)

        runner = Runner("instance-thread", instance, loop.loop, next_batch)
        loop.call(runner.run, waiting.pop())
        assert done.wait(60)
        runner.close()
    assert set(instance.threads) == {"instance-thread"}


def test_one_slow_batch_sends_the_model_back_to_its_thread() -> None:
    instance = Recording()
    run(instance, [batch() for _ in range(MANY)])
    instance.threads.clear()
    batches = [batch() for _ in range(MANY)]
    with LoopThread() as loop:
        done = threading.Semaphore(0)
        runner = Runner("instance-thread", instance, loop.loop, lambda runner, batch: done.release())
        for number, item in enumerate(batches):
            instance.cost_us = 2000 if number == len(batches) - 2 else 0
            if not loop.call(runner.run, item):
                assert done.acquire(timeout=60)
        runner.close()
    assert instance.threads[-2:] == ["test-loop", "instance-thread"]


def test_a_model_that_may_block_never_runs_on_the_loop() -> None:
    instance = Blocking()
    run(instance, [batch() for _ in range(MANY)])
    assert set(instance.threads) == {"instance-thread"}


def test_a_nice_instance_gives_way_on_a_thread_of_its_own() -> None:
    levels: list[int] = []

    class Nice(Recording):
        def execute(self, batch: Batch) -> None:
            levels.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            super().execute(batch)

    instance = Nice()
    with LoopThread() as loop:
        done = threading.Semaphore(0)
        runner = Runner("nice-thread", instance, loop.loop, lambda runner, batch: done.release(), 19)
        for _ in range(MANY):
            assert not loop.call(runner.run, batch())
            assert done.acquire(timeout=60)
        runner.close()
    assert set(levels) == {19}
    assert set(instance.threads) == {"nice-thread"}


def test_a_large_batch_never_runs_on_the_loop() -> None:
    instance = Recording()
    run(instance, [batch() for _ in range(MANY)] + [batch(100_000)])
    assert instance.threads[-1] == "instance-thread"


class Choosy(Recording):
    """Fails each batch in which there is a request named `bad`."""

    def execute(self, batch: Batch) -> None:
        if any(request.id == "bad" for request in batch.requests):
            raise InvalidArgumentError("bad input")
        batch.responses = [InferResponse(parameters={"id": request.id}) for request in batch.requests]


@pytest.mark.parametrize("repeatable", [True, False])
def test_one_bad_request_fails_its_neighbours_only_where_runs_cannot_be_repeated(repeatable: bool) -> None:
    requests = [batch().requests[0] for _ in range(3)]
    for request, name in zip(requests, ("a", "bad", "c"), strict=True):
        request.id = name
    item = Batch(signature(spec("IN", (-1,))), requests, 3)
    instance = Choosy()
    instance.repeatable = repeatable
    execute(instance, item)
    failed = [response.error is not None for response in item.responses]
    assert failed == ([False, True, False] if repeatable else [True, True, True])


class Failing(Recording):
    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self.error = error

    def execute(self, batch: Batch) -> None:
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (InvalidArgumentError("the model says no"), "the model says no"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
        (None, "the backend gave 0 responses to 1 requests"),
    ],
)
def test_whatever_goes_wrong_is_an_error_response_to_each_request(error: Exception | None, text: str) -> None:
    item = batch()
    execute(Failing(error), item)
    assert item.failed
    assert [str(response.error) for response in item.responses] == [text]


def state(runner: Runner) -> tuple[bool, bool]:
    """Whether it takes a batch, and whether only a full one."""
    return runner.free, runner.only_full


def state_after(loop: LoopThread, runner: Runner, item: Batch) -> tuple[bool, bool]:
    """As the loop sees it before it can hear of the batch's end, on the runner's thread."""
    on_loop, seen = loop.call(lambda: (runner.run(item), state(runner)))
    assert not on_loop
    return seen


class Gated(Recording):
    """Waits for leave where it is told to."""

    may_block = True

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.begun: list[Batch] = []

    def execute(self, batch: Batch) -> None:
        self.begun.append(batch)
        assert self.gate.wait(60)
        super().execute(batch)


@pytest.mark.parametrize("ahead", [True, False])
def test_an_instance_of_short_batches_takes_one_ahead_if_it_may(ahead: bool) -> None:
    instance = Gated()
    with LoopThread() as loop:
        done = threading.Semaphore(0)
        runner = Runner(
            "instance-thread", instance, loop.loop, lambda runner, batch: done.release(), ahead=ahead
        )
        assert state_after(loop, runner, batch()) == (False, True)  # how long it takes is not known yet
        assert done.acquire(timeout=60)
        for _ in range(MANY):
            loop.call(runner.run, batch())
            assert done.acquire(timeout=60)
        instance.gate.clear()
        one, two = batch(), batch()
        assert state_after(loop, runner, one) == (ahead, True)
        if ahead:
            assert state_after(loop, runner, two) == (False, True)
        instance.gate.set()
        for _ in range(1 + ahead):
            assert done.acquire(timeout=60)
        assert instance.begun[-1 - ahead :] == [one, two][: 1 + ahead]
        assert state(runner) == (True, False)
        runner.close()


def test_an_instance_that_has_nothing_to_run_rests_once_on_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instances, "REST_AFTER_S", 0.05)
    rested: SimpleQueue[str] = SimpleQueue()

    class Resting(Blocking):
        def rest(self) -> None:
            rested.put(threading.current_thread().name)

    instance = Resting()
    with LoopThread() as loop:
        done = threading.Semaphore(0)
        runner = Runner("instance-thread", instance, loop.loop, lambda runner, batch: done.release())
        for _ in range(2):
            assert not loop.call(runner.run, batch())
            assert done.acquire(timeout=60)
            assert rested.get(timeout=60) == "instance-thread"
            with pytest.raises(Empty):
                rested.get(timeout=0.2)
        runner.close()
    assert instance.threads == ["instance-thread"] * 2


def test_an_instance_of_long_batches_takes_none_ahead() -> None:
    instance = Recording(cost_us=AHEAD_COST_NS // MICROSECOND + 2000)
    with LoopThread() as loop:
        done = threading.Semaphore(0)
        runner = Runner(
            "instance-thread", instance, loop.loop, lambda runner, batch: done.release(), ahead=True
        )
        for _ in range(4):
            assert state_after(loop, runner, batch()) == (False, True)
            assert done.acquire(timeout=60)
        runner.close()


class Restless(Blocking):
    """Fails when it is to rest."""

    def __init__(self) -> None:
        super().__init__()
        self.rests = threading.Event()

    def rest(self) -> None:
        self.rests.set()
        raise RuntimeError("unforeseen")


def test_batches_run_though_their_thread_gets_neither_its_priority_nor_its_rest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(which: int, who: int, priority: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setpriority", refuse)
    monkeypatch.setattr(instances, "REST_AFTER_S", 0.001)
    instance = Restless()
    with LoopThread() as loop:
        done = threading.Semaphore(0)
        runner = Runner("instance", instance, loop.loop, lambda runner, batch: done.release(), niceness=5)
        for _ in range(2):
            assert not loop.call(runner.run, batch())
            assert done.acquire(timeout=60)
            assert instance.rests.wait(60)
            instance.rests.clear()
        runner.close()
    assert instance.threads == ["instance"] * 2
    assert caplog.messages[0] == "the thread of 'instance' runs without its priority and host policy"
    assert set(caplog.messages[1:]) == {"'instance' could not give back what it does not need at rest"}
