import math
import random

import pytest

from halimede.core.clock import SECOND
from halimede.engine.summaries import WINDOW_SECONDS, Summary


class Time:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000 * SECOND

    def __call__(self) -> int:
        return self.now


def test_nothing_observed_has_no_quantiles() -> None:
    summary = Summary()
    assert math.isnan(summary.quantile(0.5))
    assert (summary.count, summary.total) == (0, 0)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9, 0.99, 0.999, 1])
def test_quantiles_are_within_one_per_cent(share: float) -> None:
    numbers = random.Random(7)
    values = [round(numbers.lognormvariate(6, 2)) + 1 for _ in range(20_000)]
    summary = Summary()
    for value in values:
        summary.observe(value)
    exact = sorted(values)[math.ceil(share * len(values)) - 1]
    assert summary.quantile(share) == pytest.approx(exact, rel=0.0101)
    assert (summary.count, summary.total) == (len(values), sum(values))


def test_zeros_and_repeated_values_count() -> None:
    summary = Summary()
    summary.observe(0, 3)
    summary.observe(100)
    assert (summary.count, summary.total) == (4, 100)
    assert summary.quantile(0.75) == 0
    assert summary.quantile(0.76) == pytest.approx(100, rel=0.01)


def test_quantiles_forget_what_is_older_than_a_minute() -> None:
    time = Time()
    summary = Summary(time)
    summary.observe(1_000)
    time.now += WINDOW_SECONDS * SECOND // 2
    summary.observe(10)
    assert summary.quantile(1) == pytest.approx(1_000, rel=0.01)
    time.now += WINDOW_SECONDS * SECOND // 2
    assert summary.quantile(1) == pytest.approx(10, rel=0.01)
    time.now += WINDOW_SECONDS * SECOND
    assert math.isnan(summary.quantile(1))
    assert (summary.count, summary.total) == (2, 1_010)
