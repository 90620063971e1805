"""Who is evicted, held against a plain simulation of least recently used."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from halimede.engine.memory.ledger import Holding, Ledger


def zipf(models: int, requests: int, seed: int) -> list[str]:
    """Names of the models that requests are for: the n-th is asked for in proportion to 1/n."""
    weights = 1 / np.arange(1, models + 1)
    chosen = np.random.default_rng(seed).choice(models, requests, p=weights / weights.sum())
    return [f"m{number}" for number in chosen]


def hits_of_ledger(trace: Sequence[str], sizes: Mapping[str, int], budget: int) -> int:
    """How many requests find their model loaded, if the ledger says who goes."""
    ledger = Ledger(budget)
    loaded: dict[str, Holding] = {}
    hits = 0
    for name in trace:
        if name in loaded:
            hits += 1
        else:
            while not ledger.fits(sizes[name]):
                victim = ledger.victim(lambda _: True)
                assert victim is not None
                ledger.remove(loaded.pop(victim))
                ledger.forget(victim)
            loaded[name] = Holding(name, 1, sizes[name])
            ledger.add(loaded[name])
        ledger.used(name)
    return hits


def hits_of_simulation(trace: Sequence[str], sizes: Mapping[str, int], budget: int) -> int:
    """The same, of a list in the order of use."""
    order: list[str] = []
    hits = 0
    for name in trace:
        if name in order:
            hits += 1
            order.remove(name)
        else:
            while order and sum(sizes[each] for each in order) + sizes[name] > budget:
                order.pop(0)
        order.append(name)
    return hits


@pytest.mark.parametrize(
    "size_of",
    [lambda _: 10, lambda number: 1 + number * 7 % 40],
    ids=["models of equal size", "models of different sizes"],
)
@pytest.mark.parametrize("seed", range(3))
def test_hit_ratio_on_a_zipf_trace_is_that_of_least_recently_used(
    size_of: Callable[[int], int], seed: int
) -> None:
    sizes = {f"m{number}": size_of(number) for number in range(50)}
    trace = zipf(50, 5000, seed)
    hits = hits_of_ledger(trace, sizes, 100)
    assert hits == hits_of_simulation(trace, sizes, 100)
    assert 0.2 < hits / len(trace) < 0.8


def test_a_busy_model_is_passed_over() -> None:
    ledger = Ledger(100)
    for name in "abc":
        ledger.used(name)
    ledger.used("a")
    assert ledger.victim(lambda name: name != "b") == "c"
    assert ledger.victim(lambda _: False) is None


def test_what_is_held_is_not_free() -> None:
    ledger = Ledger(100)
    first, second = Holding("a", 1, 60), Holding("a", 2, 30)
    ledger.add(first)
    ledger.add(second)
    assert (ledger.total, ledger.free()) == (90, 10)
    assert ledger.fits(10)
    assert not ledger.fits(11)
    second.size = 50
    assert ledger.free() == -10
    assert not ledger.fits(0)
    ledger.remove(first)
    ledger.remove(first)
    assert list(ledger) == [second]
    assert Ledger().fits(1 << 60)
