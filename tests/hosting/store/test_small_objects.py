"""Small objects: they have no files, and those that come together are one write to the disk."""

import asyncio
import shutil
import sqlite3
from pathlib import Path

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.store.object_store import SMALL_BYTES, ObjectStore
from halimede.hosting.store.records import SmallPut
from tests.hosting.control.fakes import on_loop

HEADERS = {"content-type": "text/plain"}


async def opened(directory: Path) -> ObjectStore:
    store = ObjectStore(directory)
    await store.open()
    await store.create_bucket("b", "1" * 12, "us-east-1")
    return store


async def read(store: ObjectStore, key: str) -> bytes:
    _, file = await store.open_object("b", key)
    with file:
        return file.read()


def put(key: str, data: bytes, bucket: str = "b") -> SmallPut:
    return SmallPut(bucket, key, data, HEADERS)


def files(directory: Path) -> list[Path]:
    return [path for path in (directory / "objects").glob("??/*") if path.is_file()]


def rows(directory: Path) -> int:
    """Of how many objects the tables have the bytes."""
    with sqlite3.connect(directory / "store.sqlite") as connection:
        (number,) = connection.execute("SELECT COUNT(*) FROM small").fetchone()
    connection.close()
    return int(number)


def test_many_objects_at_a_time(tmp_path: Path) -> None:
    @on_loop
    async def run() -> None:
        store = await opened(tmp_path)
        data = {f"k{number}": b"%d" % number * 100 for number in range(600)}
        stored = await store.put_small([put(key, each) for key, each in data.items()])
        for (key, each), outcome in zip(data.items(), stored, strict=True):
            assert await read(store, key) == each
            assert not isinstance(outcome, ApiError)
            assert (await store.object("b", key)).etag == outcome.etag
        await store.close()

    run()
    assert (rows(tmp_path), files(tmp_path)) == (600, [])


def test_largest_one_is_a_row_and_a_larger_one_a_file(tmp_path: Path) -> None:
    @on_loop
    async def run() -> None:
        store = await opened(tmp_path)
        for size in (SMALL_BYTES, SMALL_BYTES + 1):
            await store.put_bytes("b", f"k{size}", bytes(size), HEADERS)
            assert await read(store, f"k{size}") == bytes(size)
        await store.close()

    run()
    assert (rows(tmp_path), len(files(tmp_path))) == (1, 1)


def test_object_that_is_replaced_or_removed_leaves_nothing(tmp_path: Path) -> None:
    @on_loop
    async def run() -> None:
        store = await opened(tmp_path)
        await store.put_small([put("k", b"%d" % number) for number in range(50)])
        assert await read(store, "k") == b"49"
        await store.put_bytes("b", "k", bytes(SMALL_BYTES + 1), HEADERS)
        await store.put_bytes("b", "k", b"last", HEADERS)
        await store.put_bytes("b", "another", b"x", HEADERS)
        assert await read(store, "k") == b"last"
        await store.delete("b", ["k", "another"])
        await store.close()

    run()
    assert (rows(tmp_path), files(tmp_path)) == (0, [])


def test_one_that_cannot_be_put_harms_no_other(tmp_path: Path) -> None:
    @on_loop
    async def run() -> None:
        store = await opened(tmp_path)
        puts = [put(f"k{number}", b"x", "b" if number % 2 else "gone") for number in range(20)]
        outcomes = await store.put_small(puts)
        codes = [each.code if isinstance(each, ApiError) else "" for each in outcomes]
        assert codes == ["NoSuchBucket", ""] * 10
        await store.close()

    run()
    assert rows(tmp_path) == 10


def test_buckets_of_other_accounts_are_refused_one_by_one(tmp_path: Path) -> None:
    @on_loop
    async def run() -> None:
        store = await opened(tmp_path)
        await store.create_bucket("theirs", "2" * 12, "us-east-1")
        puts = [put("k", b"1"), put("k", b"2", "theirs")]
        stored, refused = await store.put_small(puts, "1" * 12)
        assert not isinstance(stored, ApiError)
        assert isinstance(refused, ApiError)
        assert refused.status == 403
        assert await read(store, "k") == b"1"
        with pytest.raises(ApiError, match="k"):
            await store.object("theirs", "k")
        assert rows(tmp_path) == 1
        await store.close()

    run()


def test_copy_of_a_small_object_outlives_it(tmp_path: Path) -> None:
    @on_loop
    async def run() -> None:
        store = await opened(tmp_path)
        await store.put_bytes("b", "k", b"bytes", HEADERS)
        await store.copy(("b", "k"), ("b", "copy"), None, lambda _: None)
        await store.delete("b", ["k"])
        assert await read(store, "copy") == b"bytes"
        await store.close()

    run()
    assert rows(tmp_path) == 0


def test_objects_are_there_after_the_machine_stopped(tmp_path: Path) -> None:
    @on_loop
    async def run() -> None:
        store = await opened(tmp_path / "before")
        await store.put_small([put(f"k{number}", b"%d" % number) for number in range(30)])
        shutil.copytree(tmp_path / "before", tmp_path / "after")
        await store.close()
        store = await opened(tmp_path / "after")
        for number in range(30):
            assert await read(store, f"k{number}") == b"%d" % number
        await store.close()

    run()


def test_reader_never_gets_the_bytes_of_another_object(tmp_path: Path) -> None:
    @on_loop
    async def run() -> None:
        store = await opened(tmp_path)
        await store.put_bytes("b", "k", b"k", HEADERS)

        async def replace() -> None:
            for number in range(100):
                await store.put_bytes("b", "k", b"k", HEADERS)
                await store.put_bytes("b", f"other{number}", b"other", HEADERS)
                await store.delete("b", [f"other{number}"])

        replacing = asyncio.ensure_future(replace())
        while not replacing.done():
            assert await read(store, "k") == b"k"
        await replacing
        await store.close()

    run()


def test_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halimede.hosting.store.blobs.Blobs.free_bytes", lambda _: 1000)

    @on_loop
    async def run() -> None:
        store = await opened(tmp_path)
        with pytest.raises(ApiError) as raised:
            await store.put_bytes("b", "k", b"x", HEADERS)
        assert raised.value.status == 507
        await store.close()

    run()
    assert (rows(tmp_path), files(tmp_path)) == (0, [])
