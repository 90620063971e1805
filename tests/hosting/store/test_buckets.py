"""Buckets through boto3."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.handlers import validate_bucket_name

from halimede.hosting.host import Host
from halimede.hosting.routing.invocations import PREFIX
from halimede.hosting.settings import HostSettings
from halimede.hosting.substrates.base import Resources
from tests.hosting.store.serving import StoreHost


def test_buckets_come_and_go(host: StoreHost) -> None:
    s3 = host.client("eu-west-1")
    place = {"LocationConstraint": "eu-west-1"}
    for name in ("b.two", "a-one"):
        s3.create_bucket(Bucket=name, CreateBucketConfiguration=place)
    assert [each["Name"] for each in s3.list_buckets()["Buckets"]] == ["a-one", "b.two"]
    assert s3.list_buckets()["Buckets"][0]["BucketRegion"] == "eu-west-1"
    assert s3.get_bucket_location(Bucket="a-one")["LocationConstraint"] == "eu-west-1"
    assert s3.head_bucket(Bucket="a-one")["BucketRegion"] == "eu-west-1"
    s3.delete_bucket(Bucket="a-one")
    assert [each["Name"] for each in s3.list_buckets()["Buckets"]] == ["b.two"]


def test_pages_of_buckets(s3: Any) -> None:
    names = [f"bucket-{number}" for number in range(5)]
    for name in names:
        s3.create_bucket(Bucket=name)
    pages = s3.get_paginator("list_buckets").paginate(Prefix="bucket-", PaginationConfig={"PageSize": 2})
    assert [[each["Name"] for each in page["Buckets"]] for page in pages] == [
        names[:2],
        names[2:4],
        names[4:],
    ]


def test_a_bucket_of_the_usual_region_has_no_location(s3: Any) -> None:
    assert s3.get_bucket_location(Bucket="models").get("LocationConstraint") is None


def test_a_bucket_that_is_there_already(host: StoreHost, s3: Any) -> None:
    s3.create_bucket(Bucket="models")  # as S3 has it in us-east-1
    elsewhere = host.client("eu-west-1")
    with pytest.raises(ClientError) as raised:
        elsewhere.create_bucket(
            Bucket="models", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"}
        )
    assert raised.value.response["Error"]["Code"] == "BucketAlreadyOwnedByYou"


@pytest.mark.parametrize(
    "name",
    [
        "ab",
        "A-bucket",
        "a_b_c",
        "-ab",
        "ab-",
        "a" * 64,
        "192.168.1.1",
        "a..b",
        "endpoints",
        "console",
        "ping",
    ],
)
def test_a_name_that_no_bucket_can_have(host: StoreHost, name: str) -> None:
    s3 = host.client(config={"parameter_validation": False})
    s3.meta.events.unregister("before-parameter-build.s3", validate_bucket_name)
    with pytest.raises(ClientError) as raised:
        s3.create_bucket(Bucket=name)
    assert raised.value.response["Error"]["Code"] == "InvalidBucketName"


def test_a_bucket_with_objects_stays(s3: Any) -> None:
    s3.put_object(Bucket="models", Key="a", Body=b"")
    with pytest.raises(ClientError) as raised:
        s3.delete_bucket(Bucket="models")
    assert raised.value.response["Error"]["Code"] == "BucketNotEmpty"
    s3.delete_object(Bucket="models", Key="a")
    s3.delete_bucket(Bucket="models")


def test_a_bucket_of_another_owner_than_expected(s3: Any) -> None:
    s3.head_bucket(Bucket="models", ExpectedBucketOwner="000000000000")
    with pytest.raises(ClientError) as raised:
        s3.list_objects_v2(Bucket="models", ExpectedBucketOwner="123456789012")
    assert raised.value.response["Error"]["Code"] == "AccessDenied"


def test_no_bucket_hides_behind_a_path_of_the_host_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: StoreHost
) -> None:
    """The paths that the dispatcher of a whole host answers by itself."""
    paths = [PREFIX, "/offers/"]

    def note(*arguments: Any, **_: Any) -> None:
        paths.extend(arguments[4])

    monkeypatch.setattr("halimede.hosting.host.Dispatcher", note)

    async def make() -> None:
        Host(HostSettings(tmp_path, Resources(1, 1 << 30), port=0))

    asyncio.run(make())
    first = {path.split("/")[1] for path in paths}
    assert {"console", "ping", "metrics", "endpoints", "offers"} <= first
    s3 = host.client(config={"parameter_validation": False})
    s3.meta.events.unregister("before-parameter-build.s3", validate_bucket_name)
    for name in first:
        with pytest.raises(ClientError) as raised:
            s3.create_bucket(Bucket=name)
        assert raised.value.response["Error"]["Code"] == "InvalidBucketName", name
