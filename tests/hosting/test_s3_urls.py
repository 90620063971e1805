"""Which bucket and key a URL names."""

import pytest

from halimede.hosting.control.checks import check_model
from halimede.hosting.s3_urls import bucket_and_key, s3_url


@pytest.mark.parametrize(
    "url",
    [
        "s3://models/a/m.tar.gz",
        "https://models.s3.amazonaws.com/a/m.tar.gz",
        "https://models.s3.eu-central-1.amazonaws.com/a/m.tar.gz",
        "https://models.s3-eu-west-1.amazonaws.com/a/m.tar.gz",
        "https://models.s3.dualstack.us-east-1.amazonaws.com/a/m.tar.gz",
        "https://models.s3.cn-north-1.amazonaws.com.cn/a/m.tar.gz",
        "https://s3.amazonaws.com/models/a/m.tar.gz",
        "https://s3.eu-central-1.amazonaws.com/models/a/m.tar.gz",
        "https://s3-us-west-2.amazonaws.com/models/a/m.tar.gz",
    ],
)
def test_addresses_of_one_object(url: str) -> None:
    assert bucket_and_key(url) == ("models", "a/m.tar.gz")
    assert s3_url(url) == "s3://models/a/m.tar.gz"
    check_model({"PrimaryContainer": {"Image": "image", "ModelDataUrl": url}})


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://my.own.s3.bucket.s3.us-east-1.amazonaws.com/k", ("my.own.s3.bucket", "k")),
        ("https://models.s3.us-east-1.amazonaws.com/a%20b/%C3%BC%2B+.tar.gz", ("models", "a b/ü++.tar.gz")),
        ("https://models.s3.us-east-1.amazonaws.com/", ("models", "")),
        ("https://s3.us-east-1.amazonaws.com/models", ("models", "")),
        ("https://s3.us-east-1.amazonaws.com", ("", "")),
        ("s3://models/a%20b", ("models", "a%20b")),
        ("s3://models", ("models", "")),
    ],
)
def test_parts_of_a_url(url: str, parts: tuple[str, str]) -> None:
    assert bucket_and_key(url) == parts


@pytest.mark.parametrize(
    "url",
    [
        "",
        "models/a",
        "file:///models/a",
        "http://models.s3.amazonaws.com/a",
        "https://example.com/models/a",
        "https://models.s3.amazonaws.com.example.com/a",
        "https://models.s3.us-east-1.amazonaws.com/a?X-Amz-Signature=1",
        "https://models.execute-api.us-east-1.amazonaws.com/a",
    ],
)
def test_other_urls_name_no_bucket(url: str) -> None:
    assert bucket_and_key(url) == ("", "")
    assert s3_url(url) == url
