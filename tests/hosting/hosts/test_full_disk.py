"""A disk that is really full: a small file system of its own, on which a host keeps everything."""

import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.metering.log_space import bound
from halimede.hosting.substrates.processes import end_marked
from tests.hosting.metering.serving import NOON, metered
from tests.hosting.store.serving import store_host
from tests.hosting.substrates.instances import write_serve
from tests.support.host import HostProcess, start_host
from tests.support.waiting import wait_until

ROLE = "arn:aws:iam::000000000000:role/halimede"
MIB = 1 << 20
SIZE_MIB = 360
"""The store leaves 64 MiB free for its tables, and extraction 256 MiB."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system, mounted while the test runs."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield place
    finally:
        end_marked(place, 0.0)
        subprocess.run(["umount", str(place)], check=True)


def fill(disk: Path, left: int = 0) -> None:
    """Take all of a disk but so many bytes."""
    with (disk / "filler").open("ab", buffering=0) as file:
        # others may take some meanwhile
        os.posix_fallocate(file.fileno(), 0, free_bytes(disk) - (left or MIB))
        with suppress(OSError):
            while not left:
                file.write(bytes(4096))


def free_bytes(disk: Path) -> int:
    """What a disk has room for."""
    room = os.statvfs(disk)
    return room.f_bavail * room.f_frsize


def free(disk: Path) -> None:
    (disk / "filler").unlink()


def refused(call: Callable[..., Any], **arguments: Any) -> tuple[int, str, str]:
    """Status, code and text of an error."""
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    error = raised.value.response
    return error["ResponseMetadata"]["HTTPStatusCode"], error["Error"]["Code"], error["Error"]["Message"]


def archive(path: Path, size: int) -> Path:
    """A model archive whose model takes so many bytes."""
    weights = path.with_name("weights.bin")
    weights.write_bytes(bytes(size))
    config = path.with_name("config.pbtxt")
    config.write_text('backend: "x"')
    with tarfile.open(path, "w:gz") as file:
        file.add(config, "m/config.pbtxt")
        file.add(weights, "m/1/weights.bin")
    return path


@contextmanager
def host_on(disk: Path, *flags: str) -> Iterator[HostProcess]:
    with start_host(disk / "host", "--describe-hold=5", *flags) as host:
        yield host


class Asking:
    """What is asked of a host."""

    def __init__(self, host: HostProcess) -> None:
        self.s3, self.sagemaker = host.client("s3"), host.client("sagemaker")
        self.runtime, self.logs = host.client("sagemaker-runtime"), host.client("logs")

    def create(self, name: str, program: Path, url: str = "", script: str = "") -> None:
        container: dict[str, Any] = {"Image": str(program), "Environment": {"SCRIPT": script}}
        if url:
            container["ModelDataUrl"] = url
        self.sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container)
        variant = {"VariantName": "A", "ModelName": name, "InstanceType": "ml.local.cpu"}
        self.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])

    def create_models(self, program: Path) -> None:
        """Models until there is no room: tables may have some left in their files."""
        container = {"Image": str(program), "Environment": {f"X{n}": "y" * 1000 for n in range(16)}}
        for number in range(1000):
            self.sagemaker.create_model(
                ModelName=f"m-{number}", ExecutionRoleArn=ROLE, PrimaryContainer=container
            )

    def endpoint(self, name: str, config: str = "") -> Any:
        """An endpoint that is created, when it has settled."""
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=config or name)
        return self.settled(name)

    def settled(self, name: str) -> Any:
        """The description of an endpoint to which nothing is done any more."""

        def described() -> Any:
            found = self.sagemaker.describe_endpoint(EndpointName=name)
            return found if found["EndpointStatus"] in ("InService", "Failed") else None

        return wait_until(described, f"the endpoint {name}")

    def invoke(self, name: str) -> bytes:
        with self.runtime.invoke_endpoint(EndpointName=name, Body=b"x")["Body"] as body:
            answer: bytes = body.read()
        return answer

    def names(self) -> list[str]:
        """Everything that the control plane knows."""
        of = self.sagemaker
        return (
            [each["ModelName"] for each in of.list_models()["Models"]]
            + [each["EndpointConfigName"] for each in of.list_endpoint_configs()["EndpointConfigs"]]
            + [each["EndpointName"] for each in of.list_endpoints()["Endpoints"]]
        )


def test_a_host_goes_on_while_its_disk_is_full_and_afterwards_everything_works(disk: Path) -> None:
    program = write_serve(disk.parent)
    with host_on(disk) as host:
        ask = Asking(host)
        ask.s3.create_bucket(Bucket="models")
        ask.s3.put_object(Bucket="models", Key="before", Body=b"before")
        upload = ask.s3.create_multipart_upload(Bucket="models", Key="parts")["UploadId"]
        place = {"Bucket": "models", "Key": "parts", "UploadId": upload}
        ask.create("e", program)
        assert ask.endpoint("e")["EndpointStatus"] == "InService"
        known = ask.names()

        fill(disk)
        status, code, text = refused(ask.s3.put_object, Bucket="models", Key="a", Body=bytes(MIB))
        assert (status, code) == (507, "InsufficientStorage")
        assert f"the disk of the object store at {disk / 'host' / 'store'} is full" in text
        assert refused(ask.s3.upload_part, **place, PartNumber=1, Body=b"x")[:2] == (
            507,
            "InsufficientStorage",
        )
        status, code, text = refused(ask.create_models, program=program)
        assert (status, code) == (500, "InternalFailure")
        assert str(disk / "host" / "state.db") in text
        assert refused(ask.sagemaker.create_endpoint, EndpointName="f", EndpointConfigName="e")[0] == 500
        assert refused(ask.sagemaker.update_endpoint, EndpointName="e", EndpointConfigName="e")[0] == 500
        # what is there goes on
        assert ask.invoke("e") == b"OK"
        assert ask.settled("e")["EndpointStatus"] == "InService"
        with ask.s3.get_object(Bucket="models", Key="before")["Body"] as body:
            assert body.read() == b"before"
        assert "f" not in [each["EndpointName"] for each in ask.sagemaker.list_endpoints()["Endpoints"]]

        free(disk)
        full = {name for name in ask.names() if name.startswith("m-")}
        assert set(ask.names()) - full == set(known)
        ask.s3.put_object(Bucket="models", Key="a", Body=bytes(MIB))
        part = ask.s3.upload_part(**place, PartNumber=1, Body=b"x")
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        ask.s3.complete_multipart_upload(**place, MultipartUpload=parts)
        ask.sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="e")
        assert ask.settled("e")["EndpointStatus"] == "InService"
        assert ask.endpoint("f", "e")["EndpointStatus"] == "InService"
        known = ask.names()
        files = sorted(path.stat().st_size for path in (disk / "host/store/objects").glob("??/*"))
        assert files == [1, 6, MIB]
        assert host.stop() == 0
    with host_on(disk) as host:  # what was kept is what was told
        ask = Asking(host)
        assert sorted(ask.names()) == sorted(known)
        assert ask.settled("f")["EndpointStatus"] == "InService"
        assert ask.invoke("f") == b"OK"
        keys = [each["Key"] for each in ask.s3.list_objects_v2(Bucket="models")["Contents"]]
        assert keys == ["a", "before", "parts"]


def test_a_model_that_does_not_fit_fails_its_endpoint_and_leaves_nothing(disk: Path) -> None:
    program = write_serve(disk.parent)
    (disk.parent / "bucket").mkdir()
    path = archive(disk.parent / "bucket" / "model.tar.gz", 8 * MIB)
    large = disk.parent / "large.tar.gz"
    large.write_bytes(os.urandom(12 * MIB))
    with store_host(disk.parent / "service") as service:
        client = service.client()
        client.create_bucket(Bucket="remote")
        client.upload_file(str(large), "remote", "large.tar.gz")
        flags = (f"--bucket=local={path.parent}", f"--s3-endpoint={service.endpoint}")
        with host_on(disk, *flags) as host:
            ask = Asking(host)
            ask.create("extracted", program, "s3://local/model.tar.gz")
            ask.create("downloaded", program, "s3://remote/large.tar.gz")
            fill(disk, left=3 * MIB)
            for name in ("extracted", "downloaded"):
                described = ask.endpoint(name)
                assert described["EndpointStatus"] == "Failed", described
                assert "free some of" in described["FailureReason"]
                assert str(disk / "host" / "fleets") in described["FailureReason"]
            assert not list((disk / "host" / "fleets").glob("*/*"))
            assert free_bytes(disk) > 2 * MIB
            free(disk)
            ask.sagemaker.delete_endpoint(EndpointName="extracted")
            ask.sagemaker.get_waiter("endpoint_deleted").wait(
                EndpointName="extracted", WaiterConfig={"Delay": 1}
            )
            described = ask.endpoint("extracted")
            assert described["EndpointStatus"] == "InService", described["FailureReason"]
            assert ask.invoke("extracted") == b"OK"


def test_logs_go_on_when_there_is_room_again(disk: Path) -> None:
    program = write_serve(disk.parent)
    script = """
import threading
def say():
    while True:
        try:
            print("alive", flush=True)
        except OSError:
            pass
        time.sleep(0.01)
threading.Thread(target=say, daemon=True).start()
"""
    with host_on(disk) as host:
        ask = Asking(host)
        ask.create("e", program, script=script)
        assert ask.endpoint("e")["EndpointStatus"] == "InService"
        (log,) = (disk / "host" / "logs" / "000000000000" / "us-east-1" / "e" / "A").glob("i-*.log")
        stream = {"logGroupName": "/aws/sagemaker/Endpoints/e", "logStreamName": f"A/{log.stem}"}
        fill(disk)
        token = ask.logs.get_log_events(**stream)["nextForwardToken"]
        assert ask.invoke("e") == b"OK"
        free(disk)
        events = wait_until(lambda: ask.logs.get_log_events(**stream, nextToken=token)["events"], "lines")
        assert {event["message"] for event in events} == {"alive"}
        assert ask.settled("e")["EndpointStatus"] == "InService"


def test_a_log_is_shortened_although_the_disk_is_full(disk: Path) -> None:
    log = disk / "i-1.log"
    log.write_bytes(b"line\n" * (8 * MIB // 5))
    fill(disk)
    bound([log], 4 * MIB)
    assert log.stat().st_blocks * 512 <= 4 * MIB
    (disk / "now-there-is-room").write_bytes(bytes(2 * MIB))


def test_metrics_that_could_not_be_saved_are_saved_when_there_is_room_again(disk: Path) -> None:
    with metered(disk) as host:
        meter = host.publish("e", "v")
        host.tick(NOON + 60)
        fill(disk)
        client = host.client("cloudwatch")
        for minute in range(1, 40):
            host.count(lambda: meter.sent(1))
            metrics = [{"MetricName": f"m{minute}-{number}", "Value": 1} for number in range(100)]
            client.put_metric_data(Namespace="shop", MetricData=metrics)
            host.tick(NOON + 60 + minute * 60)
        assert len(client.list_metrics(Namespace="shop", MetricName="m1-1")["Metrics"]) == 1
        free(disk)
        host.tick(NOON + 60 * 60)
    with metered(disk, NOON + 61 * 60) as host:
        client = host.client("cloudwatch")
        for minute in range(1, 40):
            found = client.list_metrics(Namespace="shop", MetricName=f"m{minute}-99")["Metrics"]
            assert len(found) == 1, minute
        client.close()
