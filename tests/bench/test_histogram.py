import numpy as np
import pytest

from halimede.bench.histogram import Histogram

VALUES = np.random.default_rng(1).lognormal(13, 2, 49_997).astype(np.int64)


@pytest.mark.parametrize("percent", [0.01, 50, 90, 99, 99.9, 100])
def test_percentiles_are_exact_to_a_thousandth(percent: float) -> None:
    exact = np.percentile(VALUES, percent, method="inverted_cdf")
    assert Histogram.of(VALUES).percentile(percent) == pytest.approx(exact, rel=1e-3)


def test_small_times_are_exact() -> None:
    histogram = Histogram.of(np.array([0, 1, 2047, 2048, 2050], np.int64))
    assert [histogram.percentile(percent) for percent in (20, 40, 60)] == [0, 1, 2047]
    assert histogram.percentile(80) == pytest.approx(2048, rel=1e-3)


def test_merging_is_the_same_as_counting_at_once() -> None:
    parts = [Histogram.of(part) for part in np.array_split(VALUES, 7)]
    merged, whole = Histogram.merged([*parts, Histogram.empty()]), Histogram.of(VALUES)
    assert merged.to_json() == whole.to_json()
    assert merged.count == len(VALUES)
    assert merged.mean == pytest.approx(VALUES.mean())
    assert merged.deviation == pytest.approx(VALUES.std(), rel=1e-2)
    assert (merged.minimum, merged.maximum) == (VALUES.min(), VALUES.max())


def test_a_histogram_survives_a_file() -> None:
    whole = Histogram.of(VALUES)
    assert Histogram.from_json(whole.to_json()).to_json() == whole.to_json()


def test_nothing_was_measured() -> None:
    nothing = Histogram.of(np.zeros(0, np.int64))
    assert (nothing.count, nothing.mean, nothing.deviation, nothing.percentile(99)) == (0, 0, 0, 0)
