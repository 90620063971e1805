"""Pauses that grow while something fails."""

import asyncio
import time

import pytest

from halimede.core.backoff import Backoff


def test_each_pause_is_twice_as_long_up_to_the_longest() -> None:
    pauses = Backoff(0.5, 3.0)
    assert [pauses.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_what_has_worked_for_long_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pauses = Backoff(1.0, 8.0, steady_s=10.0)
    assert [pauses.next_s() for _ in range(3)] == [1.0, 2.0, 4.0]
    now += 4.0 + 9.9  # the pause itself does not count
    assert pauses.next_s() == 8.0
    now += 8.0 + 10.0
    assert pauses.next_s() == 1.0


def test_a_pause_is_a_little_longer_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for _ in range(20):
        asyncio.run(Backoff(1.0, 8.0).pause())
    assert all(1.0 <= each <= 1.1 for each in slept)
    assert len(set(slept)) > 1
