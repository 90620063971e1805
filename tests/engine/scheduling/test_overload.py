"""Requests with timeouts on models that cannot keep up, and on models that can, on a virtual clock."""

import random
from collections.abc import Callable

import pytest

from halimede.backends.batch import Batch
from halimede.config.model_config_pb2 import ModelDynamicBatching, ModelQueuePolicy
from halimede.core.clock import MILLISECOND, SECOND, VirtualClock
from halimede.core.datatypes import FP32
from halimede.core.errors import HalimedeError, UnavailableError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor
from halimede.engine.scheduling.batching import DefaultScheduler, DynamicBatcher, Scheduler
from halimede.engine.statistics import FailureReason
from tests.engine.scheduling.helpers import signature, spec

IN_TIME_NS = 200 * MILLISECOND
TIMEOUT_US = 200_000

Cost = Callable[[int], float]
"""What an execution of so many rows takes, in milliseconds."""


class Served:
    """A model whose executions take as long as they should, and what its clients see.

    Attributes:
        in_time, late: answers within 200 ms, and others.
        refusals: how long each request waited that was refused, in nanoseconds, and what its client was told.
        longest: the most requests that waited at a time.
    """

    def __init__(
        self, cost: Cost, config: ModelDynamicBatching | None = None, *, instances: int = 1, rows: int = 8
    ) -> None:
        self.clock = VirtualClock()
        model = signature(spec("IN"), max_batch_size=rows)
        self.scheduler: Scheduler
        if config is None:
            self.scheduler = DefaultScheduler(model, self.clock, self)
        else:
            self.scheduler = DynamicBatcher(model, config, self.clock, self)
        self.scheduler.start([_Instance(self, cost) for _ in range(instances)])
        self.in_time = self.late = self.longest = 0
        self.refusals: list[tuple[int, HalimedeError]] = []

    def send(self, count: int = 1, timeout_us: int = TIMEOUT_US) -> None:
        """So many requests in one turn of the loop."""
        for _ in range(count):
            request = InferRequest("m", {"IN": Tensor(FP32, (1, 4), b"")}, _ignore, timeout_us=timeout_us)
            request.queued_ns = request.received_ns = self.clock.now()
            try:
                self.scheduler.enqueue(request)
            except UnavailableError as error:
                self.refusals.append((0, error))
            self.longest = max(self.longest, self.scheduler.pending)
        self.clock.run()

    def load(self, rate: float, seconds: float, timeout_us: int = TIMEOUT_US) -> None:
        """So many requests a second, at random times, for so long."""
        times = random.Random(1)
        end = self.clock.now() + int(seconds * SECOND)
        while self.clock.now() < end:
            self.clock.advance(int(times.expovariate(rate) * SECOND))
            self.send(timeout_us=timeout_us)

    def starting(self, batch: Batch) -> None:
        """Only of interest to decoupled models."""

    def completed(self, batch: Batch) -> None:
        """The batch is answered."""
        for request in batch.requests:
            if self.clock.now() - request.received_ns <= IN_TIME_NS:
                self.in_time += 1
            else:
                self.late += 1

    def refused(self, request: InferRequest, error: HalimedeError, reason: FailureReason) -> None:
        """The request will not run."""
        assert reason is FailureReason.REJECTED
        self.refusals.append((self.clock.now() - request.received_ns, error))


class _Instance:
    only_full = False
    healthy = True

    def __init__(self, served: Served, cost: Cost) -> None:
        self.free = True
        self._served = served
        self._cost = cost

    def run(self, batch: Batch) -> bool:
        self.free = False
        clock = self._served.clock
        clock.call_at(clock.now() + int(self._cost(batch.size) * MILLISECOND), self._end, batch)
        return False

    def _end(self, batch: Batch) -> None:
        self.free = True
        self._served.scheduler.finished(self, batch)

    def end_sequence(self, key: int, correlation_id: int | str, reason: str) -> None:
        """Only sequences end."""
        raise AssertionError


def _ignore(response: InferResponse | None, final: bool) -> None:
    """Answers are counted by the model."""


def fixed(milliseconds: float) -> Cost:
    return lambda _rows: milliseconds


def growing(rows: int) -> float:
    return 5.0 + rows


def noisy(low: float, high: float, seed: int = 2) -> Cost:
    numbers = random.Random(seed)
    return lambda _rows: numbers.uniform(low, high)


POLICY = ModelQueuePolicy(default_timeout_microseconds=TIMEOUT_US)
BATCHING = ModelDynamicBatching()
WITH_POLICY = ModelDynamicBatching(default_queue_policy=POLICY)


@pytest.mark.parametrize(
    ("cost", "config", "instances", "capacity"),
    [
        (fixed(10), None, 1, 100),
        (fixed(10), WITH_POLICY, 1, 800),
        (fixed(40), None, 1, 25),
        (fixed(40), None, 4, 100),
        (fixed(80), BATCHING, 1, 100),
        (growing, BATCHING, 1, 8000 / 13),
        (growing, WITH_POLICY, 2, 16_000 / 13),
        (noisy(5, 15), None, 1, 100),
        (noisy(20, 40), BATCHING, 2, 16_000 / 30),
        (fixed(1), None, 1, 1000),
    ],
    ids=[
        "one by one",
        "batches of a size",
        "slow",
        "four instances",
        "slow batches",
        "growing batches",
        "two instances",
        "noisy",
        "noisy batches",
        "fast",
    ],
)
@pytest.mark.parametrize("times", [1.5, 3, 10])
def test_overloaded_model_answers_at_least_90_percent_of_its_capacity_in_time(
    cost: Cost, config: ModelDynamicBatching | None, instances: int, capacity: float, times: float
) -> None:
    served = Served(cost, config, instances=instances)
    timeout_us = 0 if config is WITH_POLICY else TIMEOUT_US
    served.load(times * capacity, max(0.5, 100 / capacity), timeout_us)  # it learns how long executions take
    served.in_time = served.late = served.longest = 0
    seconds = max(1.5, 200 / capacity)
    served.load(times * capacity, seconds, timeout_us)
    assert served.in_time >= 0.9 * seconds * capacity
    assert served.late <= 0.1 * served.in_time
    assert served.longest <= 0.4 * capacity + 8


def test_refused_request_of_an_overloaded_model_learns_it_at_once() -> None:
    served = Served(fixed(10))
    served.load(300, 10)
    served.refusals.clear()
    served.load(300, 10)
    at_once = [waited for waited, _ in served.refusals if not waited]
    assert len(at_once) >= 0.9 * len(served.refusals) > 1000
    for _, error in served.refusals:
        assert error.message.startswith("Request timeout expired")


@pytest.mark.parametrize("rate", [10, 50, 80])
@pytest.mark.parametrize("cost", [fixed(10), noisy(1, 19)], ids=["fixed", "noisy"])
def test_model_that_keeps_up_refuses_nothing(rate: float, cost: Cost) -> None:
    served = Served(cost)
    served.load(rate, 60, timeout_us=1_000_000)
    assert not served.refusals


def test_first_execution_that_takes_long_refuses_nothing_that_could_be_answered() -> None:
    costs = iter([400.0] + [1.0] * 10_000)
    served = Served(lambda _rows: next(costs))
    served.send(timeout_us=1_000_000)
    served.clock.advance(300 * MILLISECOND)
    served.send(100, timeout_us=1_000_000)
    served.clock.advance(10 * SECOND)
    assert not served.refusals


@pytest.mark.parametrize("every", [7, 20, 100])
def test_execution_that_is_slow_now_and_then_refuses_nothing_that_could_be_answered(every: int) -> None:
    number = 0

    def cost(_rows: int) -> float:
        nonlocal number
        number += 1
        return 100.0 if number % every == 0 else 2.0

    served = Served(cost)
    served.load(20, 60, timeout_us=1_000_000)
    assert not served.refusals


def test_executions_that_become_short_are_seen_to_be_so_after_a_few() -> None:
    slow = True
    served = Served(lambda _rows: 100.0 if slow else 1.0)
    served.load(5, 10, timeout_us=1_000_000)
    slow = False
    served.refusals.clear()
    served.load(50, 1, timeout_us=1_000_000)
    served.send(200, timeout_us=1_000_000)
    served.clock.advance(10 * SECOND)
    assert not served.refusals


def test_burst_that_can_be_answered_in_time_is_answered_whole() -> None:
    served = Served(growing, BATCHING, rows=64)
    served.load(20, 5)
    for _ in range(20):
        served.in_time = 0
        served.send(64 * 2)
        served.clock.advance(10 * SECOND)
        assert served.in_time >= 128
    assert not served.refusals


def test_request_whose_time_is_shorter_than_an_execution_runs_if_it_need_not_wait() -> None:
    served = Served(fixed(300), instances=2)
    for _ in range(30):
        served.send(2)
        served.clock.advance(SECOND)
    assert not served.refusals
    assert served.late == 60


def test_request_without_a_timeout_is_never_refused() -> None:
    served = Served(fixed(10))
    served.load(300, 5)
    served.refusals.clear()
    for _ in range(1000):
        served.send(timeout_us=0)
    assert not served.refusals


def test_refusal_says_why_and_when_to_come_back() -> None:
    served = Served(fixed(1000))
    for _ in range(8):
        served.send(timeout_us=0)
        served.send(timeout_us=3_600_000_000)  # with which executions are measured
        served.clock.advance(4 * SECOND)
    served.send(10, timeout_us=0)
    served.send(timeout_us=5_000_000)
    [(waited, error)] = served.refusals
    assert isinstance(error, UnavailableError)
    assert (waited, error.retry_after_s) == (0, 10)
    assert error.message == (
        "Request timeout expired: it would wait for about 1e+04 ms before an execution of about 1000 ms, and its "
        "timeout is 5000 ms"
    )
