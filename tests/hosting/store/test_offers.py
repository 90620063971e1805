"""Objects that are offered to other machines."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from email.message import Message
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from moto.server import ThreadedMotoServer

from halimede.hosting.access.keys import Key
from halimede.hosting.errors import ApiError
from halimede.hosting.store.offers import LIFETIME_S, OfferTokens
from halimede.hosting.store.places import Location
from halimede.hosting.store.source import Offer
from halimede.hosting.store.sources import model_source
from halimede.hosting.substrates.node.store import NodeStore
from tests.hosting.store.serving import ACCESS_KEY, SECRET, StoreHost, store_host
from tests.hosting.store.test_sources import CONFIG, MIB, archive
from tests.support.host import start_host

ACCOUNT = "000000000000"
TAKEN = "s3://models/a.tar.gz"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials, and nothing of the machine's own settings."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory that is a bucket, ``local``."""
    (tmp_path / "files").mkdir()
    return tmp_path / "files"


@pytest.fixture
def clock() -> list[float]:
    """The time of the host."""
    return [1e9]


@pytest.fixture
def host(tmp_path: Path, files: Path, clock: list[float]) -> Iterator[StoreHost]:
    """A host that verifies signatures, whose clock the test moves."""
    keys = {ACCESS_KEY: Key(ACCESS_KEY, SECRET)}
    with store_host(tmp_path / "store", keys, directories={"local": files}, now=lambda: clock[0]) as running:
        yield running


Put = Callable[[bytes], object]


@pytest.fixture(params=["store", "directory"])
def place(request: pytest.FixtureRequest, host: StoreHost, files: Path, s3: Any) -> tuple[str, Put]:
    """The URL of an object in either place, and what puts it."""
    if request.param == "store":
        return TAKEN, lambda data: s3.put_object(Bucket="models", Key="a.tar.gz", Body=data)
    return "s3://local/a.tar.gz", lambda data: (files / "a.tar.gz").write_bytes(data)


def offered(host: StoreHost, url: str, files: Path, account: str = ACCOUNT) -> Offer:
    """An offer of an object."""
    source = model_source(host.store, host.tokens, directories={"local": files}).of(account)
    return host.loop.run(source.offer(url))


def get(url: str, method: str = "GET", **headers: str) -> tuple[int, Message, bytes]:
    """Status, headers and body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, None, named, method=method)) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def taken(offer: Offer, directory: Path) -> Path:
    """A model that a node has fetched."""
    return NodeStore(directory, 0).take(offer, 60.0, lambda *_: None, Event()).directory


def test_a_node_fetches_what_is_offered(
    place: tuple[str, Put], host: StoreHost, files: Path, tmp_path: Path
) -> None:
    url, put = place
    put(archive(9 * MIB))
    offer = Offer(**json.loads(json.dumps(asdict(offered(host, url, files)))))
    assert offer.name == url
    assert offer.url.startswith(f"{host.endpoint}/offers/")
    model = taken(offer, tmp_path / "node")
    assert (model / "simple/config.pbtxt").read_bytes() == CONFIG
    assert (model / "simple/1/weights").stat().st_size == 9 * MIB


def test_offers_need_no_signature_and_answer_ranges(
    place: tuple[str, Put], host: StoreHost, files: Path
) -> None:
    data = os.urandom(3 * MIB)
    url, put = place
    put(data)
    offer = offered(host, url, files)
    status, headers, body = get(offer.url)
    assert (status, body, headers["ETag"]) == (200, data, f'"{offer.etag}"')
    assert (headers["Accept-Ranges"], headers["Content-Length"]) == ("bytes", str(offer.size))
    status, headers, body = get(offer.url, Range="bytes=1000-", If_Match=f'"{offer.etag}"')
    assert (status, body) == (206, data[1000:])
    assert headers["Content-Range"] == f"bytes 1000-{len(data) - 1}/{len(data)}"
    assert get(offer.url, Range="bytes=5-9", If_Range=f'"{offer.etag}"')[2] == data[5:10]
    assert get(offer.url, Range="bytes=5-9", If_Range='"other"')[2] == data
    assert get(offer.url, If_Match='"other"')[0] == 412
    status, headers, _ = get(offer.url, Range=f"bytes={len(data)}-")
    assert (status, headers["Content-Range"]) == (416, f"bytes */{len(data)}")
    status, headers, body = get(offer.url, "HEAD")
    assert (status, headers["Content-Length"], body) == (200, str(len(data)), b"")


def test_an_object_that_was_replaced_is_not_given(
    place: tuple[str, Put], host: StoreHost, files: Path, tmp_path: Path
) -> None:
    url, put = place
    put(archive(1000))
    offer = offered(host, url, files)
    put(archive(2000))
    status, _, body = get(offer.url)
    assert status == 412
    assert f"{url} was replaced: its ETag was {offer.etag} and is " in body.decode()
    with pytest.raises(ApiError, match="it was replaced after it was offered"):
        taken(offer, tmp_path / "node")
    assert get(offered(host, url, files).url)[0] == 200


def test_an_object_that_was_removed(host: StoreHost, files: Path, s3: Any, tmp_path: Path) -> None:
    s3.put_object(Bucket="models", Key="a.tar.gz", Body=archive())
    (files / "a").write_bytes(archive())
    offers = [offered(host, TAKEN, files), offered(host, "s3://local/a", files)]
    s3.delete_object(Bucket="models", Key="a.tar.gz")
    (files / "a").unlink()
    for offer in offers:
        status, _, body = get(offer.url)
        assert status == 404
        assert "Failed to download model data" in body.decode()
    with pytest.raises(ApiError, match="it was removed after it was offered"):
        taken(offers[0], tmp_path / "node")


def test_what_is_not_there_is_not_offered(host: StoreHost, files: Path, s3: Any) -> None:
    for url in ("s3://models/absent", "s3://local/absent", "s3://absent/a"):
        with pytest.raises(ApiError, match="Failed to download model data"):
            offered(host, url, files)


def test_a_bucket_of_another_account_is_not_offered(host: StoreHost, files: Path, s3: Any) -> None:
    s3.put_object(Bucket="models", Key="a.tar.gz", Body=archive())
    with pytest.raises(ApiError, match="the bucket belongs to another account"):
        offered(host, TAKEN, files, "111111111111")
    # not even if it was somebody else's when it was offered
    stolen = host.tokens.offer(Location("models", "a.tar.gz", "111111111111"), 1, "e")
    status, _, body = get(stolen.url)
    assert status == 404
    assert "the bucket belongs to another account" in body.decode()


def test_an_offer_expires(host: StoreHost, files: Path, s3: Any, clock: list[float]) -> None:
    s3.put_object(Bucket="models", Key="a.tar.gz", Body=b"data")
    offer = offered(host, TAKEN, files)
    clock[0] += LIFETIME_S - 1
    assert get(offer.url)[0] == 200
    clock[0] += 1
    status, _, body = get(offer.url)
    assert (status, body) == (403, f"the offer of {TAKEN} has expired".encode())


def test_a_token_that_the_host_did_not_make(
    host: StoreHost, files: Path, s3: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    s3.put_object(Bucket="models", Key="a.tar.gz", Body=b"data")
    offer = offered(host, TAKEN, files)
    other = OfferTokens(tmp_path / "other.key")
    other.open(host.endpoint)
    forged = other.offer(Location("models", "a.tar.gz", ACCOUNT), 4, offer.etag).url
    head, _, seal = offer.url.rpartition(".")
    wrong = [f"{host.endpoint}/offers/{text}" for text in ("", "x", ".", "a.b", "é", "x" * 3000, "%00.%00")]
    for url in [forged, head, f"{head}.{seal[:-2]}", f"{head[:-1]}.{seal}", *wrong[:4], *wrong[5:]]:
        status, _, body = get(url)
        assert status == 403, url
        assert body == b"this is no URL of an object that this host has offered"
    assert "denied: GET /offers/" in caplog.text


def test_requests_that_are_signed_are_for_the_store(host: StoreHost, s3: Any) -> None:
    # earlier versions let buckets have that name
    host.loop.run(host.store.create_bucket("offers", ACCOUNT, "us-east-1"))
    s3.put_object(Bucket="offers", Key="a", Body=b"data")
    assert s3.get_object(Bucket="offers", Key="a")["Body"].read() == b"data"
    with pytest.raises(s3.exceptions.ClientError, match="offers"):
        s3.create_bucket(Bucket="offers")


def test_keys_of_all_characters_can_be_offered(host: StoreHost, files: Path, s3: Any) -> None:
    for key in ("ü/日本.tar.gz", "a b+c%20?&#", "é" * 512):
        s3.put_object(Bucket="models", Key=key, Body=key.encode())
        assert get(offered(host, f"s3://models/{key}", files).url)[2] == key.encode()


def test_a_file_that_changes_while_it_is_sent_is_broken_off(
    host: StoreHost, files: Path, tmp_path: Path
) -> None:
    (files / "a").write_bytes(bytes(64 * MIB))
    offer = offered(host, "s3://local/a", files)
    address = urlsplit(offer.url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=60)
    with closing(connection):
        connection.request("GET", address.path)
        response = connection.getresponse()
        response.read(1000)
        with (files / "a").open("r+b") as file:
            file.write(b"other")
        with pytest.raises((IncompleteRead, ConnectionResetError)):
            response.read()


def test_an_object_elsewhere_is_fetched_from_there(
    host: StoreHost, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    try:
        address, port = server.get_host_and_port()
        endpoint = f"http://{address}:{port}"
        with closing(boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")) as s3:
            s3.create_bucket(Bucket="models")
            s3.put_object(Bucket="models", Key="x/ü b+.tar.gz", Body=archive(2 * MIB), ACL="public-read")
        for index in range(2):
            source = model_source(host.store, host.tokens, endpoint).of(ACCOUNT)
            offer = host.loop.run(source.offer("s3://models/x/ü b+.tar.gz"))
            assert offer.url.startswith(f"{endpoint}/models/")
            assert ("X-Amz-Signature=" in offer.url) is (index == 0)
            assert '"' not in offer.etag
            assert get(offer.url, Range="bytes=5-9")[0] == 206
            model = taken(offer, tmp_path / f"node{index}")
            assert (model / "simple/1/weights").stat().st_size == 2 * MIB
            with pytest.raises(ApiError, match="Failed to download model data"):
                host.loop.run(source.offer("s3://models/absent"))
            # without credentials, what is public can be offered still
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                monkeypatch.delenv(name, raising=False)
    finally:
        server.stop()


def test_presigned_offers_are_verified_by_their_service(
    host: StoreHost, files: Path, tmp_path: Path, s3: Any
) -> None:
    s3.put_object(Bucket="models", Key="a.tar.gz", Body=archive(2 * MIB))
    with store_host(tmp_path / "second") as second:
        source = model_source(second.store, second.tokens, host.endpoint).of(ACCOUNT)
        offer = second.loop.run(source.offer(TAKEN))
    assert offer.url.startswith(f"{host.endpoint}/models/a.tar.gz?")
    taken(offer, tmp_path / "node")
    assert get(offer.url.replace("a.tar.gz", "b.tar.gz"))[0] == 403


def test_offers_hold_after_the_host_was_killed(tmp_path: Path) -> None:
    directory = tmp_path / "host"
    data = archive(MIB)
    with start_host(directory) as host:
        s3 = host.client("s3")
        s3.create_bucket(Bucket="models")
        etag = s3.put_object(Bucket="models", Key="a.tar.gz", Body=data)["ETag"].strip('"')
        port = host.url.rpartition(":")[2]
        tokens = OfferTokens(directory / "offers.key")
        tokens.open(host.url)
        offer = tokens.offer(Location("models", "a.tar.gz", ACCOUNT), len(data), etag)
        assert get(offer.url)[2] == data
        host.process.kill()
        host.process.wait()
    with start_host(directory, f"--port={port}"):
        assert (taken(offer, tmp_path / "node") / "simple/1/weights").stat().st_size == MIB
