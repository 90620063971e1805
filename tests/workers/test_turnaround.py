"""What a worker is sent ahead, and when it is waited for, by how long its executions take."""

import pytest

from halimede.workers.turnaround import (
    HOP_NS,
    MAX_AHEAD,
    MAX_UNWAITED,
    MIN_UNWAITED,
    QUICK_NS,
    WAITED_NS,
    Turnaround,
)


def measured(took_ns: int, concurrency: int = 1) -> Turnaround:
    """After many executions of that length."""
    turnaround = Turnaround(concurrency)
    for _ in range(200):
        turnaround.measure(took_ns)
    return turnaround


@pytest.mark.parametrize(
    ("took_ns", "ahead"),
    [(QUICK_NS // 100, MAX_AHEAD), (QUICK_NS // 4, 3), (QUICK_NS, 1), (100 * QUICK_NS, 1)],
)
def test_the_quicker_a_worker_is_the_more_it_is_sent_ahead(took_ns: int, ahead: int) -> None:
    assert Turnaround(1).ahead == 1
    assert measured(took_ns).ahead == ahead


def test_worker_that_runs_several_at_once_is_sent_as_many_however_slow_it_is() -> None:
    assert measured(100 * QUICK_NS, concurrency=4).ahead == 4


@pytest.mark.parametrize(("concurrency", "ahead"), [(1, 1), (4, 4)])
def test_worker_that_is_sent_none_ahead_has_what_it_runs_at_once(concurrency: int, ahead: int) -> None:
    turnaround = measured(QUICK_NS // 100, concurrency)
    turnaround.send_none_ahead()
    turnaround.measure(1)
    assert turnaround.ahead == ahead


def test_worker_that_leaves_is_sent_nothing() -> None:
    turnaround = measured(QUICK_NS // 100)
    turnaround.send_none()
    turnaround.measure(1)
    assert turnaround.ahead == 0


@pytest.mark.parametrize("concurrency", [1, 4])
def test_worker_that_runs_one_by_one_is_sent_none_ahead_however_quick_it_is(concurrency: int) -> None:
    turnaround = Turnaround(concurrency)
    turnaround.run_one_by_one()
    turnaround.measure(1)
    assert turnaround.ahead == 1
    turnaround.send_none_ahead()
    assert turnaround.ahead == 1


def unwaited(turnaround: Turnaround) -> int:
    """How many executions are not waited for before one is."""
    return next(count for count in range(2 * MAX_UNWAITED) if turnaround.may_wait())


def test_only_quick_executions_are_waited_for_once_they_are_known_to_be() -> None:
    assert unwaited(measured(WAITED_NS // 2)) == MIN_UNWAITED
    slow = measured(2 * WAITED_NS)
    assert not any(slow.may_wait() for _ in range(2 * MIN_UNWAITED))


def test_waits_in_vain_become_rarer_and_good_ones_make_up_for_them() -> None:
    turnaround = measured(WAITED_NS // 2)
    counts = []
    for _ in range(9):
        counts.append(unwaited(turnaround))
        turnaround.waited(in_vain=True)
    assert counts == [64, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
    assert unwaited(turnaround) == MAX_UNWAITED
    for _ in range(MAX_UNWAITED):
        assert turnaround.may_wait()
        turnaround.waited(in_vain=False)
    turnaround.waited(in_vain=True)
    assert unwaited(turnaround) == MIN_UNWAITED


def test_answers_are_watched_for_twice_as_long_as_they_take_and_slow_ones_not_at_all() -> None:
    longest = 10 * HOP_NS
    quick = measured(HOP_NS // 2).busy_ns(longest)
    assert 3 * HOP_NS <= quick <= 3.1 * HOP_NS
    assert measured(8 * HOP_NS).busy_ns(longest) == longest
    assert measured(10 * HOP_NS).busy_ns(longest) == 0
    assert measured(1).busy_ns(0) == 0
