"""Transform jobs of a real host, with real instances: a program that adds up the rows of CSV files."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.substrates.processes import end_marked, marked
from tests.support.host import HostProcess, start_host

ROLE = "arn:aws:iam::000000000000:role/halimede"

PROGRAM = """#!{python} -E
import json, os, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self.answer(200, b"")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        time.sleep(float(os.environ.get("SECONDS", "0")))
        if "bad" in body or "FAILS" in os.environ:
            return self.answer(400, b"not a number")
        if "exit" in body:
            try:
                open(os.environ["MARKER"], "x")
            except FileExistsError:
                return self.answer(200, b"next time")
            os._exit(3)
        rows = [line.split(",") for line in body.splitlines()]
        self.answer(200, "\\n".join(str(sum(map(int, row))) for row in rows).encode())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

print({{name: os.environ[name] for name in sorted(os.environ) if "BATCH" in name or "_MAX_" in name}}, flush=True)
server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Handler)
server.serve_forever()
"""

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory with a program, of which nothing runs in the end."""
    write_program(tmp_path)
    yield tmp_path
    end_marked(tmp_path / "host", 0.0)


def write_program(place: Path) -> None:
    """Write the program, and make the directory of the bucket ``in``."""
    program = place / "program"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    (place / "in").mkdir()


@contextmanager
def host_in(place: Path) -> Iterator["Host"]:
    with start_host(place / "host", f"--bucket=in={place / 'in'}", "--describe-hold=2") as process:
        yield Host(process, place)


class Host:
    """What is asked of the host."""

    def __init__(self, process: HostProcess, place: Path) -> None:
        self.process = process
        self.place = place
        self.sagemaker = process.client("sagemaker")
        self.s3 = process.client("s3")

    def prepare(self, **environment: str) -> None:
        self.s3.create_bucket(Bucket="out")
        container = {"Image": str(self.place / "program"), "Environment": environment}
        self.sagemaker.create_model(ModelName="adder", ExecutionRoleArn=ROLE, PrimaryContainer=container)

    def create(self, name: str, count: int = 1, **members: Any) -> str:
        source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://in/rows/"}}
        arn: str = self.sagemaker.create_transform_job(
            TransformJobName=name,
            ModelName="adder",
            BatchStrategy="SingleRecord",
            TransformInput={"DataSource": source, "ContentType": "text/csv", "SplitType": "Line"},
            TransformOutput={"S3OutputPath": f"s3://out/{name}", "AssembleWith": "Line"},
            TransformResources={"InstanceType": "ml.local.cpu", "InstanceCount": count},
            **members,
        )["TransformJobArn"]
        return arn

    def settled(self, name: str) -> dict[str, Any]:
        """The description of a job that is over."""
        described: dict[str, Any] = {}

        def is_over() -> bool:
            described.update(self.sagemaker.describe_transform_job(TransformJobName=name))
            return described["TransformJobStatus"] not in ("InProgress", "Stopping")

        self.process.wait_until(is_over, f"the end of the job {name}", 100)
        return described

    def outputs(self, name: str) -> dict[str, Any]:
        """Key → when it was written."""
        entries = self.s3.list_objects_v2(Bucket="out", Prefix=f"{name}/").get("Contents", ())
        return {entry["Key"].removeprefix(f"{name}/"): entry["LastModified"] for entry in entries}

    def read(self, key: str) -> bytes:
        content: bytes = self.s3.get_object(Bucket="out", Key=key)["Body"].read()
        return content

    def lines(self, stream: str) -> list[str]:
        logs = self.process.client("logs")
        events = logs.get_log_events(
            logGroupName="/aws/sagemaker/TransformJobs", logStreamName=stream, startFromHead=True
        )["events"]
        return [event["message"] for event in events]

    def streams(self, name: str) -> list[str]:
        logs = self.process.client("logs")
        found = logs.describe_log_streams(
            logGroupName="/aws/sagemaker/TransformJobs", logStreamNamePrefix=f"{name}/"
        )
        return [stream["logStreamName"] for stream in found["logStreams"]]


def write_rows(place: Path, files: int, rows: int) -> None:
    (place / "in" / "rows").mkdir(exist_ok=True)
    for number in range(files):
        (place / "in" / "rows" / f"{number:02}.csv").write_text(
            "".join(f"{number},{row}\n" for row in range(rows))
        )


def sums(number: int, rows: int) -> bytes:
    return "".join(f"{number + row}\n" for row in range(rows)).encode()


def test_jobs_with_boto3(place: Path) -> None:
    write_rows(place, 5, 20)
    with host_in(place) as host:
        host.prepare(MARKER=str(place / "marker"))
        arn = host.create("adds", 2, MaxConcurrentTransforms=3, Tags=[{"Key": "team", "Value": "x"}])
        waiter = host.sagemaker.get_waiter("transform_job_completed_or_stopped")
        waiter.wait(TransformJobName="adds", WaiterConfig={"Delay": 1})
        described = host.sagemaker.describe_transform_job(TransformJobName="adds")
        assert described["TransformJobStatus"] == "Completed"
        assert (described["TransformJobArn"], described["MaxConcurrentTransforms"]) == (arn, 3)
        assert list(host.outputs("adds")) == [f"{number:02}.csv.out" for number in range(5)]
        assert all(host.read(f"adds/{number:02}.csv.out") == sums(number, 20) for number in range(5))
        assert host.sagemaker.list_tags(ResourceArn=arn)["Tags"] == [{"Key": "team", "Value": "x"}]
        [summary] = host.sagemaker.list_transform_jobs(StatusEquals="Completed")["TransformJobSummaries"]
        assert (summary["TransformJobName"], summary["TransformJobArn"]) == ("adds", arn)

        data_log, *instances = sorted(host.streams("adds"))
        assert data_log == "adds/data-log"
        assert len(instances) == 2
        assert json.loads(host.lines(data_log)[-2])["records"] == 100
        assert host.lines(instances[0]) == [
            str(
                {
                    "SAGEMAKER_BATCH": "true",
                    "SAGEMAKER_BATCH_STRATEGY": "SINGLE_RECORD",
                    "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "3",
                    "SAGEMAKER_MAX_PAYLOAD_IN_MB": "6",
                }
            )
        ]

        # what is wrong with an object fails the job, and an instance that dies is replaced
        (place / "in" / "rows" / "03.csv").write_text("1,2\nbad\n")
        host.create("fails")
        described = host.settled("fails")
        assert described["TransformJobStatus"] == "Failed"
        text = "ClientError: s3://in/rows/03.csv: the model answered with status 400: not a number"
        assert described["FailureReason"] == text
        assert len(host.outputs("fails")) == 4
        (place / "in" / "rows" / "03.csv").write_text("exit\n")
        host.create("dies", ModelClientConfig={"InvocationsMaxRetries": 0})
        assert host.settled("dies")["TransformJobStatus"] == "Completed"
        assert host.read("dies/03.csv.out") == b"next time\n"
        assert len(host.streams("dies")) == 3
        with pytest.raises(host.sagemaker.exceptions.ResourceInUse):
            host.create("adds")
        with pytest.raises(host.sagemaker.exceptions.ResourceNotFound):
            host.sagemaker.describe_transform_job(TransformJobName="other")
        with pytest.raises(ClientError, match="is in status Completed"):
            host.sagemaker.stop_transform_job(TransformJobName="dies")
        host.process.wait_until(lambda: not marked(place / "host"), "the end of the instances")


def test_a_job_survives_the_kill_of_its_host(place: Path) -> None:
    write_rows(place, 30, 10)
    with host_in(place) as host:
        host.prepare(SECONDS="0.02")
        host.create("adds", 2)
        host.process.wait_until(lambda: len(host.outputs("adds")) >= 5, "the first outputs")
        host.process.stop(signal.SIGKILL)
    left = marked(place / "host")
    with host_in(place) as host:
        before = host.outputs("adds")
        described = host.settled("adds")
        assert described["TransformJobStatus"] == "Completed"
        after = host.outputs("adds")
        assert list(after) == [f"{number:02}.csv.out" for number in range(30)]
        assert all(host.read(f"adds/{number:02}.csv.out") == sums(number, 10) for number in range(30))
        # the last ones may have been written, but not written down as done
        again = [key for key, written in before.items() if after[key] != written]
        assert len(again) <= 2
        assert len(host.streams("adds")) == 3  # the instances were taken over
        host.process.wait_until(lambda: not marked(place / "host"), "the end of the instances")
    assert left
    assert not list((place / "host" / "transform").iterdir())


def test_a_job_that_is_stopped_leaves_nothing(place: Path) -> None:
    write_rows(place, 2, 10_000)
    with host_in(place) as host:
        host.prepare(SECONDS="0.02")
        host.create("adds")
        host.process.wait_until(lambda: bool(marked(place / "host")), "an instance")
        host.sagemaker.stop_transform_job(TransformJobName="adds")
        described = host.settled("adds")
        assert described["TransformJobStatus"] == "Stopped"
        assert not host.outputs("adds")
        assert not marked(place / "host")
