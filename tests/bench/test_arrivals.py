from itertools import islice, pairwise
from pathlib import Path

import pytest

from halimede.bench.arrivals import Arrivals, read_intervals, read_trace
from halimede.bench.errors import BenchError


def together(arrivals: Arrivals, processes: int, count: int) -> list[int]:
    """What several processes send."""
    shares = [arrivals.share(index, processes, seed=1) for index in range(processes)]
    return sorted(at for share in shares for at in islice(share, count // processes))


def test_constant_gaps_are_equal_over_all_processes() -> None:
    times = together(Arrivals(1000), 4, 400)
    assert {later - earlier for earlier, later in pairwise(times)} == {1_000_000}


def test_poisson_has_the_rate_and_gaps_that_vary_as_much_as_their_mean() -> None:
    times = list(islice(Arrivals(1000, poisson=True).share(0, 1, seed=3), 20_000))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert mean == pytest.approx(1e6, rel=0.05)
    assert deviation == pytest.approx(mean, rel=0.05)


def test_a_trace_is_replayed_by_all_processes_together(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("# seconds\n10.0\n10.5\n\n10.6\n")
    arrivals = read_trace(path)
    assert arrivals.gaps == (500_000_000, 100_000_000)
    assert together(arrivals, 2, 4) == [500_000_000, 600_000_000, 1_100_000_000, 1_200_000_000]
    assert arrivals.rate == pytest.approx(2 / 0.6)


def test_intervals_are_microseconds(tmp_path: Path) -> None:
    path = tmp_path / "gaps"
    path.write_text("100\n300\n")
    assert read_intervals(path).gaps == (100_000, 300_000)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1\nx\n", "line 2: 'x' is not a time in seconds"),
        ("1\n", "1 times: a trace needs two or more"),
        ("2\n1\n", "time 2: it is earlier"),
        ("1\n1\n", "one that is greater"),
    ],
)
def test_a_wrong_trace_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(BenchError, match=reason):
        read_trace(path)
    with pytest.raises(BenchError, match="cannot be read"):
        read_trace(tmp_path / "missing")
