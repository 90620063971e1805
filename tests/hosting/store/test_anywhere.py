"""Objects are read, written and listed by URL wherever their bucket is: `Objects`."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.store.objects import Objects
from halimede.hosting.store.sources import model_source
from tests.hosting.store.serving import ACCESS_KEY, SECRET, StoreHost, store_host

ACCOUNT = "000000000000"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials, and nothing of the machine's own settings."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@dataclass
class Bucket:
    """Objects of the bucket ``models``, whose errors are looked at."""

    host: StoreHost
    objects: Objects

    def run(self, work: Any) -> Any:
        return self.host.loop.run(work)

    def put(self, key: str, content: bytes | Path) -> None:
        self.run(self.objects.write(f"s3://models/{key}", content, "text/plain"))

    def read(self, key: str, limit: int = 1 << 30) -> bytes:
        return bytes(self.run(self.objects.read(f"s3://models/{key}", limit)))

    def keys(self, prefix: str) -> list[str]:
        found = self.run(self.objects.list(f"s3://models/{prefix}"))
        return [each.url.removeprefix("s3://models/") for each in found]

    def refusal(self, work: Any) -> str:
        with pytest.raises(ApiError) as raised:
            self.run(work)
        assert raised.value.code == "ValidationException"
        return raised.value.message


@pytest.fixture(params=["own store", "S3 service", "directory"])
def bucket(request: pytest.FixtureRequest, host: StoreHost, s3: Any, tmp_path: Path) -> Iterator[Bucket]:
    """The bucket in each of the places."""
    if request.param == "own store":
        yield Bucket(host, Objects(model_source(host.store, host.tokens), ACCOUNT))
        return
    with store_host(tmp_path / "second") as second:
        if request.param == "S3 service":
            places = model_source(second.store, second.tokens, host.endpoint)
        else:
            (tmp_path / "files").mkdir()
            places = model_source(second.store, second.tokens, directories={"models": tmp_path / "files"})
        yield Bucket(second, Objects(places, ACCOUNT))


def test_what_is_written_is_read(bucket: Bucket, tmp_path: Path) -> None:
    large = os.urandom(9 << 20)
    (tmp_path / "large").write_bytes(large)
    bucket.put("a/small", b"one")
    bucket.put("a/empty", b"")
    bucket.put("a/large", tmp_path / "large")
    assert [bucket.read(f"a/{name}") for name in ("small", "empty", "large")] == [b"one", b"", large]
    bucket.put("a/small", b"another")
    assert bucket.read("a/small") == b"another"
    assert bucket.run(bucket.objects.describe("s3://models/a/large")).size == len(large)


def test_type_of_the_content_is_told_where_it_is_known(
    bucket: Bucket, request: pytest.FixtureRequest
) -> None:
    bucket.put("a.txt", b"x")
    described = bucket.run(bucket.objects.describe("s3://models/a.txt"))
    is_known = "directory" not in request.node.callspec.id
    assert described.content_type == ("text/plain" if is_known else "")


def test_a_prefix_is_listed_in_the_order_of_keys(bucket: Bucket) -> None:
    for key in ("in/b", "in/a", "in/a/x", "input/c", "in/é"):
        if key != "in/a/x" or bucket.run(bucket.objects.list("s3://models/in/a")) == []:
            bucket.put(key, key.encode())
    assert bucket.keys("in/") == ["in/a", "in/b", "in/é"]
    assert bucket.keys("in") == ["in/a", "in/b", "in/é", "input/c"]
    assert bucket.keys("inp") == ["input/c"]
    assert bucket.keys("absent/") == []
    [found] = bucket.run(bucket.objects.list("s3://models/input/"))
    assert (found.url, found.size) == ("s3://models/input/c", 7)
    assert found.etag


def test_an_object_as_a_file(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("a", b"content")

    async def read() -> bytes:
        async with bucket.objects.file("s3://models/a", tmp_path) as path:
            return path.read_bytes()

    assert bucket.run(read()) == b"content"


def test_what_cannot_be_done_is_said_with_bucket_and_key(bucket: Bucket) -> None:
    objects = bucket.objects
    assert "Failed to read the object (bucket: models, key: absent): there is no" in bucket.refusal(
        objects.read("s3://models/absent", 10)
    )
    bucket.put("large", b"x" * 11)
    assert bucket.refusal(objects.read("s3://models/large", 10)) == (
        "s3://models/large has 11 bytes; it may have 10"
    )
    for url in ("s3://models", "https://models/a", "s3:///a", "models/a"):
        assert bucket.refusal(objects.read(url, 10)) == (
            f"'{url}' is no URL of an object; expected s3://BUCKET/KEY"
        )
    assert "expected s3://BUCKET/PREFIX" in bucket.refusal(objects.list("nowhere"))


def test_a_bucket_that_is_nowhere(host: StoreHost, s3: Any) -> None:
    bucket = Bucket(host, Objects(model_source(host.store, host.tokens), ACCOUNT))
    lead = "bucket: absent, key: k): there is no such bucket"
    assert f"Failed to write the object ({lead}" in bucket.refusal(bucket.objects.write("s3://absent/k", b""))
    assert f"Failed to list the objects ({lead}" in bucket.refusal(bucket.objects.list("s3://absent/k"))


def test_a_bucket_of_another_account(host: StoreHost, s3: Any) -> None:
    bucket = Bucket(host, Objects(model_source(host.store, host.tokens), "111111111111"))
    for work in (
        bucket.objects.write("s3://models/a", b"x"),
        bucket.objects.list("s3://models/"),
        bucket.objects.read("s3://models/a", 1),
    ):
        assert "Access Denied, as the bucket belongs to another account" in bucket.refusal(work)


def test_nothing_is_written_outside_of_a_directory(host: StoreHost, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    places = model_source(host.store, host.tokens, directories={"models": tmp_path / "files"})
    bucket = Bucket(host, Objects(places, ACCOUNT))
    text = bucket.refusal(bucket.objects.write("s3://models/../outside", b"x"))
    assert "it is outside of" in text
    assert not (tmp_path / "outside").exists()
