from collections.abc import Iterator

import pytest

from halimede.core import memory
from halimede.engine.memory.meter import GrowthMeter


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What the process has for itself, and what of it is allocated, each time that it is measured."""
    sizes: list[tuple[int, int]] = []
    private: Iterator[int] = (size for size, _ in sizes)
    heap: Iterator[int] = (size for _, size in sizes)
    monkeypatch.setattr(memory, "private_bytes", lambda: next(private))
    monkeypatch.setattr(memory, "heap_bytes", lambda: next(heap))
    return sizes


def test_a_load_takes_what_came_between(sizes: list[tuple[int, int]]) -> None:
    meter = GrowthMeter()
    sizes += [(100, 50), (150, 90)]
    assert meter.taken(meter.begin()) == 50
    sizes += [(150, 90), (150, 130)]  # in places that were free
    assert meter.taken(meter.begin()) == 40


def test_an_unload_gives_back_what_went_between(sizes: list[tuple[int, int]]) -> None:
    meter = GrowthMeter()
    sizes += [(150, 90), (120, 50)]
    assert meter.given_back(meter.begin()) == 40
    sizes += [(120, 50), (60, 50)]
    assert meter.given_back(meter.begin()) == 60


def test_works_side_by_side_are_not_measured(sizes: list[tuple[int, int]]) -> None:
    meter = GrowthMeter()
    sizes += [(size, 0) for size in (100, 110, 150, 160, 170, 200)]
    first = meter.begin()
    second = meter.begin()
    assert meter.taken(first) is None
    assert meter.given_back(second) is None
    assert meter.taken(meter.begin()) == 30
