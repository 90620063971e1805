"""Instances have the AWS environment of a container: region, endpoint, and keys of a role of their endpoint."""

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.hosting.test_accounts import EU, US, A, Accounts, B, code_of, keys_file
from tests.support.host import HostProcess, start_host

CONFIG = """
backend: "python"
input { name: "CALL" data_type: TYPE_STRING dims: 1 }
output { name: "ANSWER" data_type: TYPE_STRING dims: 1 }
"""

MODEL = '''
import json
import os

import boto3
import numpy as np
import triton_python_backend_utils as pb_utils
from botocore.exceptions import ClientError


class TritonPythonModel:
    """Answers with what boto3, without any argument but the service, makes of a call."""

    def initialize(self, args):
        words = boto3.client("s3").get_object(Bucket="models", Key="words")
        self.words = words["Body"].read().splitlines()

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        call = json.loads(pb_utils.get_input_tensor_by_name(request, "CALL").as_numpy()[0])
        if "variables" in call:
            answer = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        elif "words" in call:
            answer = [word.decode() for word in self.words]
        else:
            try:
                answer = getattr(boto3.client(call["service"]), call["operation"])(**call["request"])
                answer = answer["Body"].read().decode() if "Body" in answer else answer
            except ClientError as error:
                answer = error.response["Error"]
        text = json.dumps(answer, default=str).encode()
        tensor = pb_utils.Tensor("ANSWER", np.array([text], dtype=np.object_))
        return pb_utils.InferenceResponse([tensor])
'''


def archive() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        for name, text in (("m/config.pbtxt", CONFIG), ("m/1/model.py", MODEL)):
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            packed.addfile(entry, io.BytesIO(text.encode()))
    return file.getvalue()


class Caller:
    """Asks the model of an endpoint of account A to call a service of the host."""

    def __init__(self, host: HostProcess) -> None:
        self.accounts = Accounts(host, Path("/none"))

    def create(self, region: str = US, bucket: str = "models") -> None:
        s3 = self.accounts.client("s3", A)
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key="model.tar.gz", Body=archive())
        s3.put_object(Bucket=bucket, Key="words", Body=b"read by the model")
        self.accounts.create_model(A, region, Image="halimede", ModelDataUrl=f"s3://{bucket}/model.tar.gz")
        described = self.accounts.create_endpoint(A, region)
        assert described["EndpointStatus"] == "InService", described

    def ask(self, call: dict[str, Any], region: str = US) -> Any:
        tensor = {"name": "CALL", "datatype": "BYTES", "shape": [1], "data": [json.dumps(call)]}
        runtime = self.accounts.client("sagemaker-runtime", A, region)
        answer = runtime.invoke_endpoint(EndpointName="e", Body=json.dumps({"inputs": [tensor]}))
        return json.loads(json.loads(answer["Body"].read())["outputs"][0]["data"][0])

    def call(self, service: str, operation: str, region: str = US, **request: Any) -> Any:
        """What an operation answers, or its error."""
        return self.ask({"service": service, "operation": operation, "request": request}, region)

    def keys(self) -> dict[str, str]:
        """The keys of the instance, as settings of a client."""
        variables = self.ask({"variables": True})
        return {
            "aws_access_key_id": variables["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": variables["AWS_SECRET_ACCESS_KEY"],
            "aws_session_token": variables["AWS_SESSION_TOKEN"],
        }


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A host with keys, and an endpoint of account A in two regions."""
    place = tmp_path_factory.mktemp("roles")
    with start_host(place / "host", f"--keys={keys_file(place)}") as host:
        found = Caller(host)
        found.create()
        found.create(EU, "models-of-eu")
        yield found


def test_a_model_reads_objects_with_plain_boto3(caller: Caller) -> None:
    assert caller.call("s3", "get_object", Bucket="models", Key="words") == "read by the model"
    assert caller.ask({"words": True}) == ["read by the model"]  # while it was initialized


def test_a_model_writes_objects_and_metrics_and_invokes_endpoints(caller: Caller) -> None:
    caller.call("s3", "put_object", Bucket="models", Key="written", Body="by the model")
    s3 = caller.accounts.client("s3", A)
    assert s3.get_object(Bucket="models", Key="written")["Body"].read() == b"by the model"
    data = [{"MetricName": "drift", "Value": 1}]
    caller.call("cloudwatch", "put_metric_data", Namespace="model", MetricData=data)
    listed = caller.accounts.client("cloudwatch", A).list_metrics(Namespace="model")["Metrics"]
    assert [each["MetricName"] for each in listed] == ["drift"]
    group = "/aws/sagemaker/Endpoints/e"
    assert caller.call("logs", "describe_log_streams", logGroupName=group)["logStreams"]
    missing = caller.call("sagemaker-runtime", "invoke_endpoint", EndpointName="none", Body="")
    assert missing["Message"] == f"Endpoint none of account {A} not found."


@pytest.mark.parametrize("region", [US, EU])
def test_a_model_has_the_region_and_the_role_of_its_endpoint(caller: Caller, region: str) -> None:
    variables = caller.ask({"variables": True}, region)
    assert variables["AWS_ENDPOINT_URL"] == caller.accounts.host.url
    assert variables["AWS_REGION"] == variables["AWS_DEFAULT_REGION"] == region
    assert variables["AWS_ACCESS_KEY_ID"].startswith("ASIA")
    identity = caller.call("sts", "get_caller_identity", region)
    assert identity["Arn"] == f"arn:aws:sts::{A}:assumed-role/models/SageMaker"
    assert identity["Account"] == A


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        ("create_endpoint", {"EndpointName": "x", "EndpointConfigName": "c"}),
        ("delete_endpoint", {"EndpointName": "e"}),
        ("delete_model", {"ModelName": "m"}),
        ("list_endpoints", {}),
    ],
)
def test_a_model_can_neither_create_nor_delete_endpoints(
    caller: Caller, operation: str, request_: dict[str, Any]
) -> None:
    error = caller.call("sagemaker", operation, **request_)
    assert error["Code"] == "AccessDeniedException"
    assert "is not authorized to perform: sagemaker:" in error["Message"]
    names = [
        each["EndpointName"] for each in caller.accounts.client("sagemaker", A).list_endpoints()["Endpoints"]
    ]
    assert names == ["e"]


def test_a_model_has_no_right_to_objects_of_another_account(caller: Caller) -> None:
    caller.accounts.client("s3", B).create_bucket(Bucket="others")
    error = caller.call("s3", "put_object", Bucket="others", Key="a", Body="x")
    assert error["Code"] == "AccessDenied"


def test_the_keys_count_only_with_their_token(caller: Caller) -> None:
    host, keys = caller.accounts.host, caller.keys()
    assert host.client("s3", **keys).list_buckets()["Buckets"]
    for token in ("", "wrong"):
        with pytest.raises(ClientError) as raised:
            host.client("s3", **{**keys, "aws_session_token": token}).list_buckets()
        assert code_of(raised) == ("InvalidToken", 400)
        with pytest.raises(ClientError) as raised:
            host.client("sts", **{**keys, "aws_session_token": token}).get_caller_identity()
        assert code_of(raised) == ("InvalidClientTokenId", 403)
    with pytest.raises(ClientError) as raised:
        host.client("s3", **{**keys, "aws_secret_access_key": "wrong"}).list_buckets()
    assert code_of(raised) == ("SignatureDoesNotMatch", 403)
    place = {"Bucket": "models", "Key": "words"}
    for config in ({"signature_version": "s3v4"}, {}):
        url = host.client("s3", config=config, **keys).generate_presigned_url("get_object", Params=place)
        assert read(url) == b"read by the model"


def read(url: str) -> bytes:
    import urllib.request

    with urllib.request.urlopen(url, timeout=60) as answer:
        data: bytes = answer.read()
    return data


def test_the_keys_end_with_the_endpoint_and_outlive_the_host(tmp_path: Path) -> None:
    flags = (f"--keys={keys_file(tmp_path)}", "--keep-instances")
    with start_host(tmp_path / "host", *flags) as host:
        Caller(host).create()
        keys = Caller(host).keys()
        port = host.url.rpartition(":")[2]
    for path in tmp_path.rglob("*"):  # nobody finds them on disk
        assert not path.is_file() or keys["aws_secret_access_key"].encode() not in path.read_bytes()
    assert (tmp_path / "host" / "roles.key").stat().st_mode & 0o077 == 0
    with start_host(tmp_path / "host", *flags, f"--port={port}") as host:
        caller = Caller(host)
        sagemaker = caller.accounts.client("sagemaker", A)
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="e", WaiterConfig={"Delay": 1})
        assert caller.keys() == keys
        assert caller.call("s3", "get_object", Bucket="models", Key="words") == "read by the model"
        assert host.client("s3", **keys).list_buckets()["Buckets"]

        # an update brings others
        sagemaker.update_endpoint(EndpointName="e", EndpointConfigName="c")
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="e", WaiterConfig={"Delay": 1})
        newer = caller.keys()
        assert newer != keys
        assert host.client("s3", **newer).list_buckets()["Buckets"]

        sagemaker.delete_endpoint(EndpointName="e")
        sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="e", WaiterConfig={"Delay": 1})
        for ended in (keys, newer):
            with pytest.raises(ClientError) as raised:
                host.client("s3", **ended).list_buckets()
            assert code_of(raised) == ("InvalidAccessKeyId", 403)

        # an endpoint of the same name has keys of its own
        sagemaker.create_endpoint(EndpointName="e", EndpointConfigName="c")
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="e", WaiterConfig={"Delay": 1})
        with pytest.raises(ClientError):
            host.client("s3", **newer).list_buckets()
        sagemaker.delete_endpoint(EndpointName="e")
        sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="e", WaiterConfig={"Delay": 1})


def test_without_keys_models_have_the_same_environment_and_rights(tmp_path: Path) -> None:
    with start_host(tmp_path / "host") as host:
        caller = Caller(host)
        caller.create()
        assert caller.call("s3", "get_object", Bucket="models", Key="words") == "read by the model"
        assert caller.call("sts", "get_caller_identity")["Arn"].endswith(":assumed-role/models/SageMaker")
        error = caller.call("sagemaker", "delete_endpoint", EndpointName="e")
        assert error["Code"] == "AccessDeniedException"
