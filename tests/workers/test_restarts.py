import asyncio
import os
import signal
from pathlib import Path

import pytest

from halimede.core.buffers import POOL
from halimede.core.clock import MICROSECOND, MILLISECOND, SECOND, LoopClock, VirtualClock
from halimede.workers.instance import WorkerInstance
from halimede.workers.restarts import GOOD_SERVICE, LONGEST_DELAY, RestartPolicy
from tests.backends.helpers import floats
from tests.backends.sequences import Step, values
from tests.workers.instances import running
from tests.workers.test_busy_wait import CODE, TENSORS


def test_the_first_restart_is_at_once_and_each_further_one_twice_as_late_up_to_a_limit() -> None:
    clock = VirtualClock()
    policy = RestartPolicy(clock)
    delays = []
    for _ in range(10):
        clock.advance(3 * MICROSECOND)  # it ends as soon as it is there
        when = policy.next_start()
        delays.append((when - clock.now()) // MILLISECOND)
        clock.advance(when - clock.now())
    assert delays == [0, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]


def test_restarts_come_at_their_times_to_the_microsecond() -> None:
    clock = VirtualClock()
    policy = RestartPolicy(clock)
    starts: list[int] = []

    def start() -> None:
        starts.append(clock.now() // MICROSECOND)
        clock.call_at(clock.now() + 7 * MICROSECOND, end)

    def end() -> None:
        clock.call_at(policy.next_start(), start)

    start()
    clock.advance(SECOND)
    assert starts == [0, 7, 100_014, 300_021, 700_028]


def test_a_worker_that_served_well_is_restarted_at_once_when_it_ends() -> None:
    clock = VirtualClock()
    policy = RestartPolicy(clock)
    for _ in range(20):
        clock.advance(policy.next_start() - clock.now())
    clock.advance(GOOD_SERVICE - MICROSECOND)
    assert policy.next_start() == clock.now() + LONGEST_DELAY
    clock.advance(LONGEST_DELAY + GOOD_SERVICE)
    assert policy.next_start() == clock.now()
    assert policy.next_start() == clock.now() + 100 * MILLISECOND


def test_waiting_ends_when_the_restart_is_due() -> None:
    async def wait_twice() -> int:
        clock = LoopClock(asyncio.get_running_loop())
        policy = RestartPolicy(clock)
        await policy.wait()
        first = clock.now()
        await policy.wait()
        clock.close()
        return clock.now() - first

    assert asyncio.run(wait_twice()) >= 100 * MILLISECOND


@pytest.mark.parametrize("error", [MemoryError("no room in /dev/shm"), RuntimeError("unforeseen")])
def test_an_instance_whose_restart_fails_by_whatever_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    failures = [error, error]
    private = POOL.private

    def fail(size: int) -> object:
        if failures:
            raise failures.pop()
        return private(size)

    with running(tmp_path, TENSORS, CODE) as model:
        instance = model.instance
        assert isinstance(instance, WorkerInstance)
        monkeypatch.setattr(POOL, "private", fail)
        model.restarted(lambda: os.kill(instance.processes[0], signal.SIGKILL))
        assert not failures
        [response] = model.run(Step(0, {"INPUT": floats([1, 2])}))
        assert values(response) == {"OUTPUT": [[1, 2]]}
        assert instance.trouble is None
        pids = instance.processes
    assert caplog.text.count(f"failed to restart 'm_0': {error}") == 2
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
