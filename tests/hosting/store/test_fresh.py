"""Small objects that come many at a time: each is there when it is said to be, also if the machine stops."""

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.store.fresh import LARGEST
from halimede.hosting.store.object_store import ObjectStore
from tests.hosting.control.fakes import on_loop

HEADERS = {"content-type": "text/plain"}


async def opened(directory: Path) -> ObjectStore:
    store = ObjectStore(directory)
    await store.open()
    return store


async def read(store: ObjectStore, key: str) -> bytes:
    _, file = await store.open_object("b", key)
    with file:
        return file.read()


def files(directory: Path) -> list[Path]:
    return [path for path in (directory / "objects").glob("??/*") if path.is_file()]


def kept(directory: Path) -> int:
    """Of how many objects the table has the bytes."""
    with sqlite3.connect(directory / "store.sqlite") as connection:
        (count,) = connection.execute("SELECT COUNT(*) FROM fresh").fetchone()
    connection.close()
    return int(count)


def test_many_objects_at_a_time(tmp_path: Path) -> None:
    @on_loop
    async def run() -> None:
        store = await opened(tmp_path)
        await store.create_bucket("b", "1" * 12, "us-east-1")
        data = {f"k{number}": b"%d" % number * 100 for number in range(600)}
        await asyncio.gather(*(store.put_bytes("b", key, each, HEADERS) for key, each in data.items()))
        for key, each in data.items():
            assert await read(store, key) == each
        assert len({(await store.object("b", key)).etag for key in data}) == 600
        await store.close()

    run()
    assert kept(tmp_path) == 0


def test_object_that_is_replaced_leaves_no_file(tmp_path: Path) -> None:
    @on_loop
    async def run() -> None:
        store = await opened(tmp_path)
        await store.create_bucket("b", "1" * 12, "us-east-1")
        await asyncio.gather(*(store.put_bytes("b", "k", b"%d" % number, HEADERS) for number in range(50)))
        await store.put_bytes("b", "large", bytes(LARGEST + 1), HEADERS)
        assert await read(store, "k") == b"49"
        await store.close()

    run()
    assert len(files(tmp_path)) == 2


def test_one_that_cannot_be_put_harms_no_other(tmp_path: Path) -> None:
    @on_loop
    async def run() -> None:
        store = await opened(tmp_path)
        await store.create_bucket("b", "1" * 12, "us-east-1")
        outcomes = await asyncio.gather(
            *(
                store.put_bytes("b" if number % 2 else "gone", f"k{number}", b"x", HEADERS)
                for number in range(20)
            ),
            return_exceptions=True,
        )
        codes = [each.code if isinstance(each, ApiError) else "" for each in outcomes]
        assert codes == ["NoSuchBucket", ""] * 10
        await store.close()

    run()
    assert len(files(tmp_path)) == 10


def test_objects_are_there_after_the_machine_stopped(tmp_path: Path) -> None:
    @on_loop
    async def run() -> None:
        store = await opened(tmp_path / "before")
        await store.create_bucket("b", "1" * 12, "us-east-1")
        await asyncio.gather(*(store.put_bytes("b", f"k{n}", b"%d" % n, HEADERS) for n in range(30)))
        await store.put_bytes("b", "k0", b"another", HEADERS)
        await store.delete("b", ["k1"])
        # what is on disk then: the tables, and of the files what the system had written by itself
        shutil.copytree(tmp_path / "before", tmp_path / "after")
        there = files(tmp_path / "after")
        for number, path in enumerate(there):
            if number % 3 == 0:
                path.unlink()
            elif number % 3 == 1:
                path.write_bytes(b"")
        await store.close()
        store = await opened(tmp_path / "after")
        assert await read(store, "k0") == b"another"
        for number in range(2, 30):
            assert await read(store, f"k{number}") == b"%d" % number
        with pytest.raises(ApiError, match="NoSuchKey"):
            await store.object("b", "k1")
        await store.close()

    run()
    assert kept(tmp_path / "after") == 0
    assert len(files(tmp_path / "after")) == 29


def test_files_are_brought_to_disk_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halimede.hosting.store.fresh._KEPT", 10)

    @on_loop
    async def run() -> None:
        store = await opened(tmp_path)
        await store.create_bucket("b", "1" * 12, "us-east-1")
        for number in range(25):
            await store.put_bytes("b", f"k{number}", b"x", HEADERS)
        assert kept(tmp_path) <= 10
        await store.close()

    run()


def test_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halimede.hosting.store.blobs.Blobs.free_bytes", lambda _: 1000)

    @on_loop
    async def run() -> None:
        store = await opened(tmp_path)
        await store.create_bucket("b", "1" * 12, "us-east-1")
        with pytest.raises(ApiError) as raised:
            await store.put_bytes("b", "k", b"x", HEADERS)
        assert raised.value.status == 507
        await store.close()

    run()
    assert files(tmp_path) == []
