"""Models fetched from wherever their URLs lead."""

import asyncio
import io
import os
import shutil
import signal
import socket
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

from halimede.hosting.access.keys import Key
from halimede.hosting.errors import ApiError
from halimede.hosting.store import extraction, remote_place
from halimede.hosting.store.sources import Places, model_source
from halimede.repository.model_archives import extract_model
from tests.hosting.store.serving import ACCESS_KEY, SECRET, StoreHost, store_host
from tests.hosting.store.test_objects import ODD_KEYS
from tests.support.stopping import stop

Process = subprocess.Popen[bytes]

MIB = 1 << 20
CONFIG = b'backend: "identity"'


def archive(size: int = 0, *, compressed: bool = True) -> bytes:
    """A model archive with so many random bytes."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz" if compressed else "w") as tar:
        for name, content in (("simple/config.pbtxt", CONFIG), ("simple/1/weights", os.urandom(size))):
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    return data.getvalue()


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


class Fetching:
    """Fetches into a directory, and remembers what it was told."""

    def __init__(self, host: StoreHost, source: Places, parent: Path, account: str = "000000000000") -> None:
        self.host = host
        self.source = source.of(account)
        self.parent = parent
        self.progress: list[tuple[int, int]] = []

    def fetch(self, url: str, timeout_s: float = 60.0) -> int:
        """The bytes on disk of a model that is now in ``model``."""
        work = self.source.fetch_model(
            url, self.parent / "model", timeout_s, lambda *done: self.progress.append(done)
        )
        return self.host.loop.run(work)

    def refusal(self, url: str, timeout_s: float = 60.0) -> ApiError:
        """Why a model cannot be fetched; nothing is left of the attempt."""
        with pytest.raises(ApiError) as raised:
            self.fetch(url, timeout_s)
        assert list(self.parent.iterdir()) == []
        return raised.value


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """A directory for the model."""
    (tmp_path / "parent").mkdir()
    return tmp_path / "parent"


@pytest.fixture
def own(host: StoreHost, parent: Path) -> Fetching:
    """From the host's own store."""
    return Fetching(host, model_source(host.store, host.tokens), parent)


@pytest.fixture
def elsewhere(host: StoreHost, parent: Path, tmp_path: Path) -> Iterator[Fetching]:
    """From another S3 service, which is the first host; the second has an empty store."""
    with store_host(tmp_path / "second") as second:
        yield Fetching(second, model_source(second.store, second.tokens, host.endpoint), parent)


@pytest.fixture(params=["own", "elsewhere"])
def fetching(request: pytest.FixtureRequest) -> Any:
    """From either."""
    return request.getfixturevalue(request.param)


def test_a_model_is_fetched_and_extracted(s3: Any, fetching: Fetching) -> None:
    data = archive(20 * MIB, compressed=False)
    s3.put_object(Bucket="models", Key="a b/model.tar.gz", Body=data)
    size = fetching.fetch("s3://models/a b/model.tar.gz")
    model = fetching.parent / "model"
    assert (model / "simple/config.pbtxt").read_bytes() == CONFIG
    assert (model / "simple/1/weights").stat().st_size == 20 * MIB
    assert 20 * MIB <= size < 21 * MIB
    assert fetching.progress[-1] == (len(data), len(data))
    assert list(fetching.parent.iterdir()) == [model]


def test_what_is_known_of_an_object_changes_with_it(s3: Any, fetching: Fetching) -> None:
    def describe() -> Any:
        return fetching.host.loop.run(fetching.source.describe("s3://models/a"))

    s3.put_object(Bucket="models", Key="a", Body=b"one")
    first = describe()
    s3.put_object(Bucket="models", Key="a", Body=b"other")
    second = describe()
    assert (first.size, second.size) == (3, 5)
    assert first.etag != second.etag


def test_keys_of_many_characters(s3: Any, fetching: Fetching) -> None:
    # the client of other services knows no keys with empty parts, dots or control characters
    odd = {"//double//slash/", "trailing/", "../up/./dot", "tab\tand\nline end"}
    for key in ODD_KEYS:
        s3.put_object(Bucket="models", Key=key, Body=key.encode())
        work = fetching.source.describe(f"s3://models/{key}")
        if key in odd and fetching.source._places._remote is not None:  # noqa: SLF001 - which of the places it is
            with pytest.raises(ApiError, match="Failed to download model data"):
                fetching.host.loop.run(work)
        else:
            assert fetching.host.loop.run(work).size == len(key.encode())


def test_an_object_or_bucket_that_is_not_there(s3: Any, fetching: Fetching) -> None:
    error = fetching.refusal("s3://models/absent.tar.gz")
    assert error.code == "ValidationException"
    assert "bucket: models, key: absent.tar.gz" in error.message
    assert "no such object" in error.message
    assert "aws s3 cp model.tar.gz s3://models/absent.tar.gz" in error.message
    assert "bucket: absent, key: a" in fetching.refusal("s3://absent/a").message


def test_a_bucket_that_the_own_store_lacks(own: Fetching) -> None:
    message = own.refusal("s3://absent/a").message
    assert "aws s3 mb s3://absent" in message
    assert "--s3-endpoint" in message


@pytest.mark.parametrize(
    "url", ["", "models/a", "s3://", "s3://models", "s3://models/", "https://host/a", "file://a"]
)
def test_an_url_that_leads_nowhere(own: Fetching, url: str) -> None:
    assert "expected s3://BUCKET/KEY" in own.refusal(url).message


def test_an_object_that_is_no_archive(s3: Any, fetching: Fetching) -> None:
    for data in (b"", b"no archive at all", archive(1000)[:-200]):
        s3.put_object(Bucket="models", Key="a.tar.gz", Body=data)
        error = fetching.refusal("s3://models/a.tar.gz")
        assert error.code == "ValidationException"
        assert "s3://models/a.tar.gz" in error.message
        assert "tar -czf model.tar.gz" in error.message
        assert "/proc/" not in error.message


def test_an_extraction_that_takes_too_long_is_stopped(
    s3: Any, fetching: Fetching, monkeypatch: pytest.MonkeyPatch
) -> None:
    extractions = []

    def never_ending(archive: Path, directory: Path, on_started: Callable[[Process], None]) -> None:
        def started(process: Process) -> None:
            stop(process.pid)
            extractions.append(process)
            on_started(process)

        extract_model(archive, directory, on_started=started)

    monkeypatch.setattr(extraction, "extract_model", never_ending)
    data = archive(1000)
    s3.put_object(Bucket="models", Key="a", Body=data)
    fetching.host.loop.run(fetching.source.describe("s3://models/a"))  # what is done once is done
    error = fetching.refusal("s3://models/a", 1.5)
    assert "it took longer than 1.5 seconds" in error.message
    assert "ModelDataDownloadTimeoutInSeconds" in error.message
    assert f"{len(data):,} of {len(data):,} bytes had been downloaded" in error.message
    assert [process.returncode for process in extractions] == [-signal.SIGKILL]


def test_a_service_that_does_not_answer(host: StoreHost, parent: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        fetching = Fetching(host, model_source(host.store, host.tokens, endpoint), parent)
        assert "it took longer than 0.3 seconds" in fetching.refusal("s3://models/a", 0.3).message


def test_a_service_that_cannot_be_reached(
    host: StoreHost, parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_place, "_RETRIES", 0)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        endpoint = f"http://127.0.0.1:{closed.getsockname()[1]}"
    fetching = Fetching(host, model_source(host.store, host.tokens, endpoint), parent)
    message = fetching.refusal("s3://models/a").message
    assert f"the S3 service at {endpoint} does not do that" in message
    assert "Debug source" not in message
    with pytest.raises(ApiError, match="the endpoint of an S3 service is a URL"):
        model_source(host.store, host.tokens, "localhost:9000")


def test_a_service_that_refuses(tmp_path: Path, parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {ACCESS_KEY: Key(ACCESS_KEY, SECRET, actions=("s3:Put*", "s3:CreateBucket"))}
    with store_host(tmp_path / "one", keys) as service, store_host(tmp_path / "two") as host:
        s3 = service.client()
        s3.create_bucket(Bucket="models")
        s3.put_object(Bucket="models", Key="a", Body=archive())
        fetching = Fetching(host, model_source(host.store, host.tokens, service.endpoint), parent)
        message = fetching.refusal("s3://models/a").message
        assert "refuses it" in message
        assert "credentials in the host's environment" in message
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        fetching = Fetching(host, model_source(host.store, host.tokens, service.endpoint), parent)
        assert "refuses it" in fetching.refusal("s3://models/a").message


def test_an_object_that_is_replaced_while_it_is_downloaded(
    s3: Any, elsewhere: Fetching, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put_object(Bucket="models", Key="a", Body=archive(20 * MIB, compressed=False))
    describe = remote_place.RemotePlace.describe

    async def replacing(self: remote_place.RemotePlace, location: Any) -> Any:
        info = await describe(self, location)
        await asyncio.to_thread(
            s3.put_object, Bucket="models", Key="a", Body=archive(20 * MIB, compressed=False)
        )
        return info

    monkeypatch.setattr(remote_place.RemotePlace, "describe", replacing)
    assert "it was replaced while it was downloaded" in elsewhere.refusal("s3://models/a").message


def test_an_archive_that_the_disk_has_no_room_for(
    s3: Any, elsewhere: Fetching, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put_object(Bucket="models", Key="a", Body=archive(MIB))
    usage = shutil.disk_usage(elsewhere.parent)
    monkeypatch.setattr(
        "halimede.hosting.store.remote_place.shutil.disk_usage", lambda _: usage._replace(free=1000)
    )
    error = elsewhere.refusal("s3://models/a")
    assert (error.code, error.status) == ("InsufficientStorage", 507)
    assert "1,000 are free on the disk of" in error.message


def test_the_own_store_comes_before_another_service(s3: Any, elsewhere: Fetching) -> None:
    s3.put_object(Bucket="models", Key="a", Body=b"theirs")
    mine = elsewhere.host.client()
    mine.create_bucket(Bucket="models")
    mine.put_object(Bucket="models", Key="a", Body=b"mine, and longer")
    assert elsewhere.host.loop.run(elsewhere.source.describe("s3://models/a")).size == 16


def test_a_directory_that_is_called_like_a_bucket(host: StoreHost, parent: Path, tmp_path: Path) -> None:
    files = tmp_path / "files"
    (files / "below").mkdir(parents=True)
    (files / "below/a.tar.gz").write_bytes(archive(1000))
    (tmp_path / "secret.tar.gz").write_bytes(archive())
    (files / "out.tar.gz").symlink_to(tmp_path / "secret.tar.gz")
    fetching = Fetching(host, model_source(host.store, host.tokens, directories={"local": files}), parent)
    assert fetching.refusal("s3://local/absent").message.startswith(
        "Failed to download model data (bucket: local"
    )
    for key in ("../secret.tar.gz", "out.tar.gz", "below/../../secret.tar.gz"):
        assert "it is outside of" in fetching.refusal(f"s3://local/{key}").message
    assert "is a directory" in fetching.refusal("s3://local/below").message
    assert "name too long" in fetching.refusal("s3://local/" + "x" * 300).message
    assert "Failed to download" in fetching.refusal("s3://local/nul\0").message
    fetching.fetch("s3://local/below/a.tar.gz")
    assert (parent / "model/simple/config.pbtxt").read_bytes() == CONFIG


def test_a_second_implementation_of_s3(host: StoreHost, parent: Path) -> None:
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    try:
        address, port = server.get_host_and_port()
        endpoint = f"http://{address}:{port}"
        with closing(boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")) as s3:
            s3.create_bucket(Bucket="models")
            s3.put_object(Bucket="models", Key="x/ü.tar.gz", Body=archive(9 * MIB))
        fetching = Fetching(host, model_source(host.store, host.tokens, endpoint), parent)
        fetching.fetch("s3://models/x/ü.tar.gz")
        assert (parent / "model/simple/1/weights").stat().st_size == 9 * MIB
    finally:
        server.stop()


def test_a_store_that_obstore_writes(host: StoreHost, s3: Any) -> None:
    store = S3Store(
        "models", endpoint=host.endpoint, region="us-east-1", client_options={"allow_http": True},
        access_key_id=ACCESS_KEY, secret_access_key=SECRET,
    )  # fmt: skip
    data = os.urandom(12 * MIB)
    store.put("big", data)
    store.put("b c+%ü", b"x")
    assert bytes(store.get("big").bytes()) == data
    assert bytes(store.get_range("big", start=5, end=9)) == data[5:9]
    assert [each["path"] for batch in store.list() for each in batch] == ["b c+%ü", "big"]
    store.copy("big", "below/copy")
    store.delete(["big", "b c+%ü"])
    assert store.list_with_delimiter()["common_prefixes"] == ["below"]
    with pytest.raises(FileNotFoundError):
        store.head("big")
