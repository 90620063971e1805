"""A file whose changes are written together: what goes wrong with one change is nobody else's business."""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from halimede.hosting import grouped_file
from halimede.hosting.errors import ApiError
from halimede.hosting.grouped_file import GroupedFile
from tests.hosting.control.fakes import on_loop

SCHEMA = "CREATE TABLE numbers (number INTEGER PRIMARY KEY);"
INSERT = "INSERT INTO numbers VALUES (?)"


async def opened(directory: Path) -> GroupedFile:
    file = GroupedFile(directory / "numbers.db", SCHEMA, 1, "numbers")
    await file.open()
    return file


async def numbers(file: GroupedFile) -> Sequence[object]:
    return [number for (number,) in await file.rows("SELECT number FROM numbers ORDER BY number")]


def test_changes_are_written_after_one_who_waited_has_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @on_loop
    async def run() -> None:
        file = await opened(tmp_path)

        def fail(_: ApiError | None) -> None:
            raise ValueError("unforeseen")

        file.change(fail, (INSERT, (1,)))
        await file.changed((INSERT, (2,)))  # in the same group
        await file.changed((INSERT, (3,)))
        assert await numbers(file) == [1, 2, 3]
        await file.close()

    run()
    assert "unforeseen" in caplog.text


@on_loop
async def test_no_changes_wait_for_those_before_and_not_for_others(tmp_path: Path) -> None:
    file = await opened(tmp_path)
    await file.changed()
    file.change(lambda _: None, (INSERT, (1,)))
    await file.changed()
    assert await numbers(file) == [1]
    await file.close()


@pytest.mark.parametrize("value", [1 << 64, "twice", object()], ids=["overflow", "conflict", "type"])
def test_changes_are_written_after_others_could_not_be(tmp_path: Path, value: object) -> None:
    @on_loop
    async def run() -> None:
        file = await opened(tmp_path)
        changes = [(INSERT, (5,))] * 2 if value == "twice" else [(INSERT, (value,))]
        with pytest.raises(ApiError, match=r"numbers\.db"):
            await file.changed((INSERT, (4,)), *changes)
        await file.changed((INSERT, (6,)))
        assert await numbers(file) == [6]
        await file.close()

    run()


@pytest.mark.parametrize("value", [1 << 64, "twice", object()], ids=["overflow", "conflict", "type"])
def test_changes_that_came_with_one_that_cannot_be_made_are_made(tmp_path: Path, value: object) -> None:
    @on_loop
    async def run() -> None:
        file = await opened(tmp_path)
        wrong = [(INSERT, (1,))] if value == "twice" else [(INSERT, (value,))]
        outcomes = await asyncio.gather(
            file.changed((INSERT, (1,))),
            file.changed((INSERT, (5,)), *wrong),
            file.changed(),
            file.changed((INSERT, (2,))),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [type(None), ApiError, type(None), type(None)]
        assert await numbers(file) == [1, 2]
        await file.close()

    run()


def test_a_disk_that_cannot_be_written_is_tried_once_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def commit(_: sqlite3.Connection, changes: Sequence[object]) -> None:
        tried.append(len(changes))
        raise sqlite3.OperationalError("database or disk is full")

    @on_loop
    async def run() -> None:
        file = await opened(tmp_path)
        monkeypatch.setattr(grouped_file, "_commit", commit)
        outcomes = await asyncio.gather(
            *(file.changed((INSERT, (number,))) for number in range(3)), return_exceptions=True
        )
        assert all("disk is full" in str(outcome) for outcome in outcomes)
        monkeypatch.undo()
        await file.close()

    run()
    assert tried == [3]
