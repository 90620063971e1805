"""Monitoring schedules and their executions, on a clock that the test sets."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.monitoring import scheduler
from halimede.hosting.monitoring.captures import Capture
from halimede.hosting.monitoring.job import ColumnMetrics
from halimede.hosting.monitoring.records import Execution
from halimede.hosting.monitoring.scheduler import SETTLE_S
from halimede.hosting.monitoring.timetable import Timetable
from tests.hosting.monitoring.serving import HOUR, HOURLY, NOON, ROLE, Monitored, at, definition, inline

ARN = "arn:aws:sagemaker:us-east-1:000000000000:monitoring-schedule/s"


def test_a_schedule_is_described_as_it_was_made(host: Monitored) -> None:
    assert host.schedule() == ARN
    for _ in range(2):
        found = host.client().describe_monitoring_schedule(MonitoringScheduleName="s")
        assert found["MonitoringScheduleArn"] == ARN
        assert found["MonitoringScheduleStatus"] == "Scheduled"
        assert found["EndpointName"] == "e"
        assert found["MonitoringType"] == "DataQuality"
        assert found["MonitoringScheduleConfig"] == {
            "ScheduleConfig": {"ScheduleExpression": HOURLY},
            "MonitoringJobDefinitionName": "d",
            "MonitoringType": "DataQuality",
        }
        assert "LastMonitoringExecutionSummary" not in found
        host.restart()


def test_an_hourly_schedule_runs_after_each_hour_over_the_hour_before(host: Monitored) -> None:
    host.schedule()
    host.tick()
    assert host.executions() == []
    host.now = NOON + HOUR
    host.tick()
    [execution] = host.executions()
    assert execution["MonitoringExecutionStatus"] == "Pending"
    assert execution["ScheduledTime"] == at("13:00:00")
    assert execution["EndpointName"] == "e"
    assert execution["MonitoringJobDefinitionName"] == "d"
    host.tick(SETTLE_S - 1)
    assert host.statuses() == ["Pending"]
    host.tick(1)
    assert host.statuses() == ["InProgress"]
    assert host.runner is not None
    [begun] = host.runner.begun
    assert (begun.begin, begun.end) == (NOON, NOON + HOUR)
    assert begun.output == "s3://data/reports/e/s/2026/03/04/13"
    host.finish(records=10)
    assert host.statuses() == ["Completed"]
    last = host.client().describe_monitoring_schedule(MonitoringScheduleName="s")
    assert last["LastMonitoringExecutionSummary"]["MonitoringExecutionStatus"] == "Completed"
    host.tick(HOUR)
    assert host.statuses() == ["InProgress", "Completed"]


def test_violations_and_failures_are_told(host: Monitored) -> None:
    host.schedule()
    results: list[dict[str, Any]] = [{"violations": 2}, {"failure": "Job inputs had no data"}]
    for number, result in enumerate(results):
        host.tick()
        host.now = NOON + (number + 1) * HOUR + SETTLE_S
        host.tick()
        host.finish(**result)
    assert host.statuses() == ["Failed", "CompletedWithViolations"]
    failed, violated = host.executions()
    assert failed["FailureReason"] == "Job inputs had no data"
    name = violated["ProcessingJobArn"].rpartition("/")[2]
    job = host.client().describe_processing_job(ProcessingJobName=name)
    assert job["ProcessingJobStatus"] == "Completed"
    assert job["ExitMessage"] == "CompletedWithViolations: Job completed successfully with 2 violations."
    assert job["MonitoringScheduleArn"] == ARN
    [output] = job["ProcessingOutputConfig"]["Outputs"]
    assert output["S3Output"]["S3Uri"] == "s3://data/reports/e/s/2026/03/04/13"
    assert job["ProcessingInputs"][0]["S3Input"]["S3Uri"] == "s3://data/captured/e"
    assert job["ProcessingEndTime"] == job["LastModifiedTime"]


def test_what_came_out_of_a_job_is_kept_once_the_disk_takes_it(
    host: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.schedule()
    host.tick()
    host.now = NOON + HOUR
    host.tick()
    host.tick(SETTLE_S)
    assert host.statuses() == ["InProgress"]
    state = host.monitoring._state  # noqa: SLF001 - the disk that fails
    put, failures = state.put_execution, iter([ApiError("InternalFailure", "the disk is full", 500)])

    async def put_or_fail(execution: Execution) -> None:
        for failure in failures:
            raise failure
        await put(execution)

    monkeypatch.setattr(state, "put_execution", put_or_fail)
    monkeypatch.setattr(scheduler, "_KEEP_AGAIN_S", 0.01)
    host.finish(records=10)
    assert host.statuses() == ["Completed"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            invalid("Failed to list the objects (bucket: data): gone"),
            "Failed to list the objects (bucket: data): gone",
        ),
        (RuntimeError("a bug"), "The host could not run the job: RuntimeError('a bug')"),
    ],
)
def test_a_job_that_cannot_be_run_fails_with_the_reason(
    host: Monitored, error: Exception, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    host.schedule()
    host.tick()
    host.now = NOON + HOUR + SETTLE_S
    host.tick()
    host.fail(error)
    [execution] = host.executions()
    assert (execution["MonitoringExecutionStatus"], execution["FailureReason"]) == ("Failed", said)
    assert said.split("'")[0] in caplog.text


def test_executions_are_found_by_what_they_are(host: Monitored) -> None:
    host.schedule()
    host.schedule("s2")
    host.tick()
    host.now = NOON + HOUR
    host.tick()
    assert len(host.executions()) == 2
    assert len(host.executions(MonitoringScheduleName="s")) == 1
    assert len(host.executions(EndpointName="e", StatusEquals="Pending")) == 2
    assert host.executions(EndpointName="other") == []
    assert host.executions(ScheduledTimeAfter=at("13:00:01")) == []
    assert len(host.executions(ScheduledTimeBefore=at("13:00:00"))) == 2


def test_jobs_run_one_after_the_other(host: Monitored) -> None:
    host.schedule()
    host.schedule("s2")
    host.tick()
    host.now = NOON + HOUR + SETTLE_S
    host.tick()
    host.tick()
    assert sorted(host.statuses()) == ["InProgress", "Pending"]
    host.finish()
    host.tick()
    assert sorted(host.statuses()) == ["Completed", "InProgress"]
    host.finish()


# once


def now_schedule(host: Monitored) -> None:
    host.schedule(expression="NOW", DataAnalysisStartTime="-PT2H", DataAnalysisEndTime="-PT0H")


def test_a_schedule_for_now_runs_once_at_once(host: Monitored) -> None:
    now_schedule(host)
    host.tick()
    assert host.runner is not None
    [begun] = host.runner.begun
    assert (begun.begin, begun.end) == (host.now - 2 * HOUR, host.now)
    host.finish()
    host.restart()
    host.tick(24 * HOUR)
    assert host.statuses() == ["Completed"]
    host.client().update_monitoring_schedule(
        MonitoringScheduleName="s",
        MonitoringScheduleConfig={
            "ScheduleConfig": {
                "ScheduleExpression": "NOW",
                "DataAnalysisStartTime": "-PT1H",
                "DataAnalysisEndTime": "-PT0H",
            },
            "MonitoringJobDefinitionName": "d",
        },
    )
    host.tick()
    assert host.statuses() == ["InProgress", "Completed"]
    host.finish()


# ends of the host


def test_what_was_due_while_the_host_was_away_is_left_out(host: Monitored) -> None:
    host.schedule()
    host.tick()
    host.loop.run(host.monitoring.stop())
    host.now = NOON + 5.5 * HOUR
    host.loop.run(host.start())
    host.tick()
    assert host.executions() == []
    host.now = NOON + 6 * HOUR
    host.tick()
    assert [each["ScheduledTime"] for each in host.executions()] == [at("18:00:00")]


def test_what_was_due_a_moment_ago_is_run(host: Monitored) -> None:
    host.schedule()
    host.now = NOON + HOUR + 60
    host.restart()
    host.tick()
    assert [each["ScheduledTime"] for each in host.executions()] == [at("13:00:00")]
    host.restart()
    host.tick()
    assert len(host.executions()) == 1


def test_an_execution_that_was_cut_off_is_run_again_twice(host: Monitored) -> None:
    host.schedule()
    host.tick()
    host.now = NOON + HOUR + SETTLE_S
    for _ in range(3):
        host.tick()
        assert host.statuses() == ["InProgress"]
        host.restart()
    assert host.statuses() == ["Failed"]
    assert host.executions()[0]["FailureReason"] == "The host ended 3 times while the job ran"
    assert host.runner is not None
    assert len({each.name for each in host.runner.begun}) == 1
    assert len(host.runner.cancelled) == 3


# changes


def test_a_stopped_schedule_does_not_run_until_it_is_started(host: Monitored) -> None:
    host.schedule()
    client = host.client()
    client.stop_monitoring_schedule(MonitoringScheduleName="s")
    host.restart()
    for _ in range(4):
        host.tick(HOUR)
    found = client.describe_monitoring_schedule(MonitoringScheduleName="s")
    assert found["MonitoringScheduleStatus"] == "Stopped"
    assert host.executions() == []
    client.start_monitoring_schedule(MonitoringScheduleName="s")
    host.tick()
    assert host.executions() == []  # the past is past
    host.tick(HOUR)
    assert [each["ScheduledTime"] for each in host.executions()] == [at("17:00:00")]


def test_a_deleted_schedule_ends_its_job_and_leaves_its_executions(host: Monitored) -> None:
    host.schedule()
    host.tick()
    host.now = NOON + HOUR + SETTLE_S
    host.tick()
    host.client().delete_monitoring_schedule(MonitoringScheduleName="s")
    assert host.statuses() == ["Stopped"]
    assert host.runner is not None
    assert len(host.runner.cancelled) == 1
    assert host.refused("describe_monitoring_schedule", MonitoringScheduleName="s") == (
        "ResourceNotFound",
        f'Could not find monitoring schedule "{ARN}".',
    )
    host.schedule("s2")  # others go on
    host.tick()
    host.now = NOON + 2 * HOUR + SETTLE_S
    host.tick()
    assert host.statuses() == ["InProgress", "Stopped"]
    host.finish()


def test_the_oldest_executions_of_deleted_schedules_are_forgotten(
    host: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halimede.hosting.monitoring.state._KEPT_OF_DELETED", 2)
    window = {"DataAnalysisStartTime": "-PT1H", "DataAnalysisEndTime": "-PT0H"}
    for number in range(5):
        host.schedule(f"s{number}", "NOW", **window)
        host.tick(after=1.0)
        host.finish()
        if number < 4:
            host.client().delete_monitoring_schedule(MonitoringScheduleName=f"s{number}")
    expected = ["s4", "s3", "s2"]
    assert [each["MonitoringScheduleName"] for each in host.executions()] == expected
    host.restart()
    assert [each["MonitoringScheduleName"] for each in host.executions()] == expected


def test_an_execution_can_be_stopped_as_a_processing_job(host: Monitored) -> None:
    host.schedule()
    host.tick()
    host.now = NOON + HOUR + SETTLE_S
    host.tick()
    name = host.executions()[0]["ProcessingJobArn"].rpartition("/")[2]
    host.client().stop_processing_job(ProcessingJobName=name)
    assert host.statuses() == ["Stopped"]
    code, text = host.refused("stop_processing_job", ProcessingJobName=name)
    assert (code, text.endswith("which is Stopped.")) == ("ValidationException", True)
    code, text = host.refused("describe_processing_job", ProcessingJobName="none")
    assert code == "ResourceNotFound"
    assert "This host has none but those of monitoring schedules." in text


def test_a_schedule_fails_when_its_definition_is_gone(host: Monitored) -> None:
    host.schedule()
    host.client().delete_data_quality_job_definition(JobDefinitionName="d")
    host.tick(HOUR)
    found = host.client().describe_monitoring_schedule(MonitoringScheduleName="s")
    assert found["MonitoringScheduleStatus"] == "Failed"
    assert found["FailureReason"] == "The job definition d does not exist any more"
    host.client().create_data_quality_job_definition(**definition())
    host.client().start_monitoring_schedule(MonitoringScheduleName="s")
    host.tick()
    host.now = NOON + 2 * HOUR
    host.tick()
    assert host.statuses() == ["Pending"]


def test_an_execution_fails_when_its_endpoint_is_gone(host: Monitored) -> None:
    host.schedule()
    host.tick()
    host.configs.clear()
    host.tick(HOUR)
    [execution] = host.executions()
    assert execution["MonitoringExecutionStatus"] == "Failed"
    assert execution["FailureReason"] == (
        'Could not find endpoint "arn:aws:sagemaker:us-east-1:000000000000:endpoint/e".'
    )


def test_a_schedule_may_have_its_definition_in_itself(host: Monitored) -> None:
    config = {
        "ScheduleConfig": {"ScheduleExpression": HOURLY},
        "MonitoringJobDefinition": inline(
            BaselineConfig={
                "ConstraintsResource": {"S3Uri": "s3://data/c.json"},
                "StatisticsResource": {"S3Uri": "s3://data/s.json"},
            },
            StoppingCondition={"MaxRuntimeInSeconds": 60},
            Environment={"publish_cloudwatch_metrics": "Disabled"},
        ),
    }
    host.client().create_monitoring_schedule(MonitoringScheduleName="s", MonitoringScheduleConfig=config)
    host.tick()
    host.now = NOON + HOUR + SETTLE_S
    host.tick()
    assert host.runner is not None
    [begun] = host.runner.begun
    work = begun.work
    assert (work.statistics, work.constraints) == ("s3://data/s.json", "s3://data/c.json")
    assert (work.max_runtime_s, work.role, work.publishes_metrics) == (60, ROLE, False)
    host.finish(columns=(ColumnMetrics("x", 1, 0, 1.0, 1.0, 1.0, 0.5),))
    assert host.client("cloudwatch").list_metrics()["Metrics"] == []


def test_schedules_are_listed_by_what_they_are(host: Monitored) -> None:
    client = host.client()
    host.schedule()
    client.create_monitoring_schedule(
        MonitoringScheduleName="own",
        MonitoringScheduleConfig={
            "ScheduleConfig": {"ScheduleExpression": HOURLY},
            "MonitoringJobDefinition": inline(),
        },
    )
    client.stop_monitoring_schedule(MonitoringScheduleName="own")

    def names(**request: Any) -> list[str]:
        found = client.list_monitoring_schedules(**request)["MonitoringScheduleSummaries"]
        return sorted(each["MonitoringScheduleName"] for each in found)

    assert names() == ["own", "s"]
    assert names(StatusEquals="Stopped") == ["own"]
    assert names(MonitoringJobDefinitionName="d") == ["s"]
    assert names(EndpointName="e", MonitoringTypeEquals="DataQuality") == ["own", "s"]
    assert names(MonitoringTypeEquals="ModelBias") == []


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"MonitoringJobDefinitionName": "d", "MonitoringType": "ModelBias"},
            "MonitoringType ModelBias is not available",
        ),
        ({}, "needs either MonitoringJobDefinitionName or MonitoringJobDefinition"),
        ({"MonitoringJobDefinitionName": "d", "MonitoringJobDefinition": inline()}, "needs either"),
        (
            {"MonitoringJobDefinitionName": "d", "ScheduleConfig": {"ScheduleExpression": "NOW"}},
            "ScheduleExpression NOW needs DataAnalysisStartTime and DataAnalysisEndTime",
        ),
        (
            {"MonitoringJobDefinitionName": "d", "ScheduleConfig": {"ScheduleExpression": "rate(1 hour)"}},
            "ScheduleExpression 'rate(1 hour)' is not valid: expected NOW, cron(0 * ? * * *) for hourly",
        ),
    ],
)
def test_schedules_that_could_not_run_are_refused(host: Monitored, config: Any, said: str) -> None:
    code, text = host.refused(
        "create_monitoring_schedule", MonitoringScheduleName="x", MonitoringScheduleConfig=config
    )
    assert code == "ValidationException"
    assert said in text


def test_an_endpoint_that_captures_nothing_cannot_be_monitored(host: Monitored) -> None:
    host.add("e", EnableCapture=False)
    code, text = host.refused(
        "create_monitoring_schedule",
        MonitoringScheduleName="x",
        MonitoringScheduleConfig={"MonitoringJobDefinitionName": "d"},
    )
    assert code == "ValidationException"
    assert text == (
        'Endpoint "e" captures no data, which monitoring needs: set DataCaptureConfig, with EnableCapture, in its '
        "endpoint configuration"
    )


def test_a_definition_that_is_not_there_cannot_be_scheduled(host: Monitored) -> None:
    code, _ = host.refused(
        "create_monitoring_schedule",
        MonitoringScheduleName="x",
        MonitoringScheduleConfig={"MonitoringJobDefinitionName": "none"},
    )
    assert code == "ResourceNotFound"


def test_a_shorter_hour_makes_schedules_run_more_often(host: Monitored) -> None:
    host.pace = 1 / 60  # AWS's hour takes a minute
    host.schedule()
    host.tick()
    for _ in range(180):
        host.tick(1.0)
    times = sorted(each["ScheduledTime"].timestamp() for each in host.executions())
    assert len(times) == 3
    assert [after - before for before, after in itertools.pairwise(times)] == [60.0, 60.0]
    assert host.runner is not None
    [begun] = host.runner.begun
    assert begun.end - begun.begin == 60.0
    assert begun.output.startswith("s3://data/reports/e/s/2026/03/04/12/")


# metrics


def test_metrics_of_columns_are_those_of_the_job(host: Monitored) -> None:
    host.schedule()
    host.tick()
    host.now = NOON + HOUR + SETTLE_S
    host.tick()
    host.finish(
        violations=1,
        columns=(ColumnMetrics("input.x", 8, 2, 40.0, 1.0, 9.0, 0.25), ColumnMetrics("input.t", 10, 0)),
    )
    client = host.client("cloudwatch")
    found = {each["MetricName"]: each for each in client.list_metrics()["Metrics"]}
    assert set(found) == {
        "feature_data_input.x",
        "feature_non_null_input.x",
        "feature_baseline_drift_input.x",
        "feature_non_null_input.t",
    }
    assert found["feature_data_input.x"]["Namespace"] == "/aws/sagemaker/Endpoints/data-metrics"
    dimensions = found["feature_data_input.x"]["Dimensions"]
    assert dimensions == [{"Name": "Endpoint", "Value": "e"}, {"Name": "MonitoringSchedule", "Value": "s"}]

    def statistics(name: str) -> dict[str, Any]:
        [point] = client.get_metric_statistics(
            Namespace="/aws/sagemaker/Endpoints/data-metrics",
            MetricName=name,
            Dimensions=dimensions,
            StartTime=at("12:00:00"),
            EndTime=at("15:00:00"),
            Period=60,
            Statistics=["Average", "Minimum", "Maximum", "SampleCount"],
        )["Datapoints"]
        return {name: point[name] for name in ("Average", "Minimum", "Maximum", "SampleCount")}

    assert statistics("feature_data_input.x") == {"Average": 5, "Minimum": 1, "Maximum": 9, "SampleCount": 8}
    assert statistics("feature_non_null_input.x")["Average"] == 8
    assert statistics("feature_baseline_drift_input.x")["Average"] == 0.25


# times


def seconds(value: float) -> float:
    return value


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({"ScheduleExpression": HOURLY}, (-HOUR, 0)),
        ({"ScheduleExpression": "cron(0 0 ? * * *)"}, (-24 * HOUR, 0)),
        ({"ScheduleExpression": "cron(0 17/12 ? * * *)"}, (-12 * HOUR, 0)),
        (
            {"ScheduleExpression": HOURLY, "DataAnalysisStartTime": "-PT5H", "DataAnalysisEndTime": "-PT1H"},
            (-5 * HOUR, -HOUR),
        ),
        (
            {
                "ScheduleExpression": "cron(0 12 ? * * *)",
                "DataAnalysisStartTime": "-P1D",
                "DataAnalysisEndTime": "PT0S",
            },
            (-24 * HOUR, 0),
        ),
    ],
)
def test_windows_are_those_of_the_schedule(config: dict[str, str], window: tuple[float, float]) -> None:
    found = Timetable.of(config, {})
    assert (found.begin_s, found.end_s) == window
    assert found.window(NOON, seconds) == (NOON + window[0], NOON + window[1])


@pytest.mark.parametrize(
    "offsets",
    [
        ("-PT1H", "-PT2H"),
        ("-PT1H", "-PT1H"),
        ("-PT25H", "-PT0H"),
        ("PT1H", "-PT0H"),
        ("-1H", "-PT0H"),
        ("-P", "-PT0H"),
    ],
)
def test_windows_that_are_none_are_refused(offsets: tuple[str, str]) -> None:
    with pytest.raises(ApiError):
        Timetable.of(
            {
                "ScheduleExpression": "NOW",
                "DataAnalysisStartTime": offsets[0],
                "DataAnalysisEndTime": offsets[1],
            },
            {},
        )


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "cron(0 * ? * * * *)",
        "cron(5 * ? * * *)",
        "cron(0 24 ? * * *)",
        "cron(0 1/25 ? * * *)",
        "cron(0 * * * ? *)",
        "now",
    ],
)
def test_expressions_that_sagemaker_does_not_have_are_refused(expression: str) -> None:
    with pytest.raises(ApiError):
        Timetable.of({"ScheduleExpression": expression}, {})


@given(st.integers(0, 10**7), st.sampled_from([1.0, 1 / 60, 0.5]))
def test_times_follow_each_other_an_hour_apart_at_any_pace(after: int, pace: float) -> None:
    hourly = Timetable.of({"ScheduleExpression": HOURLY}, {})
    first = hourly.next_after(NOON + after, NOON, lambda value: value * pace)
    assert first is not None
    second = hourly.next_after(first, NOON, lambda value: value * pace)
    assert second is not None
    assert NOON + after < first <= NOON + after + HOUR * pace + 1e-3
    assert second - first == pytest.approx(HOUR * pace, abs=1e-3)


def test_files_are_looked_for_below_the_hours_of_the_window() -> None:
    capture = Capture("s3://b/p/", "e", ["A", "B"])
    assert capture.prefixes(NOON, NOON + HOUR) == [
        f"s3://b/p/e/{variant}/2026/03/04/{hour}/" for variant in "AB" for hour in (11, 12, 13)
    ]
