"""A published archive whose models want GPUs, on a host without any."""

from pathlib import Path

import pytest
from botocore.exceptions import WaiterError

from halimede.core.gpus import visible_gpus
from tests.hosting.containers.programs import packed
from tests.hosting.containers.test_real_host import IMAGE, ROLE
from tests.support.host import HostProcess, start_host

CONFIG = """
backend: "identity"
max_batch_size: 4
input [{ name: "INPUT0", data_type: TYPE_FP32, dims: [2] }]
output [{ name: "OUTPUT0", data_type: TYPE_FP32, dims: [2] }]
instance_group [{ kind: KIND_GPU }]
"""
REQUEST = '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,2],"data":[1,2]}]}'

pytestmark = pytest.mark.skipif(bool(visible_gpus()), reason="this machine has a GPU")


def deploy(host: HostProcess) -> None:
    """Ask for the endpoint ``e``, and wait until it is in service."""
    s3, sagemaker = host.client("s3"), host.client("sagemaker")
    s3.create_bucket(Bucket="models")
    files = {"m/config.pbtxt": CONFIG, "m/1/empty": ""}
    s3.put_object(Bucket="models", Key="m.tar.gz", Body=packed(files))
    container = {"Image": IMAGE, "ModelDataUrl": "https://models.s3.us-east-1.amazonaws.com/m.tar.gz"}
    sagemaker.create_model(ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {"VariantName": "A", "ModelName": "m", "InstanceType": "ml.g4dn.xlarge"}
    sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="e", WaiterConfig={"Delay": 1})


def test_models_for_gpus_run_on_processors_if_the_host_lets_them(tmp_path: Path) -> None:
    with start_host(tmp_path / "host", "--cpu-fallback", "--oversubscription=32") as host:
        deploy(host)
        answer = host.client("sagemaker-runtime").invoke_endpoint(
            EndpointName="e", ContentType="application/json", Body=REQUEST
        )
        assert b'"data":[1.0,2.0]' in answer["Body"].read()
        [log] = (tmp_path / "host" / "logs").rglob("e/A/i-*.log")
        assert "instance group m_0 of model m has kind KIND_GPU and runs on CPUs" in log.read_text()


def test_otherwise_the_endpoint_fails_and_says_why(tmp_path: Path) -> None:
    with start_host(tmp_path / "host", "--oversubscription=32") as host:
        with pytest.raises(WaiterError):
            deploy(host)
        reason = host.client("sagemaker").describe_endpoint(EndpointName="e")["FailureReason"]
        assert "instance group m_0 of model m has kind KIND_GPU but no GPUs are available" in reason
