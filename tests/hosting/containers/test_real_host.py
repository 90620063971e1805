"""Models of several containers on a real host, as boto3 sees them."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError

from tests.hosting.containers.programs import model_archive, packed, write_between
from tests.support.host import HostProcess, start_host

ROLE = "arn:aws:iam::000000000000:role/any"
IMAGE = "785573368785.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    directory = tmp_path_factory.mktemp("containers")
    write_between(directory)
    with start_host(directory / "host", "--router-processes=2") as running:
        s3 = running.client("s3")
        s3.create_bucket(Bucket="models")
        s3.put_object(Bucket="models", Key="double.tar.gz", Body=model_archive("* 2"))
        s3.put_object(Bucket="models", Key="increment.tar.gz", Body=model_archive("+ 1"))
        s3.put_object(Bucket="models", Key="broken.tar.gz", Body=b"this is no archive")
        s3.put_object(
            Bucket="models",
            Key="failing.tar.gz",
            Body=packed({"m/config.pbtxt": 'backend: "no_such_backend"'}),
        )
        yield running


@pytest.fixture(scope="module")
def between(host: HostProcess) -> str:
    """The image of a program that is no server of ours."""
    [program] = host.directory.parent.glob("between")
    return str(program)


def model(name: str) -> dict[str, Any]:
    """A container of this package's server."""
    return {"Image": IMAGE, "ModelDataUrl": f"s3://models/{name}.tar.gz"}


def create(host: HostProcess, containers: Sequence[dict[str, Any]], **further: Any) -> dict[str, Any]:
    """A new endpoint of one instance, as it is when it is settled."""
    name = f"e-{uuid4().hex}"
    sagemaker = host.client("sagemaker")
    sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, Containers=containers, **further)
    one = {"VariantName": "A", "ModelName": name, "InstanceType": "ml.local.cpu", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[one])
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    while (described := sagemaker.describe_endpoint(EndpointName=name))["EndpointStatus"] == "Creating":
        pass  # the host holds its answer until something has happened
    return dict(described)


def delete(host: HostProcess, name: str) -> None:
    host.client("sagemaker").delete_endpoint(EndpointName=name)


def tensor(*values: float) -> str:
    """A request of numbers."""
    return json.dumps(
        {"inputs": [{"name": "INPUT", "datatype": "FP32", "shape": [len(values)], "data": values}]}
    )


def values_of(answer: Any) -> list[float]:
    """The numbers of a response."""
    [output] = json.loads(answer["Body"].read())["outputs"]
    found: list[float] = output["data"]
    return found


def invoke(host: HostProcess, name: str, body: str, **more: Any) -> Any:
    return host.client("sagemaker-runtime").invoke_endpoint(
        EndpointName=name, Body=body, ContentType="application/json", **more
    )


def test_three_containers_in_a_row(host: HostProcess, between: str) -> None:
    containers = [model("double"), {"Image": between}, model("increment")]
    described = create(host, containers)
    name = described["EndpointName"]
    assert described["EndpointStatus"] == "InService", described
    [variant] = described["ProductionVariants"]
    assert [image["SpecifiedImage"] for image in variant["DeployedImages"]] == [IMAGE, between, IMAGE]
    assert values_of(invoke(host, name, tensor(1, 2, 3))) == [3, 5, 7]
    shown = host.client("sagemaker").describe_model(ModelName=name)
    assert "PrimaryContainer" not in shown
    assert [each["Image"] for each in shown["Containers"]] == [IMAGE, between, IMAGE]

    large = tensor(*range(200_000))
    assert values_of(invoke(host, name, large))[-1] == 199_999 * 2 + 1
    runtime = host.client("sagemaker-runtime")
    answer = runtime.invoke_endpoint_with_response_stream(
        EndpointName=name, Body=tensor(4), ContentType="application/json"
    )
    streamed = b"".join(part["PayloadPart"]["Bytes"] for part in answer["Body"])
    assert json.loads(streamed)["outputs"][0]["data"] == [9]

    with pytest.raises(ClientError) as caught:
        invoke(host, name, tensor(-1))
    error = caught.value.response
    assert (error["Error"]["Code"], error["OriginalStatusCode"]) == ("ModelError", 422)
    assert error["Error"]["Message"].startswith(
        'Received client error (422) from container-2 with message "no negative numbers".'
    )
    with pytest.raises(ClientError, match=r"Received client error \(400\) from container-1 with message"):
        invoke(host, name, "{")

    host.wait_until(lambda: _measured(host, name, "container-1", "Invocations")["Sum"] == 5, "the metric")
    assert _measured(host, name, "container-3", "Invocations")["Sum"] == 3
    assert _measured(host, name, "container-1", "Invocation4XXErrors") == {"Sum": 1, "Average": 0.2}
    assert _measured(host, name, "container-2", "Invocation4XXErrors") == {"Sum": 1, "Average": 0.25}
    assert _measured(host, name, "container-2", "Invocation5XXErrors")["Sum"] == 0
    assert 0 < _measured(host, name, "container-2", "ContainerLatency")["Average"] < 60e6

    logs = host.client("logs")
    group = f"/aws/sagemaker/Endpoints/{name}"
    [stream, *others] = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix="A/i-")[
        "logStreams"
    ]
    instance = stream["logStreamName"]
    names = [f"{instance}/container-{number}" for number in (1, 2, 3)]
    assert [each["logStreamName"] for each in others] == names
    page = logs.get_log_events(logGroupName=group, logStreamName=names[1], startFromHead=True)
    assert [event["message"] for event in page["events"]] == ["serving"]
    delete(host, name)


def _measured(host: HostProcess, endpoint: str, container: str, metric: str) -> dict[str, float]:
    """What there is of a metric of a container."""
    dimensions = {"EndpointName": endpoint, "VariantName": "A", "ContainerName": container}
    now = datetime.now(UTC)
    points = host.client("cloudwatch").get_metric_statistics(
        Namespace="AWS/SageMaker",
        MetricName=metric,
        Dimensions=[{"Name": key, "Value": value} for key, value in dimensions.items()],
        StartTime=now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1),
        EndTime=now + timedelta(days=1),
        Period=86_400 * 3,
        Statistics=["Sum", "Average"],
    )["Datapoints"]
    if not points:
        return {"Sum": 0, "Average": 0}
    [point] = points
    return {"Sum": point["Sum"], "Average": point["Average"]}


def test_containers_side_by_side_and_one_that_dies(host: HostProcess, between: str) -> None:
    containers = [
        {**model("double"), "ContainerHostname": "double"},
        {**model("increment"), "ContainerHostname": "increment"},
        {"Image": between, "ContainerHostname": "between"},
    ]
    described = create(host, containers, InferenceExecutionConfig={"Mode": "Direct"})
    name = described["EndpointName"]
    assert described["EndpointStatus"] == "InService", described
    assert values_of(invoke(host, name, tensor(1, 2), TargetContainerHostname="double")) == [2, 4]
    assert values_of(invoke(host, name, tensor(1, 2), TargetContainerHostname="increment")) == [2, 3]
    with pytest.raises(ClientError, match="say with TargetContainerHostname which container is meant"):
        invoke(host, name, tensor(1))
    with pytest.raises(ClientError, match="Container other not found for endpoint e-"):
        invoke(host, name, tensor(1), TargetContainerHostname="other")

    with pytest.raises(ClientError, match="No response from container between: "):
        invoke(host, name, "exit", TargetContainerHostname="between")
    wanted = "one of its containers failed: container 'between': it ended with status 3; its last lines: serving / told"
    host.wait_until(lambda: wanted in host.log, "the end of the container")
    host.wait_until(lambda: _serves(host, name), "another instance in its place")
    delete(host, name)


def _serves(host: HostProcess, name: str) -> bool:
    try:
        answer = invoke(host, name, tensor(1, 2), TargetContainerHostname="double")
    except ClientError:
        return False
    return values_of(answer) == [2, 4]


def test_an_archive_that_is_none_fails_the_endpoint_and_names_its_container(
    host: HostProcess, between: str
) -> None:
    described = create(host, [{"Image": between}, model("broken")])
    assert described["EndpointStatus"] == "Failed"
    assert described["FailureReason"].startswith("container 'container-2': ")
    assert "s3://models/broken.tar.gz" in described["FailureReason"]
    described = create(host, [model("missing"), {"Image": between}])
    assert described["FailureReason"].startswith("container 'container-1': ")
    assert "there is no such object" in described["FailureReason"]


def test_a_model_that_cannot_be_loaded_fails_the_endpoint_and_names_its_container(
    host: HostProcess, between: str
) -> None:
    containers = [
        {"Image": between, "ContainerHostname": "first"},
        {**model("failing"), "ContainerHostname": "second"},
    ]
    reason = create(host, containers)["FailureReason"]
    assert reason.startswith(
        "The containers first, second for production variant A did not pass the ping health check: one of its "
        "containers failed: container 'second': it ended with status 1: failed to load 'm'"
    )
