"""A host with endpoints of each kind, and requests to them."""

import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from halimede.hosting.substrates.processes import end_marked
from tests.hosting.console.program import write_program
from tests.hosting.control.deployments.test_policies import blue_green, percent
from tests.support.host import HostProcess, start_host
from tests.support.meanwhile import meanwhile

ROLE = "arn:aws:iam::000000000000:role/x"
ALARM = "errors of reader"
ROOM = "--oversubscription=32"
"""A flag: so many instances as the tests have fit on a machine of two processors."""

BODIES = (b'{"numbers": [3, 1, 4]}', b'{"words": ["a", "moon"]}', b"[]")


@contextmanager
def served(place: Path, *flags: str) -> Iterator[HostProcess]:
    """A host with the endpoints `reader`, of two variants, `many`, of many models, and `queued`, and an alarm."""
    image = write_program(place)
    options = ("--metric-period=1", "--describe-hold=1", "--capture-file-seconds=1", ROOM)
    try:
        with start_host(place / "host", *options, *flags) as host:
            set_up(host, image)
            yield host
    finally:
        end_marked(place / "host", 0.0)


def set_up(host: HostProcess, image: Path) -> None:
    """Make the endpoints and the alarm."""
    sagemaker, s3 = host.client("sagemaker"), host.client("s3")
    for bucket in ("captured", "models", "results"):
        s3.create_bucket(Bucket=bucket)
    for name in ("first.tar.gz", "second.tar.gz", "bad.tar.gz"):
        s3.put_object(Bucket="models", Key=name, Body=archive())
    container = {"Image": str(image)}
    many = {**container, "Mode": "MultiModel", "ModelDataUrl": "s3://models/"}
    for name, primary in (("first", container), ("second", container), ("many", many)):
        sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=primary)
    capture = {
        "EnableCapture": True,
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": "s3://captured/reader",
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
    }
    pair = [variant("stable", "first", 2, 4), variant("candidate", "second", 1, 1)]
    for config in ("weighted", "next"):
        configure(host, config, *pair, DataCaptureConfig=capture)
    configure(host, "many", variant("AllTraffic", "many"))
    output = {"S3OutputPath": "s3://results/"}
    configure(host, "queued", variant("AllTraffic", "first"), AsyncInferenceConfig={"OutputConfig": output})
    for endpoint, config in (("reader", "weighted"), ("many", "many"), ("queued", "queued")):
        sagemaker.create_endpoint(EndpointName=endpoint, EndpointConfigName=config)
    for endpoint in ("reader", "many", "queued"):
        wait_in_service(host, endpoint)
    put_alarm(host, ALARM, "reader", "stable")


def archive() -> bytes:
    """A model archive with one small file."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        member = tarfile.TarInfo("weights")
        member.size = 4
        tar.addfile(member, io.BytesIO(b"1234"))
    return content.getvalue()


def variant(name: str, model: str, count: int = 1, weight: int = 1) -> dict[str, Any]:
    """A variant of an endpoint configuration."""
    return {
        "VariantName": name,
        "ModelName": model,
        "InstanceType": "ml.t2.medium",
        "InitialInstanceCount": count,
        "InitialVariantWeight": weight,
    }


def configure(host: HostProcess, name: str, *variants: dict[str, Any], **further: Any) -> None:
    """Make an endpoint configuration."""
    host.client("sagemaker").create_endpoint_config(
        EndpointConfigName=name, ProductionVariants=list(variants), **further
    )


def wait_in_service(host: HostProcess, endpoint: str) -> None:
    """Return once an endpoint is in service."""
    waiter = host.client("sagemaker").get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=endpoint, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


def put_alarm(host: HostProcess, name: str, endpoint: str, of: str) -> None:
    """Make an alarm on the errors of a variant, which goes off for more of them than tests cause."""
    host.client("cloudwatch").put_metric_alarm(
        AlarmName=name,
        Namespace="AWS/SageMaker",
        MetricName="Invocation5XXErrors",
        Dimensions=[{"Name": "EndpointName", "Value": endpoint}, {"Name": "VariantName", "Value": of}],
        Statistic="Sum",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1000,
        ComparisonOperator="GreaterThanThreshold",
        TreatMissingData="notBreaching",
    )


def begin_canary(host: HostProcess, endpoint: str, config: str, alarm: str) -> None:
    """Update an endpoint with a canary that bakes for long, unless an alarm goes off."""
    policy = {
        **blue_green("CANARY", 3000, CanarySize=percent(30)),
        "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": alarm}]},
    }
    host.client("sagemaker").update_endpoint(
        EndpointName=endpoint, EndpointConfigName=config, DeploymentConfig=policy
    )


def invoke(runtime: Any, endpoint: str, body: bytes, **parameters: str) -> None:
    """Invoke an endpoint, and read the whole answer; an error of the model's is an answer too."""
    with suppress(BotoCoreError, ClientError):
        answer = runtime.invoke_endpoint(
            EndpointName=endpoint, Body=body, **{"ContentType": "application/json", **parameters}
        )
        answer["Body"].read()


@contextmanager
def load(host: HostProcess) -> Iterator[None]:
    """Meanwhile `reader` is invoked by several clients."""
    runtime = host.client("sagemaker-runtime")
    with meanwhile(*((partial(invoke, runtime, "reader", body), 0.03) for body in BODIES)):
        yield
