"""An inference experiment on a real host, with boto3."""

import signal
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.substrates.processes import end_marked
from tests.hosting.hosts.test_shadow_endpoint import metric, write_program
from tests.support.host import HostProcess, start_host
from tests.support.waiting import wait_until

_ROLE = "arn:aws:iam::000000000000:role/any"


def variant(name: str) -> dict[str, Any]:
    """A `ModelVariantConfig` of the model of the same name."""
    infrastructure = {"InstanceType": "ml.local.cpu", "InstanceCount": 1}
    return {
        "ModelName": name,
        "VariantName": name,
        "InfrastructureConfig": {
            "InfrastructureType": "RealTimeInference",
            "RealTimeInferenceConfig": infrastructure,
        },
    }


def prepare(host: HostProcess, program: Path) -> None:
    """The endpoint `e` with the variant `current`, and the model `candidate`, whose second number is off by a half."""
    sagemaker = host.client("sagemaker")
    for name, off in (("current", "0"), ("candidate", "0.5")):
        container = {"Image": str(program), "Environment": {"OFF_BY": off}}
        sagemaker.create_model(ModelName=name, ExecutionRoleArn=_ROLE, PrimaryContainer=container)
    production = {"VariantName": "current", "ModelName": "current", "InstanceType": "ml.local.cpu"}
    sagemaker.create_endpoint_config(
        EndpointConfigName="c", ProductionVariants=[{**production, "InitialInstanceCount": 1}]
    )
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="e", WaiterConfig={"Delay": 1})


def status(host: HostProcess) -> str:
    """The experiment's."""
    found: str = host.client("sagemaker").describe_inference_experiment(Name="x")["Status"]
    return found


def invoke(host: HostProcess) -> bytes:
    answer = host.client("sagemaker-runtime").invoke_endpoint(EndpointName="e", Body=b"2")
    with answer["Body"] as body:
        data: bytes = body.read()
    return data


@pytest.fixture
def directory(tmp_path: Path) -> Any:
    """A host's directory, of which nothing runs in the end."""
    yield tmp_path / "host"
    end_marked(tmp_path / "host", 0.0)


def test_a_candidate_is_tried_on_real_traffic_and_promoted(tmp_path: Path, directory: Path) -> None:
    program = write_program(tmp_path)
    with start_host(directory) as host:
        prepare(host, program)
        sagemaker = host.client("sagemaker")
        sagemaker.create_inference_experiment(
            Name="x",
            Type="ShadowMode",
            RoleArn=_ROLE,
            EndpointName="e",
            ModelVariants=[variant("current"), variant("candidate")],
            ShadowModeConfig={
                "SourceModelVariantName": "current",
                "ShadowModelVariants": [{"ShadowModelVariantName": "candidate", "SamplingPercentage": 100}],
            },
        )
        with pytest.raises(ClientError) as raised:
            sagemaker.delete_inference_experiment(Name="no")
        assert raised.value.response["Error"]["Code"] == "ResourceNotFound"
        wait_until(lambda: status(host) == "Starting", "the start of the experiment")
        host.stop(signal.SIGKILL)
    with start_host(directory) as host:
        wait_until(lambda: status(host) == "Running", "the experiment to run")
        assert b"2.0" in invoke(host)
        wait_until(lambda: metric(host, "ShadowAgreement", "SampleCount") == 1, "a comparison")
        assert metric(host, "ShadowAgreement") == 0
        sagemaker = host.client("sagemaker")
        assert sagemaker.list_inference_experiments(StatusEquals="Running")["InferenceExperiments"]
        sagemaker.stop_inference_experiment(
            Name="x", ModelVariantActions={"current": "Remove", "candidate": "Promote"}, Reason="it is closer"
        )
        host.stop(signal.SIGKILL)
    with start_host(directory) as host:
        wait_until(lambda: status(host) == "Completed", "the end of the experiment")
        described = host.client("sagemaker").describe_inference_experiment(Name="x")
        assert described["StatusReason"] == "it is closer"
        assert {each["VariantName"]: each["Status"] for each in described["ModelVariants"]} == {
            "current": "Deleted",
            "candidate": "InService",
        }
        endpoint = host.client("sagemaker").describe_endpoint(EndpointName="e")
        assert [each["VariantName"] for each in endpoint["ProductionVariants"]] == ["candidate"]
        assert "ShadowProductionVariants" not in endpoint
        assert b"2.5" in invoke(host)
        assert host.stop() == 0
