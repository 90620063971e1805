"""What boto3 is told of models, endpoints, metrics and logs by a host with an endpoint that has been invoked."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.host import HostProcess, start_host
from tests.support.program import write_program

ROLE = "arn:aws:iam::000000000000:role/any"
ROUTING = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": 0}
GROUP = "/aws/sagemaker/Endpoints/e"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host with the endpoint `e`, invoked ten times."""
    directory = tmp_path_factory.mktemp("descriptions")
    with start_host(directory / "host") as running:
        sagemaker, runtime = running.client("sagemaker"), running.client("sagemaker-runtime")
        image = {"Image": str(write_program(directory))}
        sagemaker.create_model(ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer=image)
        variant = {"VariantName": "A", "ModelName": "m", "InstanceType": "ml.r8g.medium"}
        sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
        sagemaker.create_endpoint(
            EndpointName="e",
            EndpointConfigName="c",
            DeploymentConfig={"BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": ROUTING}},
        )
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="e")
        for number in range(10):
            runtime.invoke_endpoint(EndpointName="e", Body=f"request {number}")
        yield running


@pytest.fixture
def sagemaker(host: HostProcess) -> Any:
    return host.client("sagemaker")


def refused(call: Any, **arguments: Any) -> str:
    """The text with which a call is refused by a ValidationException."""
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    assert raised.value.response["Error"]["Code"] == "ValidationException"
    text: str = raised.value.response["Error"]["Message"]
    return text


def test_defaults_are_described(sagemaker: Any) -> None:
    model = sagemaker.describe_model(ModelName="m")
    assert (model["PrimaryContainer"]["Mode"], model["EnableNetworkIsolation"]) == ("SingleModel", False)
    [variant] = sagemaker.describe_endpoint_config(EndpointConfigName="c")["ProductionVariants"]
    assert (variant["InitialInstanceCount"], variant["InitialVariantWeight"]) == (1, 1.0)
    endpoint = sagemaker.describe_endpoint(EndpointName="e")
    assert endpoint["LastDeploymentConfig"] == {
        "BlueGreenUpdatePolicy": {"TrafficRoutingConfiguration": ROUTING, "TerminationWaitInSeconds": 0}
    }


def test_requests_that_make_no_sense_are_refused(sagemaker: Any) -> None:
    arn = sagemaker.describe_model(ModelName="m")["ModelArn"]
    text = refused(sagemaker.add_tags, ResourceArn=arn, Tags=[{"Key": "aws:x", "Value": "y"}])
    assert text == "aws: prefixed tag key names are not allowed for external use: 'aws:x'"
    doubled = [{"Key": "k", "Value": "1"}, {"Key": "k", "Value": "2"}]
    assert "Duplicate tag keys found: 'k'" in refused(sagemaker.add_tags, ResourceArn=arn, Tags=doubled)
    for url in ("model.tar.gz", "s3://bucket", "s3://my bucket/model.tar.gz", "https://host/model.tar.gz"):
        container = {"Image": "halimede", "ModelDataUrl": url}
        text = refused(
            sagemaker.create_model, ModelName="n", ExecutionRoleArn=ROLE, PrimaryContainer=container
        )
        assert f"Value '{url}' at 'primaryContainer.modelDataUrl' failed to satisfy constraint" in text
    serverless = {"VariantName": "A", "ServerlessUpdateConfig": {"MaxConcurrency": 2}}
    text = refused(
        sagemaker.update_endpoint_weights_and_capacities,
        EndpointName="e",
        DesiredWeightsAndCapacities=[serverless],
    )
    assert "ServerlessUpdateConfig is for serverless variants" in text


def test_metrics_of_invocations_are_trimmed_and_computed_with(host: HostProcess) -> None:
    def query(name: str, metric: str, stat: str) -> dict[str, Any]:
        dimensions = [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "A"}]
        of = {"Namespace": "AWS/SageMaker", "MetricName": metric, "Dimensions": dimensions}
        return {"Id": name, "MetricStat": {"Metric": of, "Period": 3600, "Stat": stat}}

    now = datetime.now(UTC)
    results = host.client("cloudwatch").get_metric_data(
        MetricDataQueries=[
            query("requests", "Invocations", "Sum"),
            query("errors", "Invocation5XXErrors", "Sum"),
            query("most", "ModelLatency", "Maximum"),
            query("trimmed", "ModelLatency", "tm90"),
            {"Id": "share", "Expression": "(requests - errors) / requests * 100"},
            {"Id": "quick", "Expression": "trimmed <= most"},
        ],
        StartTime=now - timedelta(minutes=30),
        EndTime=now + timedelta(minutes=5),
    )["MetricDataResults"]
    values = {result["Id"]: result["Values"] for result in results}
    assert values["requests"] == [10]
    assert values["share"] == [100]
    assert values["quick"] == [1]


def test_logs_are_described_and_searched(host: HostProcess, tmp_path: Path) -> None:
    logs = host.client("logs")
    [group] = logs.describe_log_groups()["logGroups"]
    assert group["logGroupName"] == GROUP
    age_s = datetime.now(UTC).timestamp() - group["creationTime"] / 1000
    assert 0 <= age_s < 600
    assert group["storedBytes"] == sum(
        stream["storedBytes"] for stream in logs.describe_log_streams(logGroupName=GROUP)["logStreams"]
    )
    found = logs.filter_log_events(logGroupName=GROUP, filterPattern='?"request 3" ?"request 7" -nothing')
    assert [event["message"] for event in found["events"]] == ["asked: request 3", "asked: request 7"]
