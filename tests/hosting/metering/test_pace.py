"""Shorter periods than AWS's (`--metric-period`): what is kept, measured and answered."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from halimede.cli.hosting.host import command
from halimede.hosting.metering.pace import Pace
from halimede.hosting.metering.store import Metric, MetricStore, first_period
from tests.hosting.metering.serving import DAY, HOUR, MINUTE, NOON, Metered, metered, moment

METRIC = Metric.of("n", "m", {})
DIMENSIONS = [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "v"}]


def sums(
    host: Metered, period: int, begin: float, end: float, name: str = "m", **metric: Any
) -> list[tuple[float, float]]:
    """Seconds after noon, and sums."""
    points = host.client("cloudwatch").get_metric_statistics(
        **{"Namespace": "mine", "MetricName": name, "Statistics": ["Sum"], **metric},
        Period=period,
        StartTime=moment(NOON + begin),
        EndTime=moment(NOON + end),
    )["Datapoints"]
    return [(point["Timestamp"].timestamp() - NOON, point["Sum"]) for point in points]


def put(host: Metered, *seconds: float) -> None:
    data = [{"MetricName": "m", "Value": 1, "Timestamp": moment(NOON + each)} for each in seconds]
    host.client("cloudwatch").put_metric_data(Namespace="mine", MetricData=data)


def test_times_of_aws_are_shortened_together() -> None:
    assert Pace(5).seconds(300) == 25
    assert Pace().seconds(300) == 300


def test_periods_are_multiples_of_the_metric_period(tmp_path: Path) -> None:
    with metered(tmp_path, pace=Pace(5)) as host:
        put(host, -61, -60, -6, -5, -1)
        assert sums(host, 5, -60, 0) == [(-60, 1), (-10, 1), (-5, 2)]
        assert sums(host, 10, -60, 0) == [(-60, 1), (-10, 3)]
        assert sums(host, 60, -120, 0) == [(-120, 1), (-60, 4)]
        client = host.client("cloudwatch")
        with pytest.raises(
            client.exceptions.ClientError,
            match="Period must be 1, 5, 10, 20, 30 or a multiple of 5 seconds, got 7",
        ):
            sums(host, 7, -60, 0)
        assert sums(host, 1, -60, 0) == sums(host, 5, -60, 0)
        query = {"Metric": {"Namespace": "mine", "MetricName": "m"}, "Period": 15, "Stat": "Sum"}
        answer = client.get_metric_data(
            MetricDataQueries=[{"Id": "m", "MetricStat": query, "ReturnData": False},
                               {"Id": "twice", "Expression": "m * 2"}],
            StartTime=moment(NOON - MINUTE), EndTime=moment(NOON), ScanBy="TimestampAscending",
        )  # fmt: skip
        assert answer["MetricDataResults"][0]["Values"] == [2, 6]


def test_quiet_variants_have_a_zero_each_metric_period(tmp_path: Path) -> None:
    with metered(tmp_path, pace=Pace(5)) as host:
        meter = host.publish("e", "v")
        host.count(lambda: meter.sent(1))
        for second in range(1, 17):
            host.tick(NOON + second)
        found = sums(host, 5, 0, 20, "Invocations", Namespace="AWS/SageMaker", Dimensions=DIMENSIONS)
        assert found == [(0, 1), (5, 0), (10, 0)]


def test_periods_that_were_over_at_once_have_zeros_too(tmp_path: Path) -> None:
    with metered(tmp_path, pace=Pace(1)) as host:
        host.publish("e", "v")
        metric = {"Namespace": "AWS/SageMaker", "Dimensions": DIMENSIONS}
        host.tick(NOON + 3)
        assert sums(host, 1, 0, 20, "Invocations", **metric) == [(0, 0), (1, 0), (2, 0)]
        host.tick(NOON + HOUR)
        late = [when - HOUR for when, _ in sums(host, 1, HOUR - 60, HOUR, "Invocations", **metric)]
        assert late == [-5, -4, -3, -2, -1]


def test_what_is_not_new_any_more_is_folded_into_minutes_and_then_hours() -> None:
    store = MetricStore(5)
    for second in range(0, int(2 * DAY), 5):
        store.add(METRIC, 1, "None", 1, NOON - second)
    store.forget(NOON)
    series = store.series(METRIC)
    assert series is not None
    assert len(series.minutes) < 1_440 + 12 + 24 * 60 + 60 + 25
    assert sum(values.count for values in series.minutes.values()) == 2 * DAY / 5
    fine = [start for start, _ in store.periods(METRIC, NOON - HOUR, NOON, 5)]
    assert len(fine) == HOUR / 5
    assert [values.count for _, values in store.periods(METRIC, NOON - 20 * HOUR, NOON - 10 * HOUR, 60)] == [
        12
    ] * 600
    assert first_period(NOON - 7, NOON, 5) == NOON - 10
    assert first_period(NOON - 3 * HOUR - 7, NOON, 5) == NOON - 3 * HOUR - 60
    assert first_period(NOON - 2 * DAY - 7, NOON, 5) == NOON - 2 * DAY - HOUR


@pytest.mark.parametrize(("before", "after"), [(60, 5), (5, 60), (10, 15)])
def test_what_was_measured_with_another_metric_period_is_read(
    tmp_path: Path, before: int, after: int
) -> None:
    with metered(tmp_path, pace=Pace(before)) as host:
        put(host, -120, -59, -10, -5)
    for _ in range(2):
        with metered(tmp_path, pace=Pace(after)) as host:
            assert sums(host, 60, -180, 0) == [(-120, 1), (-60, 3)]
    with metered(tmp_path, pace=Pace(after)) as host:
        put(host, -10)
    with sqlite3.connect(tmp_path / "metrics.db") as database:
        assert database.execute("SELECT seconds FROM resolution").fetchall() == [(after,)]
        total = database.execute("SELECT sum(total) FROM minutes WHERE namespace = 'mine'").fetchone()
    database.close()
    assert total == (5,)


def test_the_metric_period_divides_a_minute(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["--metric-period=7", f"--directory={tmp_path}"])
    assert result.exit_code == 2
    assert (
        "--metric-period: 7 does not divide 60; use one of 1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60"
        in result.output
    )
