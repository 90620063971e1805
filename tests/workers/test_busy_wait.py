from itertools import count, islice
from pathlib import Path

import numpy as np

from halimede.workers.busy_wait import (
    LONGEST_NS,
    MAX_REST_NS,
    MIN_REST_NS,
    NEEDED_CORES,
    PERIOD_NS,
    BusyWait,
)
from halimede.workers.progress import COUNT, Progress
from halimede_worker.patience import ALLOWED, LOOKED
from tests.backends.helpers import floats
from tests.backends.sequences import Step, values
from tests.support.waiting import wait_until
from tests.workers.instances import running


class Machine:
    """Tells what a test has set.

    Attributes:
        idle: cores.
        queued: the share of the time in which the event loop's thread waited for a core.
    """

    def __init__(self, idle: float = 2.0, queued: float = 0.0) -> None:
        self.idle = idle
        self.queued = queued

    def measure(self) -> tuple[float, float]:
        return self.idle, self.queued


def granted(wait: BusyWait, steps: int, begin: int = 1) -> list[bool]:
    """Whether a wait is granted at each of so many periods."""
    return [wait.review((begin + step) * PERIOD_NS) > 0 for step in range(steps)]


def test_waits_are_granted_while_cores_are_idle_and_only_then() -> None:
    machine = Machine()
    wait = BusyWait(100, 2, machine)
    assert wait.review(PERIOD_NS) == LONGEST_NS
    machine.idle = NEEDED_CORES - 0.1
    assert wait.review(2 * PERIOD_NS - 1) == LONGEST_NS, "it is looked at once a period"
    assert wait.review(2 * PERIOD_NS) == 0
    machine.idle = NEEDED_CORES
    assert wait.review(3 * PERIOD_NS) == LONGEST_NS


def test_cores_that_are_busy_only_with_waiting_count_as_idle() -> None:
    machine = Machine()
    wait = BusyWait(100, 2, machine)
    wait.review(PERIOD_NS)
    machine.idle = 0.0
    wait.workers_ns += int(0.8 * PERIOD_NS)
    assert wait.review(2 * PERIOD_NS) == LONGEST_NS


def test_none_is_granted_on_one_core_or_with_a_bound_of_0() -> None:
    assert not any(granted(BusyWait(100, 1, Machine()), 5))
    assert not any(granted(BusyWait(0, 8, Machine()), 5))


def test_waits_take_no_more_than_the_bound_on_average() -> None:
    wait = BusyWait(20, 2, Machine())
    now, step = PERIOD_NS, PERIOD_NS // 100
    begin = now
    while now < begin + 100 * PERIOD_NS:
        if wait.review(now):
            wait.waited(step // 2, in_vain=False)
            wait.workers_ns += step // 2
        now += step
    spent = wait.server_ns + wait.workers_ns
    assert 0.15 < spent / (now - begin) < 0.21


def test_waits_that_run_out_mean_that_workers_get_no_core() -> None:
    wait = BusyWait(100, 2, Machine())
    assert wait.review(PERIOD_NS)
    for number in range(10):
        wait.waited(1000, in_vain=number < 3)
    rest = MIN_REST_NS // PERIOD_NS
    assert granted(wait, rest + 1, 2) == [False] * rest + [True]
    wait.waited(1000, in_vain=True)
    begin = 2 + rest + 1
    assert granted(wait, 2 * rest + 1, begin) == [False] * 2 * rest + [True]
    now = (begin + 2 * rest + 1) * PERIOD_NS
    for _ in range(20):  # it never rests longer than so
        wait.waited(1000, in_vain=True)
        assert not wait.review(now)
        now += MAX_REST_NS
        assert wait.review(now)
        now += PERIOD_NS


def test_none_is_granted_while_the_event_loop_waits_for_a_core() -> None:
    machine = Machine(queued=0.2)
    wait = BusyWait(100, 2, machine)
    assert not any(granted(wait, 3))
    machine.queued = 0.0
    assert wait.review(4 * PERIOD_NS)
    machine.queued = 0.2
    assert not wait.review(5 * PERIOD_NS)


def test_grant_is_shown_to_the_worker_and_what_it_has_spent_is_counted() -> None:
    numbers = np.zeros(COUNT, np.int64)
    progress = Progress(numbers.view(np.uint8))
    wait = BusyWait(100, 2, Machine())
    assert wait.grant(progress, alone=True) == LONGEST_NS == numbers[ALLOWED]
    numbers[LOOKED] = 700
    assert wait.grant(progress, alone=False) == 0 == numbers[ALLOWED]
    assert wait.workers_ns == 700
    numbers[LOOKED] = 1000  # of a wait that was under way
    wait.grant(progress, alone=True)
    assert wait.workers_ns == 1000


TENSORS = """
    max_batch_size: 4
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 2 ] }
"""
CODE = """
class TritonPythonModel:
    def execute(self, requests):
        arrays = [request.inputs()[0].as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", array)]) for array in arrays]
"""


def test_server_and_worker_watch_for_each_other_once_the_model_is_known_to_be_quick(tmp_path: Path) -> None:
    wait = BusyWait(100_000, 8, Machine(idle=8.0))
    with running(tmp_path, TENSORS, CODE, wait) as model:
        numbers = count(1)

        def runs_quickly() -> bool:
            for number in islice(numbers, 100):
                [response] = model.run(Step(0, {"INPUT": floats([number, -number])}))
                assert values(response) == {"OUTPUT": [[number, -number]]}
            return bool(wait.server_ns and wait.workers_ns)

        wait_until(runs_quickly, "both to be allowed to watch")
