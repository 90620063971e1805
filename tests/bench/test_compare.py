import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from halimede.bench.compare import compare
from halimede.bench.errors import BenchError
from halimede.bench.limits import Limits, parse_errors, seconds
from halimede.bench.results import Result, read
from halimede.cli.main import halimede
from tests.bench.conftest import level

RANDOM = np.random.default_rng(2)


def sample(scale: float) -> Result:
    times = (RANDOM.lognormal(0, 0.5, 2000) * scale).tolist()
    return Result("sample", {}, (level(times, seconds=scale),))


def test_a_slower_run_is_told_from_chance() -> None:
    base, same, slower = sample(1.0), sample(1.0), sample(1.3)
    assert {each.verdict for each in compare(base, base)} == {"no difference shown"}
    worse = {each.figure: each for each in compare(base, slower)}
    assert {each.verdict for each in worse.values()} == {"worse"}
    assert worse["requests/s"].ratio == pytest.approx(1 / 1.3)
    assert worse["p50 ms"].low <= worse["p50 ms"].ratio <= worse["p50 ms"].high
    assert {each.verdict for each in compare(slower, base)} == {"better"}
    assert compare(base, same)[1].ratio == pytest.approx(1, abs=0.05)


def test_measurements_without_a_common_level() -> None:
    other = Result("other", {}, (level([1.0], figure=7),))
    with pytest.raises(BenchError, match="no level in common: 1 at once; and 7 at once"):
        compare(sample(1.0), other)


def test_command_compares_files(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.json", "b.json")]
    for path, scale in zip(paths, (1.0, 1.5), strict=True):
        sample(scale).write(path)
    arguments = ["bench", "compare", *map(str, paths)]
    text = CliRunner().invoke(halimede, arguments)
    assert text.exit_code == 0
    assert "| p99 ms" in text.output
    assert "worse" in text.output
    told = CliRunner().invoke(halimede, [*arguments, "--format", "json"])
    assert {each["verdict"] for each in json.loads(told.output)} == {"worse"}
    failed = CliRunner().invoke(halimede, [*arguments, "--fail-if-worse"], standalone_mode=False)
    assert failed.return_value == 3


@pytest.mark.parametrize("text", ["{}", "[]", "no JSON", '{"form": "halimede-bench-1", "levels": [{}]}'])
def test_a_file_that_is_no_result(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(BenchError, match=r"x\.json"):
        read(path)


def test_results_survive_a_file(tmp_path: Path) -> None:
    whole = Result("title", {"a": "b"}, (level([1, 2, 3], failures=2),))
    whole.write(tmp_path / "x.json")
    assert read(tmp_path / "x.json").to_json() == whole.to_json()


def test_limits_name_what_exceeds_them() -> None:
    result = Result("r", {}, (level([1.0] * 98 + [50.0] * 2, failures=3),))
    assert Limits([(50, 0.002), (99, 0.06)], throughput=900, errors=3, error_share=0.01).broken(result) == []
    broken = Limits([(99, 0.02)], throughput=2000, errors=2, error_share=0.001).broken(result)
    assert broken == [
        "1 at once: p99 is 49.99 ms, and the limit 20 ms",
        "1 at once: 1,000 requests/s are fewer than 2,000",
        "1 at once: 3 requests failed, and the limit is 2",
        "1 at once: 0.30% of the requests failed, and the limit is 0.10%",
    ]


def test_values_of_limits() -> None:
    assert [seconds(text) for text in ("20ms", "1.5 s", "300us", "2min")] == [0.02, 1.5, 3e-4, 120]
    assert seconds("20", "ms") == 0.02
    assert parse_errors("0.1%") == (None, 0.001)
    assert parse_errors("5") == (5, None)
    for text in ("20", "ms", "-1ms"):
        with pytest.raises(BenchError, match="no time"):
            seconds(text)
    with pytest.raises(BenchError, match="no limit of errors"):
        parse_errors("few")
