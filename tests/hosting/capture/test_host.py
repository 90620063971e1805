"""Data capture of a whole host, as its users see it."""

import os
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from halimede.hosting.capture.records import CaptureRecord, read_records
from halimede.hosting.substrates.processes import end_marked
from tests.hosting.substrates.instances import write_serve
from tests.support.host import HostProcess, start_host
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)  # hosts are started and killed several times

ROLE = "arn:aws:iam::000000000000:role/halimede"

_ECHO = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.answer(200, b"")
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(400 if body == b"fail" else 200, body[::-1])
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", self.headers.get("Content-Type", "x/y"))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
ThreadingHTTPServer(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Echo).serve_forever()
"""
"""An instance that answers with what it was asked, backwards, or with an error."""


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory with an archive and a program, and one for the host, of which nothing runs in the end."""
    (tmp_path / "bucket").mkdir()
    (tmp_path / "config.pbtxt").write_text('backend: "x"')
    with tarfile.open(tmp_path / "bucket" / "model.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "config.pbtxt", "m/config.pbtxt")
    write_serve(tmp_path)
    yield tmp_path
    end_marked(tmp_path / "host", 0.0)


def flags(place: Path) -> tuple[str, ...]:
    """What a host needs whose files are complete soon."""
    return f"--bucket=models={place / 'bucket'}", "--capture-file-seconds=0.5"


def create(host: HostProcess, place: Path, percentage: int = 100) -> None:
    """An endpoint that is captured into the bucket ``captured`` of the host's own store."""
    host.client("s3").create_bucket(Bucket="captured")
    sagemaker = host.client("sagemaker")
    container = {
        "Image": str(place / "serve-program"),
        "ModelDataUrl": "s3://models/model.tar.gz",
        "Environment": {"SCRIPT": _ECHO},
    }
    sagemaker.create_model(ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    sagemaker.create_endpoint_config(
        EndpointConfigName="c",
        ProductionVariants=[
            {"VariantName": "A", "ModelName": "m", "InstanceType": "ml.local.cpu", "InitialInstanceCount": 1}
        ],
        DataCaptureConfig={
            "InitialSamplingPercentage": percentage,
            "DestinationS3Uri": "s3://captured/here",
            "CaptureOptions": [{"CaptureMode": "InputAndOutput"}],
            "CaptureContentTypeHeader": {"CsvContentTypes": ["text/csv"]},
        },
    )
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
    in_service(host)


def in_service(host: HostProcess) -> None:
    """Return when the endpoint serves."""
    sagemaker = host.client("sagemaker")
    wait_until(lambda: sagemaker.describe_endpoint(EndpointName="e")["EndpointStatus"] == "InService")


def invoke(client: Any, body: bytes, **further: Any) -> bytes:
    """The answer."""
    answer: bytes = client.invoke_endpoint(EndpointName="e", Body=body, **further)["Body"].read()
    return answer


@dataclass
class Bucket:
    """What is in the bucket."""

    host: HostProcess

    def names(self) -> list[str]:
        """All keys."""
        pages = self.host.client("s3").get_paginator("list_objects_v2").paginate(Bucket="captured")
        return [each["Key"] for page in pages for each in page.get("Contents", ())]

    def records(self) -> list[CaptureRecord]:
        """All records."""
        s3 = self.host.client("s3")
        return [
            record
            for key in self.names()
            for record in read_records(s3.get_object(Bucket="captured", Key=key)["Body"].read().splitlines())
        ]

    def bodies(self) -> Counter[bytes]:
        """Request → in how many records it is; each of those has its answer."""
        found: Counter[bytes] = Counter()
        for record in self.records():
            assert record.input is not None
            assert record.output is not None
            assert record.output.body == record.input.body[::-1]
            found[record.input.body] += 1
        return found


def metric(host: HostProcess, name: str) -> float:
    """A counter of the page of metrics."""
    with urllib.request.urlopen(f"{host.url}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    values = [line.rpartition(" ")[2] for line in lines if line.startswith(f"halimede_host_{name}{{")]
    return sum(map(float, values))


@pytest.mark.parametrize("processes", [1, 2])
def test_what_was_asked_and_answered_is_in_the_bucket(place: Path, processes: int) -> None:
    """Small and large, exactly as it was; what failed is not; one process answers or several."""
    with start_host(place / "host", *flags(place), f"--router-processes={processes}") as host:
        create(host, place)
        clients = [host.another_client("sagemaker-runtime") for _ in range(4)]  # of several router processes
        bodies = [os.urandom(size) for size in (1_000, 1_000_000) for _ in range(10)]
        for number, body in enumerate(bodies):
            assert invoke(clients[number % 4], body) == body[::-1]
        more = {"ContentType": "text/csv", "InferenceId": "mine", "CustomAttributes": "a=b"}
        assert invoke(clients[0], b"1,2", **more) == b"2,1"
        stream = clients[1].invoke_endpoint_with_response_stream(EndpointName="e", Body=b"stream")["Body"]
        assert b"".join(event["PayloadPart"]["Bytes"] for event in stream) == b"maerts"
        with pytest.raises(ClientError, match="400"):
            invoke(clients[0], b"fail")
        wait_until(lambda: metric(host, "data_capture_records_uploaded_total") == 22)
        bucket = Bucket(host)
        assert bucket.bodies() == Counter([*bodies, b"1,2", b"stream"])
        (record,) = [each for each in bucket.records() if each.inference_id == "mine"]
        assert record.custom_attributes == ("a=b",)
        assert record.input is not None
        assert (record.input.content_type, record.input.encoding) == ("text/csv", "CSV")
        # a router tells what it has counted from time to time
        wait_until(lambda: metric(host, "data_capture_records_total") == 22)
        assert metric(host, "data_capture_records_dropped_total") == 0
        now = time.gmtime()
        assert all(key.startswith(f"here/e/A/{now.tm_year}/") for key in bucket.names())
        described = host.client("sagemaker").describe_endpoint(EndpointName="e")["DataCaptureConfig"]
        assert (described["CaptureStatus"], described["CurrentSamplingPercentage"]) == ("Started", 100)
        command = [sys.executable, "-m", "halimede", "capture", "e", "--last=1", "--variant=A"]
        shown = subprocess.run(
            command, env=dict(host.environment), capture_output=True, timeout=60, check=True, encoding="utf-8"
        )
        assert "A  " in shown.stdout.splitlines()[0]
        files = [path for path in (place / "host" / "capture").iterdir() if path.suffix != ".open"]
        assert files == []


class Load:
    """Clients that ask until their host is gone, each something else each time.

    Attributes:
        asked: all requests.
        answered: those that each client had answers to, in order.
    """

    def __init__(self, host: HostProcess, life: int) -> None:
        self.asked: set[bytes] = set()
        self.answered: list[list[bytes]] = [[] for _ in range(4)]
        self._host = host
        self._life = life
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(4)]
        for each in self._threads:
            each.start()

    def _run(self, number: int) -> None:
        client = self._host.another_client("sagemaker-runtime")
        count = 0
        while not self._stopped.is_set():
            body = b"%d-%d-%d" % (self._life, number, count)
            self.asked.add(body)
            with suppress(ClientError, BotoCoreError):
                invoke(client, body)
                self.answered[number].append(body)
            count += 1
            self._stopped.wait(0.03)

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()
        for each in self._threads:
            each.join(60)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_killed_host_loses_nothing_that_was_on_disk_and_writes_nothing_twice(
    place: Path, processes: int
) -> None:
    """Killed under load, again and again; the records of the last moment may be missing."""
    loads: list[Load] = []
    on_disk: list[int] = []
    early: list[set[bytes]] = []
    more = f"--router-processes={processes}"
    for life in range(2):
        with start_host(place / "host", *flags(place), more, "--keep-instances") as host:
            if life:
                in_service(host)
            else:
                create(host, place)
            load = Load(host, life)
            loads.append(load)
            try:
                wait_until(lambda: metric(host, "data_capture_records_uploaded_total") > 50)
                wait_until(lambda: metric(host, "data_capture_records_total") > 50)
                early.append({body for answered in load.answered for body in list(answered)})
                # twice as many: by then those are on disk, whichever process has answered them
                wait_until(lambda: metric(host, "data_capture_records_total") > 2 * len(early[-1]))
                on_disk.append(int(metric(host, "data_capture_records_total")))
            finally:
                host.process.kill()
                host.process.wait()
                load.stop()
    with start_host(place / "host", *flags(place), more) as host:
        wait_until(lambda: not list((place / "host" / "capture").iterdir()))
        found = Bucket(host).bodies()
    assert set(found.values()) == {1}
    for life, load in enumerate(loads):
        captured = {body for body in found if body.startswith(b"%d-" % life)}
        assert captured <= load.asked
        assert len(captured) >= on_disk[life]
        assert early[life] <= captured


def test_a_bucket_that_is_not_there_holds_nothing_up(place: Path) -> None:
    """Its records come when it is."""
    with start_host(place / "host", *flags(place)) as host:
        create(host, place)
        host.client("s3").delete_bucket(Bucket="captured")
        client = host.client("sagemaker-runtime")
        for number in range(50):
            assert invoke(client, b"%d" % number)
        wait_until(lambda: metric(host, "data_capture_upload_failures_total") >= 2)
        assert host.log.count("data capture of endpoint 'e': ") == 1
        command = [sys.executable, "-m", "halimede", "capture", "e"]
        shown = subprocess.run(
            command,
            env=dict(host.environment),
            capture_output=True,
            timeout=60,
            check=False,
            encoding="utf-8",
        )
        assert shown.returncode == 1
        assert "NoSuchBucket" in shown.stderr
        assert "give that directory with --destination" in shown.stderr
        host.client("s3").create_bucket(Bucket="captured")
        bucket = Bucket(host)
        wait_until(lambda: len(bucket.records()) == 50)
        assert "records are written to s3://captured again" in host.log


def test_a_host_that_stops_uploads_what_it_has(place: Path) -> None:
    """Whatever the age of its files; nothing is left for the next start."""
    with start_host(place / "host", f"--bucket=models={place / 'bucket'}") as host:
        create(host, place)
        invoke(host.client("sagemaker-runtime"), b"last")
    assert list((place / "host" / "capture").iterdir()) == []
    with start_host(place / "host", *flags(place)) as host:
        assert Bucket(host).bodies() == {b"last": 1}
