"""What is kept over restarts."""

from pathlib import Path

import pytest

from halimede.hosting.control.database import Database, DatabaseError
from halimede.hosting.errors import ApiError
from tests.hosting.control.fakes import on_loop


@on_loop
async def test_documents_and_tags_are_there_when_it_is_opened_again(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    await database.open()
    await database.add("model", "a", {"x": 1}, "arn:a", {"k": "v"})
    await database.put("model", "b", {"x": 2})
    await database.put("model", "b", {"x": 3})
    await database.put("endpoint", "b", {"x": 4})
    await database.close()
    database = Database(tmp_path / "state.db")
    await database.open()
    assert await database.documents("model") == {"a": {"x": 1}, "b": {"x": 3}}
    assert await database.tags("arn:a") == {"k": "v"}
    await database.remove("model", "a", "arn:a")
    assert await database.documents("model") == {"b": {"x": 3}}
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
    connection = database._connection
    assert connection is not None
    trigger = "CREATE TRIGGER full BEFORE INSERT ON tags BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
    database._thread.submit(connection.execute, trigger).result()
    with pytest.raises(ApiError, match="the disk is full") as raised:
        await database.add("model", "a", {}, "arn:a", {"k": "v"})
    assert raised.value.code == "InternalFailure"
    assert await database.documents("model") == {}
    await database.put("model", "b", {})
    assert await database.documents("model") == {"b": {}}
    await database.close()
