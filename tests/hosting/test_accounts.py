"""Accounts and regions are walls: nobody sees, uses or changes what belongs to another one."""

import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.host import HostProcess, start_host

A, B = "111111111111", "222222222222"
US, EU = "us-east-1", "eu-west-1"
PLACES = [(A, US), (B, US), (A, EU)]
ROLE = "arn:aws:iam::{}:role/service-role/models"

PROGRAM = """#!{python} -SE
import os, socket
listener = socket.create_server(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])))
name = os.environ["NAME"].encode()
print("this is", os.environ["NAME"], flush=True)
while True:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(
            b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n%b" % (len(name), name)
        )
"""
"""Answers everything with what the variable NAME says."""


class Accounts:
    """A host that verifies the keys of two accounts."""

    def __init__(self, host: HostProcess, program: Path) -> None:
        self.host = host
        self._program = program

    def client(self, service: str, account: str, region: str = US, **settings: Any) -> Any:
        """A client of an account's."""
        return self.host.client(
            service,
            region_name=region,
            aws_access_key_id=f"KEY{account}",
            aws_secret_access_key=f"of-{account}",
            **settings,
        )

    def create_model(self, account: str, region: str = US, name: str = "m", **container: Any) -> None:
        document = {
            "Image": str(self._program),
            "Environment": {"NAME": f"{account} {region}"},
            **container,
        }
        self.client("sagemaker", account, region).create_model(
            ModelName=name,
            ExecutionRoleArn=ROLE.format(account),
            PrimaryContainer=document,
            Tags=[{"Key": "of", "Value": f"{account} {region}"}],
        )

    def create_endpoint(self, account: str, region: str = US, name: str = "e") -> dict[str, Any]:
        """An endpoint of the model of that name's, as it is when it has settled."""
        client = self.client("sagemaker", account, region)
        client.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[VARIANT])
        client.create_endpoint(EndpointName=name, EndpointConfigName="c")
        while True:
            described: dict[str, Any] = client.describe_endpoint(EndpointName=name)
            if described["EndpointStatus"] != "Creating":
                return described

    def invoke(self, account: str, region: str = US, name: str = "e", **further: Any) -> str:
        runtime = self.client("sagemaker-runtime", account, region)
        body: bytes = runtime.invoke_endpoint(EndpointName=name, Body=b"x", **further)["Body"].read()
        return body.decode()

    def clear(self) -> None:
        """Delete what the accounts have in any region."""
        for account, region in ((account, region) for account in (A, B) for region in (US, EU)):
            sagemaker, s3 = self.client("sagemaker", account, region), self.client("s3", account, region)
            endpoints = [each["EndpointName"] for each in sagemaker.list_endpoints()["Endpoints"]]
            for name in endpoints:
                sagemaker.delete_endpoint(EndpointName=name)
            for name in endpoints:
                gone = sagemaker.get_waiter("endpoint_deleted")
                gone.wait(EndpointName=name, WaiterConfig={"Delay": 1})
            for each in sagemaker.list_endpoint_configs()["EndpointConfigs"]:
                sagemaker.delete_endpoint_config(EndpointConfigName=each["EndpointConfigName"])
            for each in sagemaker.list_models()["Models"]:
                sagemaker.delete_model(ModelName=each["ModelName"])
            for bucket in [each["Name"] for each in s3.list_buckets()["Buckets"]]:
                for upload in s3.list_multipart_uploads(Bucket=bucket).get("Uploads", ()):
                    s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
                for each in s3.list_objects_v2(Bucket=bucket).get("Contents", ()):
                    s3.delete_object(Bucket=bucket, Key=each["Key"])
                s3.delete_bucket(Bucket=bucket)


def keys_file(directory: Path) -> Path:
    path = directory / "keys.toml"
    tables = [f'[keys.KEY{account}]\nsecret = "of-{account}"\naccount = "{account}"\n' for account in (A, B)]
    path.write_text("\n".join(tables))
    return path


def program(directory: Path) -> Path:
    path = directory / "program"
    path.write_text(PROGRAM.format(python=sys.executable))
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    """A host with two accounts, which tests share."""
    place = tmp_path_factory.mktemp("accounts")
    with start_host(place / "host", f"--keys={keys_file(place)}") as host:
        yield Accounts(host, program(place))


@pytest.fixture
def accounts(shared: Accounts) -> Iterator[Accounts]:
    """The accounts, which have nothing but the metrics and logs of earlier tests."""
    yield shared
    shared.clear()


@pytest.fixture
def unused(tmp_path: Path) -> Iterator[Accounts]:
    """The accounts on a host of their own, without metrics and logs."""
    with start_host(tmp_path / "host", f"--keys={keys_file(tmp_path)}") as host:
        yield Accounts(host, program(tmp_path))


def code_of(raised: "pytest.ExceptionInfo[ClientError]") -> tuple[str, int]:
    response = raised.value.response
    return response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]


VARIANT = {"VariantName": "A", "ModelName": "m", "InstanceType": "ml.local.cpu"}

Call = Callable[[Any], Any]

BY_NAME: tuple[tuple[Call, str], ...] = (
    (lambda c: c.describe_endpoint(EndpointName="e"), "endpoint"),
    (lambda c: c.delete_endpoint(EndpointName="e"), "endpoint"),
    (lambda c: c.update_endpoint(EndpointName="e", EndpointConfigName="c"), "endpoint"),
    (
        lambda c: c.update_endpoint_weights_and_capacities(
            EndpointName="e", DesiredWeightsAndCapacities=[{"VariantName": "A", "DesiredWeight": 2}]
        ),
        "endpoint",
    ),
    (lambda c: c.create_endpoint(EndpointName="x", EndpointConfigName="c"), "endpoint-config"),
    (lambda c: c.describe_endpoint_config(EndpointConfigName="c"), "endpoint-config"),
    (lambda c: c.delete_endpoint_config(EndpointConfigName="c"), "endpoint-config"),
    (lambda c: c.describe_model(ModelName="m"), "model"),
    (lambda c: c.delete_model(ModelName="m"), "model"),
    (lambda c: c.create_endpoint_config(EndpointConfigName="x", ProductionVariants=[VARIANT]), "model"),
)
"""Calls that name something of the caller's, and of which kind it is."""

# endpoints


def check_places(accounts: Accounts, places: list[tuple[str, str]]) -> None:
    """Endpoint ``e`` of each place answers, and is all that is seen there."""
    for account, region in places:
        assert accounts.invoke(account, region) == f"{account} {region}"
        client = accounts.client("sagemaker", account, region)
        arn = f"arn:aws:sagemaker:{region}:{account}"
        assert client.describe_endpoint(EndpointName="e")["EndpointArn"] == f"{arn}:endpoint/e"
        assert client.describe_model(ModelName="m")["ModelArn"] == f"{arn}:model/m"
        assert [each["EndpointArn"] for each in client.list_endpoints()["Endpoints"]] == [f"{arn}:endpoint/e"]
        assert [each["ModelArn"] for each in client.list_models()["Models"]] == [f"{arn}:model/m"]
        configs = client.list_endpoint_configs()["EndpointConfigs"]
        assert [each["EndpointConfigArn"] for each in configs] == [f"{arn}:endpoint-config/c"]
        tags = client.list_tags(ResourceArn=f"{arn}:model/m")["Tags"]
        assert tags == [{"Key": "of", "Value": f"{account} {region}"}]


def test_names_are_those_of_an_account_and_region(tmp_path: Path) -> None:
    flags = (f"--keys={keys_file(tmp_path)}", "--keep-instances")
    with start_host(tmp_path / "host", *flags) as host:
        accounts = Accounts(host, program(tmp_path))
        for account, region in PLACES:
            accounts.create_model(account, region)
            assert accounts.create_endpoint(account, region)["EndpointStatus"] == "InService"
        check_places(accounts, PLACES)
    with start_host(tmp_path / "host", flags[0]) as host:
        accounts = Accounts(host, program(tmp_path))
        check_places(accounts, PLACES)

        first = accounts.client("sagemaker", A)
        first.delete_endpoint(EndpointName="e")
        first.get_waiter("endpoint_deleted").wait(EndpointName="e", WaiterConfig={"Delay": 1})
        with pytest.raises(ClientError, match=f"Endpoint e of account {A} not found"):
            accounts.invoke(A)
        check_places(accounts, PLACES[1:])
        first.delete_model(ModelName="m")
        first.delete_endpoint_config(EndpointConfigName="c")
        check_places(accounts, PLACES[1:])
        assert first.list_models()["Models"] == []
        metrics = host_page(host)
        for account, region in PLACES[1:]:
            labels = f'account="{account}",region="{region}",endpoint="e",variant="A"'
            assert f"halimede_host_instances{{{labels}}} 1" in metrics
        assert f'account="{A}",region="{US}"' not in metrics


def host_page(host: HostProcess) -> str:
    with urllib.request.urlopen(f"{host.url}/metrics", timeout=60) as page:
        text: bytes = page.read()
    return text.decode()


def test_nothing_of_another_account_can_be_used_by_its_name(accounts: Accounts) -> None:
    accounts.create_model(A)
    accounts.create_endpoint(A)
    for account, region in ((B, US), (A, EU)):
        client = accounts.client("sagemaker", account, region)
        arn = f"arn:aws:sagemaker:{region}:{account}"
        for call, missing in BY_NAME:
            with pytest.raises(ClientError, match="Could not find") as raised:
                call(client)
            assert f'"{arn}:{missing}/' in raised.value.response["Error"]["Message"]
            assert code_of(raised) == ("ValidationException", 400)
        with pytest.raises(ClientError, match=f"Endpoint e of account {account} not found") as raised:
            accounts.invoke(account, region)
        assert code_of(raised) == ("ValidationError", 400)
    assert accounts.invoke(A) == f"{A} {US}"


def test_an_arn_of_another_account_is_refused(accounts: Accounts) -> None:
    accounts.create_model(A)
    arn = f"arn:aws:sagemaker:{US}:{A}:model/m"
    tags = [{"Key": "of", "Value": "B"}]
    calls: tuple[Call, ...] = (
        lambda c: c.list_tags(ResourceArn=arn),
        lambda c: c.add_tags(ResourceArn=arn, Tags=tags),
        lambda c: c.delete_tags(ResourceArn=arn, TagKeys=["of"]),
    )
    for call in calls:
        with pytest.raises(ClientError) as raised:
            call(accounts.client("sagemaker", B))
        assert raised.value.response["Error"]["Code"] == "AccessDeniedException"
        message = raised.value.response["Error"]["Message"]
        assert message.startswith(
            f"User: arn:aws:sts::{B}:assumed-role/halimede/KEY{B} is not authorized to perform: sagemaker:"
        )
        assert f"on resource: {arn} because no resource-based policy allows the sagemaker:" in message
        with pytest.raises(ClientError, match=f'Could not find resource "{arn}"'):
            call(accounts.client("sagemaker", A, EU))
    assert accounts.client("sagemaker", A).list_tags(ResourceArn=arn)["Tags"][0]["Value"] == f"{A} {US}"


def test_metrics_and_logs_are_those_of_an_account_and_region(unused: Accounts) -> None:
    dimensions = [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "A"}]
    group = "/aws/sagemaker/Endpoints/e"
    for number, (account, region) in enumerate(PLACES, 1):
        unused.create_model(account, region)
        unused.create_endpoint(account, region)
        for _ in range(number):
            unused.invoke(account, region)
        unused.client("cloudwatch", account, region).put_metric_data(
            Namespace="mine", MetricData=[{"MetricName": f"of{number}", "Value": number}]
        )
    now = datetime.now(UTC)
    request: dict[str, Any] = {
        "Namespace": "AWS/SageMaker",
        "MetricName": "Invocation4XXErrors",
        "Dimensions": dimensions,
        "StartTime": now - timedelta(hours=1),
        "EndTime": now + timedelta(hours=1),
        "Period": 7200,
        "Statistics": ["SampleCount"],
    }
    for number, (account, region) in enumerate(PLACES, 1):
        cloudwatch = unused.client("cloudwatch", account, region)
        [point] = cloudwatch.get_metric_statistics(**request)["Datapoints"]
        assert point["SampleCount"] == number
        mine = cloudwatch.list_metrics(Namespace="mine")["Metrics"]
        assert [each["MetricName"] for each in mine] == [f"of{number}"]
        logs = unused.client("logs", account, region)
        [found] = logs.describe_log_groups()["logGroups"]
        assert found["arn"] == f"arn:aws:logs:{region}:{account}:log-group:{group}"
        events = logs.filter_log_events(logGroupName=group, filterPattern='"this is"')["events"]
        assert [event["message"] for event in events] == [f"this is {account} {region}"]
    nobody = unused.client("logs", B, EU)
    assert nobody.describe_log_groups()["logGroups"] == []
    with pytest.raises(ClientError, match="The specified log group does not exist"):
        nobody.describe_log_streams(logGroupName=group)
    assert unused.client("cloudwatch", B, EU).list_metrics()["Metrics"] == []


# buckets


def test_a_bucket_is_its_owner_s(accounts: Accounts) -> None:
    owner, other = accounts.client("s3", A), accounts.client("s3", B)
    owner.create_bucket(Bucket="models")
    owner.put_object(Bucket="models", Key="a", Body=b"x")
    upload = owner.create_multipart_upload(Bucket="models", Key="b")["UploadId"]
    other.create_bucket(Bucket="others")
    place: dict[str, Any] = {"Bucket": "models", "Key": "a"}
    part: dict[str, Any] = {"Bucket": "models", "Key": "b", "UploadId": upload}
    calls: tuple[Callable[[], Any], ...] = (
        lambda: other.list_objects_v2(Bucket="models"),
        lambda: other.list_objects(Bucket="models"),
        lambda: other.list_multipart_uploads(Bucket="models"),
        lambda: other.get_bucket_location(Bucket="models"),
        lambda: other.delete_bucket(Bucket="models"),
        lambda: other.get_object(**place),
        lambda: other.get_object_tagging(**place),
        lambda: other.put_object(**place, Body=b"y"),
        lambda: other.delete_object(**place),
        lambda: other.delete_objects(Bucket="models", Delete={"Objects": [{"Key": "a"}]}),
        lambda: other.copy_object(Bucket="others", Key="a", CopySource=place),
        lambda: other.copy_object(**place, CopySource={"Bucket": "others", "Key": "a"}),
        lambda: other.create_multipart_upload(**place),
        lambda: other.upload_part(**part, PartNumber=1, Body=b"y"),
        lambda: other.list_parts(**part),
        lambda: other.complete_multipart_upload(**part, MultipartUpload={"Parts": []}),
        lambda: other.abort_multipart_upload(**part),
    )
    for call in calls:
        with pytest.raises(ClientError, match="Access Denied") as raised:
            call()
        assert code_of(raised) == ("AccessDenied", 403)
    own = other.create_multipart_upload(Bucket="others", Key="b")["UploadId"]
    with pytest.raises(ClientError, match="Access Denied"):
        other.upload_part_copy(Bucket="others", Key="b", UploadId=own, PartNumber=1, CopySource=place)
    for call in (lambda: other.head_bucket(Bucket="models"), lambda: other.head_object(**place)):
        with pytest.raises(ClientError) as raised:
            call()
        assert code_of(raised) == ("403", 403)
    assert [each["Name"] for each in other.list_buckets()["Buckets"]] == ["others"]
    assert [each["Name"] for each in owner.list_buckets()["Buckets"]] == ["models"]
    assert owner.get_object(**place)["Body"].read() == b"x"
    assert accounts.client("s3", A, EU).get_object(**place)["Body"].read() == b"x"


def test_a_name_of_a_bucket_is_taken_for_all(accounts: Accounts) -> None:
    place = {"LocationConstraint": EU}
    accounts.client("s3", A, EU).create_bucket(Bucket="models", CreateBucketConfiguration=place)
    for account, code in ((A, "BucketAlreadyOwnedByYou"), (B, "BucketAlreadyExists")):
        with pytest.raises(ClientError) as raised:
            accounts.client("s3", account, EU).create_bucket(Bucket="models", CreateBucketConfiguration=place)
        assert code_of(raised) == (code, 409)
    accounts.client("s3", A).delete_bucket(Bucket="models")
    accounts.client("s3", B, EU).create_bucket(Bucket="models", CreateBucketConfiguration=place)
    with pytest.raises(ClientError, match="Access Denied"):
        accounts.client("s3", A).list_objects_v2(Bucket="models")


def archive(directory: Path) -> bytes:
    (directory / "config.pbtxt").write_text('backend: "x"')
    with tarfile.open(directory / "model.tar.gz", "w:gz") as packed:
        packed.add(directory / "config.pbtxt", "m/config.pbtxt")
    return (directory / "model.tar.gz").read_bytes()


def test_archives_are_fetched_with_the_rights_of_the_endpoint_s_account(
    accounts: Accounts, tmp_path: Path
) -> None:
    s3 = accounts.client("s3", A)
    s3.create_bucket(Bucket="models")
    s3.put_object(Bucket="models", Key="model.tar.gz", Body=archive(tmp_path))
    for account in (A, B):
        accounts.create_model(account, ModelDataUrl="s3://models/model.tar.gz")
    assert accounts.create_endpoint(A)["EndpointStatus"] == "InService"
    described = accounts.create_endpoint(B)
    assert described["EndpointStatus"] == "Failed"
    assert described["FailureReason"] == (
        "Failed to download model data (bucket: models, key: model.tar.gz): Access Denied, as the bucket belongs to "
        f"another account. Use a bucket of account {B}, who asks for it"
    )


def test_models_of_another_account_s_bucket_cannot_be_invoked(accounts: Accounts, tmp_path: Path) -> None:
    s3 = accounts.client("s3", A)
    s3.create_bucket(Bucket="models")
    s3.put_object(Bucket="models", Key="model.tar.gz", Body=archive(tmp_path))
    for account in (A, B):
        accounts.create_model(account, Mode="MultiModel", ModelDataUrl="s3://models/")
        accounts.create_endpoint(account)
    assert accounts.invoke(A, TargetModel="model.tar.gz") == f"{A} {US}"
    with pytest.raises(ClientError, match="Access Denied, as the bucket belongs to another account"):
        accounts.invoke(B, TargetModel="model.tar.gz")


# hosts without keys


@pytest.fixture(scope="module")
def keyless_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    place = tmp_path_factory.mktemp("keyless")
    with start_host(place / "host", f"--account={B}", f"--region={EU}") as host:
        yield Accounts(host, program(place))


@pytest.fixture
def keyless(keyless_host: Accounts) -> Iterator[Accounts]:
    """A host that verifies no keys, in which there is nothing."""
    yield keyless_host
    keyless_host.clear()


def test_without_keys_there_is_one_account_and_regions_are_walls(keyless: Accounts) -> None:
    keyless.create_model(A, EU)
    described = keyless.create_endpoint(A, EU)
    assert described["EndpointArn"] == f"arn:aws:sagemaker:{EU}:{B}:endpoint/e"
    assert keyless.invoke(B, EU) == f"{A} {EU}"
    assert keyless.host.client("sagemaker", region_name=US).list_endpoints()["Endpoints"] == []
    with pytest.raises(ClientError, match=f"Endpoint e of account {B} not found"):
        keyless.invoke(B, US)
    # what is not signed is of the host's own region
    request = urllib.request.Request(f"{keyless.host.url}/endpoints/e/invocations", b"x", method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.read() == f"{A} {EU}".encode()
    keyless.client("s3", A).create_bucket(Bucket="models")
    assert [each["Name"] for each in keyless.client("s3", B, EU).list_buckets()["Buckets"]] == ["models"]


def test_unsigned_requests_do_not_reach_other_regions(keyless: Accounts) -> None:
    keyless.create_model(A, US)
    keyless.create_endpoint(A, US)
    request = urllib.request.Request(f"{keyless.host.url}/endpoints/e/invocations", b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=60)
    with raised.value as answer:
        assert answer.code == 400
        assert f"Endpoint e of account {B} not found" in answer.read().decode()
