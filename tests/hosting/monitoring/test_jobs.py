"""Monitoring jobs as they run: processes of their own over captured files."""

import importlib.util
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from halimede.hosting.capture.records import write_record
from halimede.hosting.monitoring.captured import END, head_of
from halimede.hosting.monitoring.job import Plan, run
from tests.hosting.monitoring.serving import HOUR, NOON, Monitored, definition
from tests.hosting.monitoring.traffic import records, write_file
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

HOUR_OF = "captured/e/A/2026/03/04/11"
BASELINE = {
    "ConstraintsResource": {"S3Uri": "s3://data/baseline/constraints.json"},
    "StatisticsResource": {"S3Uri": "s3://data/baseline/statistics.json"},
}


@pytest.fixture(scope="module")
def made_baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a baseline, made of data without drift."""
    directory = tmp_path_factory.mktemp("baseline")
    lines = [*map(write_record, records(1_500, NOON, seed=1)), END]
    assert not run(Plan("e", "", "", "", "", "", "", str(directory)), lines).failure
    return directory


@pytest.fixture
def baseline(real: Monitored, made_baseline: Path) -> Path:
    """The same files in the bucket, for the test to change."""
    return shutil.copytree(made_baseline, real.bucket / "baseline")


def start(host: Monitored, **further: Any) -> None:
    """A schedule that looks at the hour before noon, now."""
    host.client().create_data_quality_job_definition(**definition(**further))
    host.now = NOON
    host.schedule(expression="NOW", DataAnalysisStartTime="-PT1H", DataAnalysisEndTime="-PT0H")


def reason(host: Monitored) -> str:
    [execution] = host.executions()
    assert execution["MonitoringExecutionStatus"] == "Failed"
    text: str = execution["FailureReason"]
    return text


def output(host: Monitored, name: str) -> bytes:
    return (host.bucket / "reports/e/s/2026/03/04/12" / name).read_bytes()


def test_drift_is_found_and_written_down(real: Monitored, baseline: Path) -> None:
    write_file(real.bucket / HOUR_OF / "1.jsonl", records(400, NOON - HOUR, seed=2, shift=1.0))
    write_file(real.bucket / "captured/e/A/2026/03/04/12/2.jsonl", records(400, NOON, seed=3, shift=-9.0))
    start(real, DataQualityBaselineConfig=BASELINE)
    real.run_jobs()
    [execution] = real.executions()
    assert execution["MonitoringExecutionStatus"] == "CompletedWithViolations", execution
    violations = orjson.loads(output(real, "constraint_violations.json"))["violations"]
    assert {each["feature_name"]: each["constraint_check_type"] for each in violations} == {
        "input.x[0]": "baseline_drift_check",
        "output.score": "baseline_drift_check",
        "output.label": "baseline_drift_check",
    }
    statistics = orjson.loads(output(real, "statistics.json"))
    assert statistics["dataset"]["item_count"] == 400  # the next hour's do not count
    assert [each["name"] for each in statistics["features"]] == [
        "input.x[0]", "input.x[1]", "input.x[2]", "output.score", "output.label",
    ]  # fmt: skip
    assert {each["name"] for each in orjson.loads(output(real, "constraints.json"))["features"]} == {
        each["name"] for each in statistics["features"]
    }
    page = output(real, "report.html").decode()
    assert "3 of 5 columns have changed" in page
    assert "The mean rose from" in page
    log = (real.directory / "logs/000000000000/us-east-1/e/monitoring/s.log").read_text()
    assert "input.x[0]: baseline_drift_check: " in log
    names = {each["MetricName"] for each in real.client("cloudwatch").list_metrics()["Metrics"]}
    assert "feature_baseline_drift_output.label" in names


def test_data_like_the_baseline_s_violate_nothing(real: Monitored, baseline: Path) -> None:
    write_file(real.bucket / HOUR_OF / "1.jsonl", records(400, NOON - HOUR, seed=4))
    start(real, DataQualityBaselineConfig=BASELINE)
    real.run_jobs()
    assert real.statuses() == ["Completed"]
    assert orjson.loads(output(real, "constraint_violations.json")) == {"violations": []}
    assert "All columns are as in the baseline" in output(real, "report.html").decode()


def test_without_a_baseline_there_are_statistics_and_no_violations(real: Monitored) -> None:
    write_file(real.bucket / HOUR_OF / "1.jsonl", records(20, NOON - HOUR))
    start(real)
    real.run_jobs()
    assert real.statuses() == ["Completed"]
    assert "There is no baseline to compare with" in output(real, "report.html").decode()


def test_files_that_were_cut_off_are_read_as_far_as_they_go(real: Monitored, baseline: Path) -> None:
    path = write_file(real.bucket / HOUR_OF / "1.jsonl", records(200, NOON - HOUR, seed=5))
    path.write_bytes(path.read_bytes()[:-100])
    write_file(real.bucket / HOUR_OF / "2.jsonl", records(200, NOON - HOUR, seed=6))
    start(real, DataQualityBaselineConfig=BASELINE)
    real.run_jobs()
    assert real.statuses() == ["Completed"]
    assert orjson.loads(output(real, "statistics.json"))["dataset"]["item_count"] == 399
    page = output(real, "report.html").decode()
    assert "1 line is no record and was skipped, as of files that were cut off." in page


@pytest.mark.parametrize("files", [(), (NOON - 2 * HOUR,)])
def test_an_hour_without_data_fails_as_it_does_on_aws(real: Monitored, files: tuple[float, ...]) -> None:
    (real.bucket / "captured").mkdir()
    for begin in files:
        write_file(real.bucket / HOUR_OF / "early.jsonl", records(3, begin))
    start(real)
    real.run_jobs()
    assert reason(real) == "Job inputs had no data"


def test_bodies_that_nobody_can_read_fail_with_the_reason(real: Monitored) -> None:
    [record] = records(1, NOON - HOUR)
    line = write_record(record).replace(b"json-header-size=", b"json-header-size=9")
    line = line.replace(b"shape", b"shapf")
    path = real.bucket / HOUR_OF / "1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(re.sub(rb'"endpointInput":\{.*?\},"endpointOutput"', b'"endpointOutput"', line))
    start(real)
    real.run_jobs()
    assert reason(real).startswith("None of the 1 records has a body that can be read: output: ")


def test_a_bucket_that_is_gone_fails_with_its_name(real: Monitored) -> None:
    real.add("e", DestinationS3Uri="s3://gone/captured")
    start(real)
    real.run_jobs()
    assert "gone" in reason(real)


def test_a_baseline_that_is_gone_fails_with_its_name(real: Monitored, baseline: Path) -> None:
    (baseline / "statistics.json").unlink()
    write_file(real.bucket / HOUR_OF / "1.jsonl", records(3, NOON - HOUR))
    start(real, DataQualityBaselineConfig=BASELINE)
    real.run_jobs()
    assert "baseline/statistics.json" in reason(real)


def test_a_baseline_that_is_none_fails_with_what_is_wrong(real: Monitored, baseline: Path) -> None:
    (baseline / "constraints.json").write_bytes(b"{}")
    write_file(real.bucket / HOUR_OF / "1.jsonl", records(3, NOON - HOUR))
    start(real, DataQualityBaselineConfig=BASELINE)
    real.run_jobs()
    assert reason(real) == (
        "the baseline's constraints is no constraints.json of Model Monitor: it has no member 'features'"
    )


def test_a_host_without_the_library_says_what_to_install(
    real: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    start(real)
    real.run_jobs()
    assert reason(real) == (
        "The monitoring job needs scipy, which is not installed; install it with: pip install "
        '"halimede[drift]"'
    )


# jobs that do not end by themselves


def children() -> list[int]:
    """The jobs that run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"PPid:\t{os.getpid()}\n" in (entry / "status").read_text():
                command = (entry / "cmdline").read_bytes()
                if b"halimede.hosting.monitoring.job" in command:
                    found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture
def endless(real: Monitored) -> Iterator[Path]:
    """A captured file that never ends."""
    path = real.bucket / HOUR_OF / "1.jsonl"
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    over = threading.Event()
    lines = b"".join(map(write_record, records(50, NOON - HOUR)))

    def write() -> None:
        while not over.is_set():
            try:
                with path.open("wb") as file:
                    while not over.is_set():
                        file.write(lines)
                        over.wait(0.01)
            except BrokenPipeError:  # its reader has gone; there may be another one
                continue

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    yield path
    over.set()
    # whoever waits for the other end goes on
    end = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    writing.join(60)
    os.close(end)


def test_a_job_that_is_killed_fails_with_how(real: Monitored, endless: Path) -> None:
    start(real)
    real.tick()
    [job] = wait_until(children, "the job")
    os.kill(job, signal.SIGKILL)
    real.loop.run(real.monitoring.idle(), timeout=60)
    assert reason(real).startswith("The job was killed by signal 9; its log has the details: ")
    assert not list((real.directory / "monitoring").iterdir())


def test_a_job_that_takes_too_long_is_ended(real: Monitored, endless: Path) -> None:
    start(real, StoppingCondition={"MaxRuntimeInSeconds": 1})
    real.run_jobs()
    assert reason(real) == "The job took longer than MaxRuntimeInSeconds, which is 1"
    assert not children()


def test_a_job_ends_with_its_schedule_and_with_the_host(real: Monitored, endless: Path) -> None:
    start(real)
    real.tick()
    wait_until(children, "the job")
    real.restart()
    assert not children()
    assert real.statuses() == ["Pending"]
    real.tick()
    wait_until(children, "the job")
    real.client().delete_monitoring_schedule(MonitoringScheduleName="s")
    assert not children()
    assert real.statuses() == ["Stopped"]


def test_a_job_whose_host_was_killed_leaves_nothing(tmp_path: Path) -> None:
    lines = [head_of("f"), *map(write_record, records(5, NOON))]
    import subprocess
    import sys

    plan = Plan("e", "s", "", "", "", "", "", str(tmp_path))
    plan.write(tmp_path / "plan.json")
    command = [sys.executable, "-m", "halimede.hosting.monitoring.job", str(tmp_path / "plan.json")]
    ended = subprocess.run(command, input=b"".join(lines), capture_output=True, check=False, timeout=120)
    assert ended.returncode == 1
    assert ended.stdout == b"the host has ended before it had given all files\n"
    assert [each.name for each in tmp_path.iterdir()] == ["plan.json"]


def test_memory_does_not_grow_with_what_was_captured(tmp_path: Path) -> None:
    import tracemalloc

    some = list(map(write_record, records(500, NOON)))

    def peak(times: int) -> int:
        def lines() -> Iterator[bytes]:
            for _ in range(times):
                yield from some
            yield END

        directory = tmp_path / str(times)
        directory.mkdir()
        tracemalloc.start()
        try:
            assert not run(Plan("e", "s", "", "", "", "", "", str(directory)), lines()).failure
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1)  # modules are imported
    assert peak(20) < 1.5 * peak(5)
