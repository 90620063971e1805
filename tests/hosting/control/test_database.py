"""What is kept over restarts."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from halimede.hosting.control.database import Database, DatabaseError, DocumentKey
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Scope
from tests.hosting.control.fakes import on_loop

SCOPE = Scope("123456789012", "eu-west-1")
A, B = (DocumentKey("model", *SCOPE, name) for name in "ab")


@on_loop
async def test_documents_and_tags_are_there_when_it_is_opened_again(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    await database.open()
    await database.add(A, {"x": 1}, "arn:a", {"k": "v"})
    await database.put(B, {"x": 2})
    await database.put(B, {"x": 3})
    await database.put(DocumentKey("endpoint", *SCOPE, "b"), {"x": 4})
    await database.close()
    database = Database(tmp_path / "state.db")
    await database.open()
    assert await database.documents("model") == {A: {"x": 1}, B: {"x": 3}}
    assert await database.tags("arn:a") == {"k": "v"}
    await database.remove(A, "arn:a")
    assert await database.documents("model") == {B: {"x": 3}}
    assert await database.tags("arn:a") == {}
    await database.close()


@on_loop
async def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"this is no database, " * 100)
    database = Database(tmp_path / "state.db")
    with pytest.raises(DatabaseError, match="file is not a database"):
        await database.open()
    await database.close()
    missing = Database(tmp_path / "missing" / "state.db")
    with pytest.raises(DatabaseError, match="unable to open database file"):
        await missing.open()
    await missing.close()


@on_loop
async def test_what_fails_halfway_leaves_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    await database.open()
    connection = database._connection  # noqa: SLF001 - nothing else fails halfway
    assert connection is not None
    trigger = "CREATE TRIGGER full BEFORE INSERT ON tags BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
    database._thread.submit(connection.execute, trigger).result()  # noqa: SLF001 - the only thread that may
    with pytest.raises(ApiError, match="the disk is full") as raised:
        await database.add(A, {}, "arn:a", {"k": "v"})
    assert raised.value.code == "InternalFailure"
    assert await database.documents("model") == {}
    await database.put(B, {})
    assert await database.documents("model") == {B: {}}
    await database.close()


@on_loop
async def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2")
    database = Database(path)
    with pytest.raises(DatabaseError, match="its version is 2, and this version of Halimede knows 1"):
        await database.open()
    await database.close()


@on_loop
async def test_what_was_begun_is_written_though_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    await database.open()
    with closing(sqlite3.connect(tmp_path / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        first, second = (asyncio.create_task(database.put(key, {"x": 1})) for key in (A, B))
        await asyncio.wait([first, second], timeout=0)
        second.cancel()
        await asyncio.wait([second])
        other.execute("ROLLBACK")
    await first
    await database.close()
    database = Database(tmp_path / "state.db")
    await database.open()
    assert await database.documents("model") == {A: {"x": 1}, B: {"x": 1}}
    await database.close()
