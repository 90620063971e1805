"""Pages of objects: a page after the other has what one long list has."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from halimede.hosting.store.listing import Listing, page
from halimede.hosting.store.records import StoredObject

KEYS = sorted(
    [
        "a b/1",
        "a b/2",
        "a+b/1",
        "a%2Fb",
        "a/1",
        "a/2/x",
        "a/2/y",
        "b",
        "ü/1",
        "ü/2",
        "模型/x",
        "z/\N{ROCKET}",
    ],
    key=lambda key: key.encode(),
)
STORED = StoredObject("", 0, "", datetime.now(UTC), {})


@pytest.fixture
def bucket(s3: Any) -> Any:
    """A client, with objects in the bucket ``models``."""
    for key in KEYS:
        s3.put_object(Bucket="models", Key=key, Body=key.encode())
    return s3


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize("operation", ["list_objects", "list_objects_v2"])
def test_pages_together_have_all_keys_in_order(bucket: Any, operation: str, size: int) -> None:
    pages = bucket.get_paginator(operation).paginate(Bucket="models", PaginationConfig={"PageSize": size})
    assert [each["Key"] for page in pages for each in page.get("Contents", ())] == KEYS


@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize("operation", ["list_objects", "list_objects_v2"])
def test_keys_are_grouped_up_to_the_delimiter(bucket: Any, operation: str, size: int) -> None:
    settings = {"Bucket": "models", "Delimiter": "/", "PaginationConfig": {"PageSize": size}}
    pages = list(bucket.get_paginator(operation).paginate(**settings))
    groups = [each["Prefix"] for page in pages for each in page.get("CommonPrefixes", ())]
    keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
    assert groups == ["a b/", "a+b/", "a/", "z/", "ü/", "模型/"]
    assert keys == ["a%2Fb", "b"]
    below = list(bucket.get_paginator(operation).paginate(Prefix="a/", **settings))
    assert [each["Key"] for page in below for each in page.get("Contents", ())] == ["a/1"]
    assert [each["Prefix"] for page in below for each in page.get("CommonPrefixes", ())] == ["a/2/"]


def test_what_a_page_says_of_an_object(bucket: Any) -> None:
    found = bucket.list_objects_v2(Bucket="models", StartAfter="a/2/y", MaxKeys=1, FetchOwner=True)
    etag = bucket.head_object(Bucket="models", Key="b")["ETag"]
    (about,) = found["Contents"]
    assert (about["Key"], about["Size"], about["ETag"]) == ("b", 1, etag)
    assert about["ChecksumAlgorithm"] == ["CRC32"]
    assert about["Owner"]["ID"] == "000000000000"
    assert (found["KeyCount"], found["MaxKeys"], found["StartAfter"]) == (1, 1, "a/2/y")
    assert found["IsTruncated"]
    none = bucket.list_objects_v2(Bucket="models", MaxKeys=0)
    assert (none["KeyCount"], none["IsTruncated"]) == (0, False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ContinuationToken": "not a token"},
        {"MaxKeys": -1},
        {"EncodingType": "rot13"},
    ],
)
def test_a_listing_that_makes_no_sense(bucket: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ClientError) as raised:
        bucket.list_objects_v2(Bucket="models", **wrong)
    assert raised.value.response["Error"]["Code"] == "InvalidArgument"


def rows_of(keys: set[str]) -> Callable[[bytes, bytes, bytes, int], list[tuple[bytes, StoredObject]]]:
    """The rows of a store with these keys."""
    ordered = sorted(key.encode() for key in keys)

    def rows(above: bytes, begin: bytes, end: bytes, limit: int) -> list[tuple[bytes, StoredObject]]:
        return [(key, STORED) for key in ordered if key > above and begin <= key < end][:limit]

    return rows


@given(
    st.sets(st.text("ab/ü", min_size=1, max_size=5), max_size=30),
    st.text("ab/ü", max_size=2),
    st.sampled_from(["", "/", "b", "a/"]),
    st.integers(1, 5),
)
def test_pages_of_any_size_have_the_same(keys: set[str], prefix: str, delimiter: str, size: int) -> None:
    expected = []
    for key in sorted(keys, key=lambda key: key.encode()):
        if key.startswith(prefix):
            head, mark, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            name = prefix + head + mark if mark else key
            if name not in expected:
                expected.append(name)
    found: list[str] = []
    after = ""
    while True:
        part = page(Listing(prefix, delimiter, after, size), rows_of(keys))
        names = [key for key, _ in part.objects] + part.groups
        assert 0 < len(names) <= size or not part.is_truncated
        found += sorted(names, key=lambda key: key.encode())
        if not part.is_truncated:
            break
        after = part.last
    assert found == expected
