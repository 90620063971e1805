"""A host that is killed while a monitoring job runs runs it again."""

import os
import signal
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from halimede.hosting.substrates.processes import end_marked
from tests.hosting.monitoring.serving import definition
from tests.hosting.monitoring.traffic import records, write_file
from tests.hosting.substrates.instances import write_serve
from tests.support.host import HostProcess, start_host
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

ROLE = "arn:aws:iam::000000000000:role/halimede"


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the bucket ``data``, a model's program, and the host's own."""
    directory = tmp_path_factory.mktemp("place")
    (directory / "data").mkdir()
    (directory / "config.pbtxt").write_text('backend: "x"')
    with tarfile.open(directory / "data" / "model.tar.gz", "w:gz") as archive:
        archive.add(directory / "config.pbtxt", "m/config.pbtxt")
    write_serve(directory)
    yield directory
    end_marked(directory / "host", 0.0)


def statuses(host: HostProcess) -> list[str]:
    found = host.client("sagemaker").list_monitoring_executions()["MonitoringExecutionSummaries"]
    return [each["MonitoringExecutionStatus"] for each in found]


def jobs(place: Path) -> list[int]:
    """The jobs of the host that run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if b"halimede.hosting.monitoring.job" in command and str(place).encode() in command:
            found.append(int(entry.name))
    return found


def monitor(host: HostProcess, place: Path) -> None:
    """An endpoint, and a schedule that looks at its last two hours once."""
    sagemaker = host.client("sagemaker")
    container = {"Image": str(place / "serve-program"), "ModelDataUrl": "s3://data/model.tar.gz"}
    sagemaker.create_model(ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    sagemaker.create_endpoint_config(
        EndpointConfigName="e",
        ProductionVariants=[
            {"VariantName": "A", "ModelName": "m", "InstanceType": "ml.local.cpu", "InitialInstanceCount": 1}
        ],
        DataCaptureConfig={
            "EnableCapture": True,
            "InitialSamplingPercentage": 100,
            "DestinationS3Uri": "s3://data/captured",
            "CaptureOptions": [{"CaptureMode": "Input"}],
        },
    )
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="e")
    sagemaker.create_data_quality_job_definition(**definition())
    sagemaker.create_monitoring_schedule(
        MonitoringScheduleName="s",
        MonitoringScheduleConfig={
            "ScheduleConfig": {
                "ScheduleExpression": "NOW",
                "DataAnalysisStartTime": "-PT2H",
                "DataAnalysisEndTime": "-PT0H",
            },
            "MonitoringJobDefinitionName": "d",
        },
    )


def test_a_job_that_was_cut_off_by_kill_9_is_run_again(place: Path) -> None:
    begin = time.time() - 3600
    hour = time.strftime("%Y/%m/%d/%H", time.gmtime(begin))
    file = place / "data" / "captured" / "e" / "A" / hour / "1.jsonl"
    file.parent.mkdir(parents=True)
    os.mkfifo(file)  # whoever reads it waits
    with start_host(place / "host", f"--bucket=data={place / 'data'}") as host:
        monitor(host, place)
        wait_until(lambda: statuses(host) == ["InProgress"] and jobs(place), "the job", longest_s=0.2)
        host.process.send_signal(signal.SIGKILL)
        host.process.wait(60)
    wait_until(lambda: not jobs(place), "the end of the job, whose host is gone", longest_s=0.2)
    file.unlink()
    write_file(file, records(50, begin))
    with start_host(place / "host", f"--bucket=data={place / 'data'}") as host:
        wait_until(lambda: statuses(host) == ["Completed"], "the second run")
        [execution] = host.client("sagemaker").list_monitoring_executions()["MonitoringExecutionSummaries"]
        name = execution["ProcessingJobArn"].rpartition("/")[2]
        job = host.client("sagemaker").describe_processing_job(ProcessingJobName=name)
        output = job["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3Uri"]
        report = place / "data" / output.removeprefix("s3://data/") / "report.html"
        assert "50" in report.read_text()
        # and its log can be read as an endpoint's
        events = host.client("logs").get_log_events(
            logGroupName="/aws/sagemaker/Endpoints/e", logStreamName="monitoring/s", startFromHead=True
        )["events"]
        assert [f"{name} begins" in each["message"] for each in events].count(True) == 2
