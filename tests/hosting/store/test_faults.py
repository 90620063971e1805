"""Restarts, kills, full disks and clients that go away: objects are there as a whole or not at all."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, IncompleteRead
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from halimede.hosting.errors import ApiError
from halimede.hosting.http.connection import WINDOW_BYTES
from halimede.hosting.store.blobs import NewBlob
from halimede.hosting.store.object_store import ObjectStore, StoreError
from halimede.hosting.store.records import Conditions
from tests.hosting.store.raw import ask, connect
from tests.hosting.store.serving import StoreHost, store_host
from tests.hosting.store.test_objects import code_of, files
from tests.support.waiting import wait_until

MIB = 1 << 20


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    with store_host(tmp_path) as host:
        s3 = host.client("eu-west-1")
        s3.create_bucket(Bucket="models", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        put = s3.put_object(
            Bucket="models", Key="ä", Body=b"x", ContentType="text/plain", Metadata={"a": "b"}
        )
        upload = s3.create_multipart_upload(Bucket="models", Key="big", ChecksumAlgorithm="SHA256")
        call = {"Bucket": "models", "Key": "big", "UploadId": upload["UploadId"]}
        part = s3.upload_part(**call, PartNumber=1, Body=b"y", ChecksumAlgorithm="SHA256")
        before = s3.head_object(Bucket="models", Key="ä")["LastModified"]
    with store_host(tmp_path) as host:
        s3 = host.client("eu-west-1")
        assert s3.get_bucket_location(Bucket="models")["LocationConstraint"] == "eu-west-1"
        got = s3.get_object(Bucket="models", Key="ä")
        assert (got["Body"].read(), got["ContentType"], got["Metadata"]) == (b"x", "text/plain", {"a": "b"})
        assert (got["ETag"], got["LastModified"], got["ChecksumCRC32"]) == (
            put["ETag"],
            before,
            put["ChecksumCRC32"],
        )
        parts = [{"PartNumber": 1, "ETag": part["ETag"], "ChecksumSHA256": part["ChecksumSHA256"]}]
        s3.complete_multipart_upload(**call, MultipartUpload={"Parts": parts})
        assert s3.get_object(Bucket="models", Key="big")["Body"].read() == b"y"


@contextmanager
def process(directory: Path) -> Iterator[tuple[int, "subprocess.Popen[str]"]]:
    """A host in a process of its own, and its port."""
    program = [sys.executable, "-m", "tests.hosting.store.program", str(directory)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            yield int(running.stdout.readline()), running
        finally:
            running.kill()


def test_a_host_that_is_killed_in_the_middle_of_uploads_leaves_nothing_of_them(tmp_path: Path) -> None:
    with process(tmp_path) as (port, running):
        connections = [HTTPConnection("127.0.0.1", port, timeout=60) for _ in range(3)]
        connections[0].request("PUT", "/models")
        assert connections[0].getresponse().read() == b""
        connections[0].request("PUT", "/models/whole", b"x")
        assert connections[0].getresponse().read() == b""
        for number, connection in enumerate(connections[1:]):
            connection.putrequest("PUT", f"/models/{'new' if number else 'whole'}")
            connection.putheader("Content-Length", str(8 * MIB))
            connection.endheaders(os.urandom(4 * MIB))
        paths = tmp_path / "objects"
        wait_until(lambda: sum(path.stat().st_size for path in paths.glob("??/*")) > 6 * MIB)
        running.send_signal(signal.SIGKILL)
        running.wait()
        for connection in connections:
            connection.close()
    assert len(list(paths.glob("??/*"))) == 3
    with store_host(tmp_path) as host:
        s3 = host.client()
        assert [each["Key"] for each in s3.list_objects_v2(Bucket="models")["Contents"]] == ["whole"]
        assert s3.get_object(Bucket="models", Key="whole")["Body"].read() == b"x"
        assert len(files(host)) == 1


def test_a_client_that_goes_away_leaves_nothing(host: StoreHost, s3: Any) -> None:
    s3.put_object(Bucket="models", Key="a", Body=b"before")
    head = f"PUT /models/a HTTP/1.1\nHost: x\nContent-Length: {4 * MIB}\n\n"
    with connect(host, head, bytes(MIB)):
        wait_until(lambda: len(files(host)) == 2)
    wait_until(lambda: len(files(host)) == 1)
    assert s3.get_object(Bucket="models", Key="a")["Body"].read() == b"before"


def test_an_object_that_is_larger_than_the_disk_is_refused_before_it_comes(host: StoreHost, s3: Any) -> None:
    head = "PUT /models/a HTTP/1.1\nHost: x\nContent-Length: 1000000000000000\nExpect: 100-continue\n\n"
    with connect(host, head) as connection:
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 507")
    assert b"1,000,000,000,000,000 bytes are needed and " in answer
    assert str(host.store.directory).encode() in answer


def test_a_disk_that_fills_up_leaves_nothing_of_what_was_coming(
    host: StoreHost, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put_object(Bucket="models", Key="a", Body=b"before")
    write, room = os.write, [MIB]

    def full(file: int, data: bytes) -> int:
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = write(file, data[: room[0]])
        room[0] -= count
        return count

    monkeypatch.setattr("halimede.hosting.store.blobs.os.write", full)
    with pytest.raises(ClientError, match=r"the disk of the object store at .* is full") as raised:
        s3.put_object(Bucket="models", Key="a", Body=bytes(2 * MIB))
    assert code_of(raised) == ("InsufficientStorage", 507)
    monkeypatch.undo()
    assert s3.get_object(Bucket="models", Key="a")["Body"].read() == b"before"
    assert len(files(host)) == 1


def test_tables_that_have_no_room_leave_nothing_of_what_was_put(host: StoreHost, s3: Any) -> None:
    metadata = {"x": "y" * 2000}

    async def limit(pages: str) -> None:
        index = host.store._index  # noqa: SLF001 - the disk that is full
        await host.store._tell(lambda: index._connection.execute(f"PRAGMA max_page_count = {pages}"))  # noqa: SLF001 - the disk that is full

    host.loop.run(limit("20"))
    put = 0

    def fill() -> None:
        nonlocal put
        while True:
            s3.put_object(Bucket="models", Key=str(put), Body=b"x", Metadata=metadata)
            put += 1

    with pytest.raises(ClientError) as raised:
        fill()
    assert code_of(raised) == ("InsufficientStorage", 507)
    assert len(files(host)) == put > 0
    host.loop.run(limit("100000"))
    s3.put_object(Bucket="models", Key="after", Body=b"x")
    assert s3.list_objects_v2(Bucket="models")["KeyCount"] == put + 1


def test_only_one_host_at_a_time_has_a_store(host: StoreHost) -> None:
    other = ObjectStore(host.store.directory)
    with pytest.raises(StoreError, match="in use by another process"):
        asyncio.run(other.open())


def test_a_store_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").write_bytes(b"no database, and long enough to tell" * 10)
    with pytest.raises(StoreError, match="cannot open the object store"):
        asyncio.run(ObjectStore(tmp_path).open())
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot open the object store"):
        asyncio.run(ObjectStore(tmp_path / "file").open())


def test_bytes_that_somebody_has_removed(host: StoreHost, s3: Any) -> None:
    s3.put_object(Bucket="models", Key="a", Body=b"x")
    for path in (host.store.directory / "objects").glob("??/*"):
        path.unlink()
    with pytest.raises(ClientError, match="the bytes of 'a' in bucket 'models' are missing") as raised:
        s3.get_object(Bucket="models", Key="a")
    assert code_of(raised) == ("InternalError", 500)


def test_bytes_that_somebody_has_cut_off_are_not_taken_for_all(host: StoreHost, s3: Any) -> None:
    s3.put_object(Bucket="models", Key="a", Body=bytes(3 * MIB))
    for path in (host.store.directory / "objects").glob("??/*"):
        os.truncate(path, 2 * MIB)
    with pytest.raises((ConnectionError, IncompleteRead)):
        ask(host, "GET", "/models/a")


def test_an_object_is_read_to_its_end_while_another_takes_its_place(host: StoreHost, s3: Any) -> None:
    data = os.urandom(16 * MIB)
    s3.put_object(Bucket="models", Key="a", Body=data)
    body = s3.get_object(Bucket="models", Key="a")["Body"]
    first = body.read(10)
    s3.put_object(Bucket="models", Key="a", Body=b"new")
    assert first + body.read() == data
    assert s3.get_object(Bucket="models", Key="a")["Body"].read() == b"new"
    assert len(files(host)) == 1


def test_many_writers_of_one_key_leave_one_of_their_objects(host: StoreHost, s3: Any) -> None:
    bodies = [bytes([number]) * 100_000 for number in range(16)]
    clients = [threading.Thread(target=ask, args=(host, "PUT", "/models/a", body)) for body in bodies]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert s3.get_object(Bucket="models", Key="a")["Body"].read() in bodies
    assert len(files(host)) == 1


def test_a_client_is_not_read_faster_than_the_disk_writes(
    host: StoreHost, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    write = NewBlob.write

    def slow(self: NewBlob, data: Any) -> None:
        go_on.wait(60)
        write(self, data)

    monkeypatch.setattr(NewBlob, "write", slow)
    data = os.urandom(32 * MIB)
    answers: list[Any] = []
    client = threading.Thread(target=lambda: answers.append(ask(host, "PUT", "/models/a", data)))
    client.start()

    def most_waiting() -> int:
        requests = [connection._request for connection in host.connections]  # noqa: SLF001 - how much waits shows nowhere else
        return max((request.waiting for request in requests if request is not None), default=0)

    wait_until(lambda: host.loop.call(most_waiting) > WINDOW_BYTES)
    assert host.loop.call(most_waiting) < 4 * WINDOW_BYTES
    go_on.set()
    client.join()
    assert answers[0][0].status == 200
    assert ask(host, "GET", "/models/a")[1] == data


def test_a_file_is_not_read_faster_than_the_client_reads(host: StoreHost, s3: Any) -> None:
    data = os.urandom(64 * MIB)
    s3.put_object(Bucket="models", Key="a", Body=data)

    def unsent() -> int:
        return max(connection._transport.get_write_buffer_size() for connection in host.connections)  # noqa: SLF001 - how much waits shows nowhere else

    body = s3.get_object(Bucket="models", Key="a")["Body"]
    wait_until(lambda: host.loop.call(unsent) > 0)
    assert host.loop.call(unsent) < 4 * MIB
    assert body.read() == data


def test_a_put_that_is_cancelled_while_it_is_kept_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, begun, cancelled = NewBlob.finish, threading.Event(), threading.Event()

    def slow(self: NewBlob) -> None:
        begun.set()
        assert cancelled.wait(60)
        finish(self)

    monkeypatch.setattr(NewBlob, "finish", slow)

    async def scene() -> None:
        store = ObjectStore(tmp_path)
        await store.open()
        await store.create_bucket("models", "000000000000", "us-east-1")
        blob = await store.new_blob()
        await store.run(blob.write, b"x")
        put = asyncio.create_task(store.put("models", "a", blob, {}))
        await asyncio.to_thread(begun.wait)
        put.cancel()
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await put
        _, file = await store.open_object("models", "a")
        with file:
            assert file.read() == b"x"
        await store.close()

    asyncio.run(scene())


def test_a_part_that_is_replaced_while_an_upload_is_completed(tmp_path: Path) -> None:
    async def scene() -> None:
        store = ObjectStore(tmp_path)
        await store.open()
        await store.create_bucket("models", "000000000000", "us-east-1")
        upload = await store.create_upload("models", "a", {}, "", "")
        parts = []
        for data in (b"one", b"two"):
            blob = await store.new_blob()
            await store.run(blob.write, data)
            parts.append(await store.put_part(upload, 1, blob, None))
        with pytest.raises(ApiError, match="InvalidPart: a part was replaced"):
            await store.complete(upload, parts[:1], None, Conditions())
        stored = await store.complete(upload, parts[1:], None, Conditions())
        assert stored.size == 3
        with pytest.raises(ApiError, match="NoSuchUpload"):
            await store.complete(upload, parts[1:], None, Conditions())
        assert len(list((tmp_path / "objects").glob("??/*"))) == 1
        await store.close()

    asyncio.run(scene())
