"""SageMaker's metrics: names, namespaces, units, dimensions, zeros and averages (sagemaker.md, 2.2)."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.identity import EndpointId
from tests.hosting.metering.serving import (
    DAY,
    HOUR,
    NOON,
    SCOPE,
    Metered,
    Residency,
    instance,
    metered,
    moment,
)
from tests.support.fake_nvml import FakeGpu, machine_with
from tests.support.waiting import let_pass, wait_until

REQUESTS, INSTANCES = "AWS/SageMaker", "/aws/sagemaker/Endpoints"
DIMENSIONS = [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "v"}]
ALL = ["SampleCount", "Average", "Sum", "Minimum", "Maximum"]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Metered]:
    with metered(tmp_path) as running:
        yield running


def points(
    host: Metered, name: str, namespace: str = REQUESTS, begin: float = NOON - HOUR, end: float = NOON + HOUR
) -> list[tuple[float, dict[str, Any]]]:
    """Minutes after noon, and what GetMetricStatistics and GetMetricData both say of them."""
    client = host.client("cloudwatch")
    metric = {"Namespace": namespace, "MetricName": name, "Dimensions": DIMENSIONS}
    span = {"StartTime": moment(begin), "EndTime": moment(end)}
    got = client.get_metric_statistics(**metric, **span, Period=60, Statistics=ALL)["Datapoints"]
    queries = [
        {"Id": stat.lower(), "MetricStat": {"Metric": metric, "Period": 60, "Stat": stat}} for stat in ALL
    ]
    results = client.get_metric_data(MetricDataQueries=queries, **span, ScanBy="TimestampAscending")
    for stat, result in zip(ALL, results["MetricDataResults"], strict=True):
        assert result["Values"] == [point[stat] for point in got]
        assert result["Timestamps"] == [point["Timestamp"] for point in got]
    return [
        (
            (point["Timestamp"].timestamp() - NOON) / 60,
            {key: value for key, value in point.items() if key != "Timestamp"},
        )
        for point in got
    ]


def point(host: Metered, name: str, namespace: str = REQUESTS) -> dict[str, Any]:
    [(minute, values)] = points(host, name, namespace)
    assert minute == 0
    return values


def test_invocations_and_their_share_of_an_instance(host: Metered) -> None:
    meter = host.publish("e", "v")
    for _ in range(6):
        host.count(lambda: meter.sent(3))
    assert point(host, "Invocations") == {
        "Unit": "None", "SampleCount": 6, "Average": 1, "Sum": 6, "Minimum": 1, "Maximum": 1
    }  # fmt: skip
    per_instance = point(host, "InvocationsPerInstance")
    assert per_instance["Sum"] == pytest.approx(2)
    assert per_instance["SampleCount"] == 6
    assert per_instance["Unit"] == "None"


def test_errors_are_ones_and_zeros(host: Metered) -> None:
    meter = host.publish("e", "v")
    for status, model_error in ((200, False), (200, False), (424, True), (429, False), (503, False)):
        host.count(partial(meter.ended, status, 1000, 1000, model_error=model_error))
    for name, total in (
        ("Invocation4XXErrors", 2),
        ("Invocation5XXErrors", 1),
        ("InvocationModelErrors", 1),
    ):
        assert point(host, name) == {
            "Unit": "None", "SampleCount": 5, "Sum": total, "Average": total / 5, "Minimum": 0, "Maximum": 1
        }, name  # fmt: skip


def test_without_errors_their_average_is_zero(host: Metered) -> None:
    meter = host.publish("e", "v")
    host.count(lambda: meter.ended(200, 1000, 1000, model_error=False))
    for name in ("Invocation4XXErrors", "Invocation5XXErrors", "InvocationModelErrors"):
        assert point(host, name)["Average"] == 0
        assert point(host, name)["SampleCount"] == 1


def test_latencies_are_in_microseconds(host: Metered) -> None:
    meter = host.publish("e", "v")
    for milliseconds in range(1, 101):
        host.count(partial(meter.ended, 200, milliseconds * 1_000_000, 250_000, model_error=False))
    model = point(host, "ModelLatency")
    assert (model["Unit"], model["SampleCount"], model["Minimum"], model["Maximum"]) == (
        "Microseconds", 100, 1_000, 100_000
    )  # fmt: skip
    assert model["Average"] == 50_500
    assert point(host, "OverheadLatency")["Average"] == 250
    [percentiles] = host.client("cloudwatch").get_metric_statistics(
        Namespace=REQUESTS, MetricName="ModelLatency", Dimensions=DIMENSIONS, Period=60,
        StartTime=moment(NOON), EndTime=moment(NOON + 60), ExtendedStatistics=["p50", "p90", "p99"],
    )["Datapoints"]  # fmt: skip
    assert percentiles["ExtendedStatistics"] == pytest.approx(
        {"p50": 50_000, "p90": 90_000, "p99": 99_000}, 0.01
    )
    values = [value for value, count in meter.latencies.histogram() for _ in range(int(count))]
    assert values == pytest.approx([1_000 * milliseconds for milliseconds in range(1, 101)], 0.011)


def test_a_request_that_never_reached_an_instance_has_no_model_latency(host: Metered) -> None:
    meter = host.publish("e", "v")
    host.count(lambda: meter.ended(429, 0, 5_000_000, model_error=False))
    assert points(host, "ModelLatency") == []
    assert point(host, "OverheadLatency")["Sum"] == 5_000


def test_multi_model_metrics(host: Metered) -> None:
    meter = host.publish("e", "v")

    def count() -> None:
        meter.placed(4_000_000, cache_hit=False)
        for _ in range(3):
            meter.placed(0, cache_hit=True)
        meter.downloaded(3_000_000)
        meter.loaded(1_000_000)
        meter.unloaded(2_000_000)

    host.count(count)
    hits = point(host, "ModelCacheHit")
    assert (hits["Unit"], hits["Average"], hits["Sum"], hits["SampleCount"]) == ("None", 0.75, 3, 4)
    for name, micros in (
        ("ModelLoadingWaitTime", 4_000),
        ("ModelDownloadingTime", 3_000),
        ("ModelLoadingTime", 1_000),
        ("ModelUnloadingTime", 2_000),
    ):
        assert point(host, name) == {
            "Unit": "Microseconds", "SampleCount": 1,
            "Average": micros, "Sum": micros, "Minimum": micros, "Maximum": micros,
        }, name  # fmt: skip


def test_loaded_models_are_counted_per_instance_each_minute(host: Metered) -> None:
    host.publish("e", "v", Residency({"i-1": 2, "i-2": 4}))
    host.tick(NOON + 30)
    assert points(host, "LoadedModelCount", INSTANCES) == []
    host.tick(NOON + 60)
    assert point(host, "LoadedModelCount", INSTANCES) == {
        "Unit": "None", "SampleCount": 2, "Average": 3, "Sum": 6, "Minimum": 2, "Maximum": 4
    }  # fmt: skip


def test_quiet_minutes_have_zeros(host: Metered) -> None:
    meter = host.publish("e", "v")
    host.tick(NOON + 60)
    host.now = NOON + 90
    host.count(lambda: meter.sent(1))
    for seconds in (120, 180):
        host.tick(NOON + seconds)
    for name in ("Invocations", "InvocationsPerInstance"):
        assert [(minute, each["Sum"], each["SampleCount"]) for minute, each in points(host, name)] == [
            (0, 0, 1), (1, 1, 1), (2, 0, 1)
        ]  # fmt: skip
    assert points(host, "Invocation4XXErrors") == []


def test_what_is_counted_before_the_minute_ends_is_of_that_minute(host: Metered) -> None:
    meter = host.publish("e", "v")
    host.count(lambda: meter.sent(1))
    host.tick(NOON + 60)
    host.count(lambda: meter.sent(1))
    host.tick(NOON + 61)
    assert [(minute, each["Sum"], each["SampleCount"]) for minute, each in points(host, "Invocations")] == [
        (0, 1, 1), (1, 1, 1)
    ]  # fmt: skip


def test_variants_that_take_no_requests_have_no_zeros(host: Metered) -> None:
    host.count(lambda: host.metering.meter(EndpointId(*SCOPE, "creating"), "v"))
    host.publish("e", "v")
    host.count(lambda: host.table.withdraw(EndpointId(*SCOPE, "e")))
    host.tick(NOON + 60)
    assert host.client("cloudwatch").list_metrics()["Metrics"] == []


def test_an_endpoint_that_is_gone_keeps_its_metrics_only(host: Metered) -> None:
    meter = host.publish("e", "v")
    host.count(lambda: meter.sent(1))
    host.count(lambda: host.table.withdraw(EndpointId(*SCOPE, "e")))
    host.count(lambda: host.metering.forget(EndpointId(*SCOPE, "e")))
    host.tick(NOON + 60)
    assert point(host, "Invocations")["Sum"] == 1
    assert not host.loop.call(host.metering.meters)


def test_metrics_survive_a_restart(tmp_path: Path) -> None:
    with metered(tmp_path) as host:
        meter = host.publish("e", "v")
        for milliseconds in range(1, 101):
            host.count(partial(meter.ended, 200, milliseconds * 1_000_000, 0, model_error=False))
        host.count(lambda: meter.sent(1))
        host.tick(NOON + 60)
        host.count(lambda: meter.sent(1))  # not saved but when it stops
        before = point(host, "ModelLatency")
    with metered(tmp_path, NOON + 120) as host:
        assert point(host, "ModelLatency") == before
        assert [(minute, each["Sum"]) for minute, each in points(host, "Invocations")] == [(0, 1), (1, 1)]
        [percentiles] = host.client("cloudwatch").get_metric_statistics(
            Namespace=REQUESTS, MetricName="ModelLatency", Dimensions=DIMENSIONS, Period=60,
            StartTime=moment(NOON), EndTime=moment(NOON + 60), ExtendedStatistics=["p90"],
        )["Datapoints"]  # fmt: skip
        assert percentiles["ExtendedStatistics"]["p90"] == pytest.approx(90_000, 0.01)


def test_a_restart_after_days_folds_and_forgets(tmp_path: Path) -> None:
    with metered(tmp_path) as host:
        meter = host.publish("e", "v")
        for seconds in range(0, 600, 60):
            host.now = NOON + seconds
            host.count(lambda: meter.sent(1))
            host.count(host.metering.flush)
    with metered(tmp_path, NOON + 3 * DAY) as host:
        assert [(minute, each["Sum"]) for minute, each in points(host, "Invocations")] == [(0, 10)]
    with metered(tmp_path, NOON + 3 * DAY) as host:
        assert [(minute, each["Sum"]) for minute, each in points(host, "Invocations")] == [(0, 10)]
    with metered(tmp_path, NOON + 16 * DAY) as host:
        assert host.client("cloudwatch").list_metrics()["Metrics"] == []
    with sqlite3.connect(tmp_path / "metrics.db") as connection:
        assert connection.execute("SELECT count(*) FROM minutes").fetchone() == (0,)
    connection.close()


def test_a_file_that_is_broken_is_put_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "metrics.db").write_bytes(b"this is no database" * 100)
    with metered(tmp_path) as host:
        meter = host.publish("e", "v")
        host.count(lambda: meter.sent(1))
        host.tick(NOON + 60)
    assert "cannot be read" in caplog.text
    assert (tmp_path / "metrics.db.broken").read_bytes().startswith(b"this is no database")
    with metered(tmp_path, NOON + 60) as host:
        assert point(host, "Invocations")["Sum"] == 1


def pragma(host: Metered, text: str) -> None:
    """Say something to the database of metrics."""
    metering = host.metering
    connection = metering._file._connection  # noqa: SLF001 - the disk that takes nothing
    assert connection is not None
    host.loop.run(metering._run(lambda: connection.execute(f"PRAGMA {text}")))  # noqa: SLF001 - in its thread


def test_a_disk_that_takes_nothing_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with metered(tmp_path) as host:
        meter = host.publish("e", "v")
        pragma(host, "query_only = 1")
        host.count(lambda: meter.sent(1))
        host.tick(NOON + 60)
        assert "metrics cannot be saved now" in caplog.text
        assert point(host, "Invocations")["Sum"] == 1
        pragma(host, "query_only = 0")
        host.tick(NOON + 120)
    with metered(tmp_path, NOON + 180) as host:
        assert [(minute, each["Sum"]) for minute, each in points(host, "Invocations")] == [(0, 1), (1, 0)]


BUSY = "data = bytearray(64 << 20)\nprint(flush=True)\nwhile True: pass"


def test_what_an_instance_and_its_children_take(host: Metered, tmp_path: Path) -> None:
    """One process spins; the instance is its parent."""
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        host.publish("e", "v")
        host.instances.append(instance("i-1", process.pid, tmp_path))
        host.tick(NOON + 60)
        assert points(host, "CPUUtilization", INSTANCES) == []
        let_pass(0.3, "it has to take time of a processor")
        host.tick(NOON + 120)
        [(minute, cpu)] = points(host, "CPUUtilization", INSTANCES)
        assert minute == 1
        assert cpu["Unit"] == "Percent"
        assert 0 < cpu["Average"] < 120
        [(_, memory)] = points(host, "MemoryUtilization", INSTANCES)
        assert 64 / 1024 * 100 < memory["Average"] < 30
        [(_, disk)] = points(host, "DiskUtilization", INSTANCES)
        assert 0 < disk["Average"] <= 100
        assert disk["Unit"] == memory["Unit"] == "Percent"
        host.instances.clear()
        host.tick(NOON + 180)
        assert len(points(host, "CPUUtilization", INSTANCES)) == 1
        assert not host.metering.samples
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_gpus_are_averaged_over_the_minute_and_summed_over_an_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = tmp_path / "dev"
    devices.mkdir()
    first, second, other = (
        FakeGpu(f"GPU-{number}", memory_total=1000, memory_used=100) for number in range(3)
    )
    library = machine_with(monkeypatch, devices, [first, second, other])
    other.utilization = 100
    with metered(tmp_path) as host:
        host.publish("e", "v")
        host.instances.append(instance("i-1", os.getpid(), tmp_path, (0, 1)))
        host.tick(NOON + 60)
        for seconds, busy in ((61, 0), (62, 90)):
            first.utilization, second.utilization = busy, 50
            host.tick(NOON + seconds)
        first.utilization, second.utilization = 30, 50
        host.tick(NOON + 120)
        [(minute, busy_of)] = points(host, "GPUUtilization", INSTANCES)
        assert (minute, busy_of["Sum"], busy_of["SampleCount"], busy_of["Unit"]) == (1, 40 + 50, 1, "Percent")
        [(_, memory)] = points(host, "GPUMemoryUtilization", INSTANCES)
        assert (memory["Sum"], memory["Unit"]) == (20, "Percent")
        first.silent = second.silent = {"utilization", "memory_total", "memory_used"}
        host.tick(NOON + 180)
        assert len(points(host, "GPUUtilization", INSTANCES)) == 1
        assert len(points(host, "CPUUtilization", INSTANCES)) == 2
    assert (library.opened, library.closed) == (1, 1)


def test_an_instance_that_has_ended_takes_nothing(host: Metered, tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    host.publish("e", "v")
    host.instances.append(instance("i-1", process.pid, tmp_path / "gone"))
    host.tick(NOON + 60)
    host.tick(NOON + 120)
    [(_, cpu)] = points(host, "CPUUtilization", INSTANCES)
    assert cpu["Sum"] == 0


def test_a_meter_that_fails_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with metered(tmp_path) as host:
        host.instances = None  # type: ignore[assignment]
        host.now = time.time()
        wait_until(lambda: "measuring failed" in caplog.text)
        host.instances = []


def test_requests_under_way_are_counted_at_each_instance_each_second(host: Metered) -> None:
    host.publish("e", "v")
    targets = host.table.routes()[0].variants["v"].targets
    assert [target.outstanding for target in targets] == [2, 0]
    host.tick(NOON + 1)
    targets[1].inflight = 6
    host.tick(NOON + 2)
    assert point(host, "ConcurrentRequestsPerModel") == {
        "SampleCount": 4.0,
        "Average": 2.5,
        "Sum": 10.0,
        "Minimum": 0.0,
        "Maximum": 6.0,
        "Unit": "None",
    }
