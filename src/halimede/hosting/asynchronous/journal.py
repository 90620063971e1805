"""The file of the queues, an SQLite database: what was accepted and not answered yet.

Changes that come while others are being written wait, and are written together: one `fsync` for all of them. Whoever
makes a change is told when it is on disk.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from halimede.hosting.asynchronous.requests import AsyncRequest, Notice, endpoint_of, key_of
from halimede.hosting.control.database import DatabaseError
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import EndpointId

Result = TypeVar("Result")

VERSION = 1
"""Of the tables (`PRAGMA user_version`)."""

_SCHEMA = """
CREATE TABLE requests (
    seq INTEGER PRIMARY KEY, endpoint TEXT NOT NULL, expires REAL NOT NULL, document BLOB NOT NULL, body BLOB NOT NULL
);
CREATE INDEX by_endpoint ON requests (endpoint, seq);
CREATE INDEX by_expiry ON requests (expires);
CREATE TABLE notices (id TEXT PRIMARY KEY, document BLOB NOT NULL);
"""

_ADD = "INSERT INTO requests VALUES (?, ?, ?, ?, ?)"
_REMOVE = "DELETE FROM requests WHERE seq = ?"
_DROP = "DELETE FROM requests WHERE endpoint = ?"
_NOTE = "INSERT INTO notices VALUES (?, ?)"
_FORGET = "DELETE FROM notices WHERE id = ?"

Values = tuple[object, ...]
OnWritten = Callable[[ApiError | None], None]
"""Called on the event loop when a change is on disk, or with why it is not."""


class Journal:
    """The file. Lives on the event loop, written on a thread; `open` before, `close` after."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "halimede-async-queue")
        self._connection: sqlite3.Connection | None = None
        self._changes: list[tuple[str, Values]] = []
        self._waiting: list[OnWritten] = []
        self._writing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the file, or make it.

        Raises:
            DatabaseError: it is no database, or cannot be written.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._open)

    def _open(self) -> None:
        try:
            connection = sqlite3.connect(self._path, isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if version > VERSION:
                    msg = f"its version is {version}, and this version of Halimede knows {VERSION}"
                    raise sqlite3.DatabaseError(msg)
                if version < VERSION:
                    connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
            except sqlite3.Error:
                connection.close()
                raise
        except sqlite3.Error as error:
            msg = f"cannot use {self._path}, which holds the queues of asynchronous endpoints: {error}"
            raise DatabaseError(msg) from None
        self._connection = connection

    async def close(self) -> None:
        """Close the file, when all is written."""
        while self._writing is not None:
            await asyncio.wait([self._writing])
        if self._connection is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
            self._connection = None
        self._thread.shutdown()

    # changes

    def add(self, request: AsyncRequest, on_written: OnWritten) -> None:
        """Keep a request."""
        self._change(on_written, (_ADD, request.row()))

    def remove(self, request: AsyncRequest, notice: Notice | None, on_written: OnWritten) -> None:
        """Forget a request that is answered, and keep the message that tells of it, both or neither."""
        forgotten: tuple[str, Values] = (_REMOVE, (request.seq,))
        if notice is None:
            self._change(on_written, forgotten)
        else:
            self._change(on_written, forgotten, (_NOTE, notice.row()))

    def drop(self, endpoint: EndpointId, on_written: OnWritten) -> None:
        """Forget all requests of an endpoint."""
        self._change(on_written, (_DROP, (key_of(endpoint),)))

    def forget(self, notice: Notice, on_written: OnWritten) -> None:
        """Forget a message that its topic has got."""
        self._change(on_written, (_FORGET, (notice.id,)))

    def _change(self, on_written: OnWritten, *changes: tuple[str, Values]) -> None:
        self._changes += changes
        self._waiting.append(on_written)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        """Write what there is, and what has come meanwhile."""
        while self._changes:
            changes, self._changes = self._changes, []
            waiting, self._waiting = self._waiting, []
            refusal: ApiError | None = None
            try:
                await self._run(lambda connection: _commit(connection, changes))  # noqa: B023 - awaited here
            except ApiError as error:
                refusal = error
            for on_written in waiting:
                on_written(refusal)
        self._writing = None

    async def _run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        assert self._connection is not None
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._connection)
        except sqlite3.Error as error:
            msg = f"the queue in {self._path} cannot be read or written: {error}"
            raise ApiError("InternalFailure", msg, 500) from None

    # what is there

    async def counts(self) -> Mapping[EndpointId, int]:
        """Endpoint → how many requests of it are kept."""
        rows = await self._rows("SELECT endpoint, COUNT(*) FROM requests GROUP BY endpoint")
        return {endpoint_of(str(key)): int(str(count)) for key, count in rows}

    async def last(self) -> int:
        """The greatest place of a request that is kept; 0 if there is none."""
        ((found,),) = await self._rows("SELECT MAX(seq) FROM requests")
        return int(str(found or 0))

    async def read(self, endpoint: EndpointId, after: int, limit: int) -> list[AsyncRequest]:
        """The requests of an endpoint whose places are greater than `after`, at most so many, in order."""
        statement = "SELECT * FROM requests WHERE endpoint = ? AND seq > ? ORDER BY seq LIMIT ?"
        rows = await self._rows(statement, key_of(endpoint), after, limit)
        return [AsyncRequest.from_row(*row) for row in rows]  # type: ignore[arg-type]  # as they were written

    async def expired(self, now: float, limit: int) -> list[AsyncRequest]:
        """The requests that have expired, at most so many, those first that did first."""
        statement = "SELECT * FROM requests WHERE expires <= ? ORDER BY expires LIMIT ?"
        rows = await self._rows(statement, now, limit)
        return [AsyncRequest.from_row(*row) for row in rows]  # type: ignore[arg-type]  # as they were written

    async def notices(self) -> list[Notice]:
        """The messages that are still to be given to their topics, in order."""
        rows = await self._rows("SELECT * FROM notices ORDER BY rowid")
        return [Notice.from_row(*row) for row in rows]  # type: ignore[arg-type]  # as they were written

    async def _rows(self, statement: str, *values: object) -> Sequence[Values]:
        return await self._run(lambda connection: connection.execute(statement, values).fetchall())


def _commit(connection: sqlite3.Connection, changes: Sequence[tuple[str, Values]]) -> None:
    """Make all of the changes or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement, same in groupby(changes, key=lambda change: change[0]):
            connection.executemany(statement, [values for _, values in same])
        connection.execute("COMMIT")
    except sqlite3.Error:
        with suppress(sqlite3.Error):  # some errors have done so already
            connection.execute("ROLLBACK")
        raise
