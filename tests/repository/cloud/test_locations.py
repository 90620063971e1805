import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.errors import InvalidArgumentError
from halimede.repository.cloud.locations import Location, Service, is_bucket_url, parse_location


@pytest.mark.parametrize(
    ("url", "endpoint", "account", "bucket", "path"),
    [
        ("s3://bucket", "", "", "bucket", ""),
        ("s3://bucket/", "", "", "bucket", ""),
        ("s3://bucket/a/b/", "", "", "bucket", "a/b"),
        ("s3://bucket//a//b", "", "", "bucket", "a/b"),
        ("s3://localhost:4566/bucket/a", "http://localhost:4566", "", "bucket", "a"),
        ("s3://http://10.0.0.1:9000/bucket/a", "http://10.0.0.1:9000", "", "bucket", "a"),
        ("s3://https://minio.example:9000/bucket", "https://minio.example:9000", "", "bucket", ""),
        ("s3://https://minio.example/bucket/a", "https://minio.example", "", "bucket", "a"),
        ("gs://bucket/a", "", "", "bucket", "a"),
        ("as://account/container/a/b", "", "account", "container", "a/b"),
        (
            "as://http://127.0.0.1:10000/account/container",
            "http://127.0.0.1:10000",
            "account",
            "container",
            "",
        ),
    ],
)
def test_each_form_of_a_url_names_a_repository(
    url: str, endpoint: str, account: str, bucket: str, path: str
) -> None:
    service = Service(url.partition(":")[0])
    expected = Location(url.rstrip("/"), service, endpoint, account, bucket, path)
    assert parse_location(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///",
        "gs://",
        "as://",
        "as://account",
        "s3://localhost:80",
        "s3://https://host",
        "s3://b/../c",
    ],
)
def test_a_url_without_a_bucket_is_refused_with_the_right_form(url: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"is no URL of a model repository; expected (s3|gs|as)://"
    ):
        parse_location(url)


def test_credentials_in_a_url_are_refused_without_repeating_them() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"may not hold credentials; set .*AWS_ACCESS_KEY_ID"
    ) as caught:
        parse_location("s3://https://user:hidden@host:9000/bucket")
    assert "hidden" not in str(caught.value)


def test_directories_are_no_urls() -> None:
    assert [is_bucket_url(each) for each in ("models", "/s3://x", "file:///models", "s3:/x", "s3://x")] == [
        False, False, False, False, True,
    ]  # fmt: skip


@given(st.sampled_from(["s3://", "gs://", "as://"]), st.text())
def test_any_text_is_a_location_with_a_bucket_or_refused(scheme: str, text: str) -> None:
    try:
        location = parse_location(scheme + text)
    except InvalidArgumentError:
        return
    assert location.bucket
    assert "/" not in location.bucket
    assert not {"", ".", ".."} & set(location.path.split("/")) or location.path == ""
