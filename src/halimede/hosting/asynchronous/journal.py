"""The file of the queues: what was accepted and has not been answered."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from halimede.hosting.asynchronous.requests import AsyncRequest, Notice, endpoint_of, key_of
from halimede.hosting.grouped_file import GroupedFile, OnWritten
from halimede.hosting.identity import EndpointId

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


class Journal:
    """The file. Lives on the event loop; `open` before, `close` after."""

    def __init__(self, path: Path) -> None:
        self._file = GroupedFile(path, _SCHEMA, VERSION, "the queues of asynchronous endpoints")

    async def open(self) -> None:
        """Open the file, or make it.

        Raises:
            DatabaseError: it is no database, or cannot be written.
        """
        await self._file.open()

    async def close(self) -> None:
        """Close the file, when all is written."""
        await self._file.close()

    # changes

    def add(self, request: AsyncRequest, on_written: OnWritten) -> None:
        """Keep a request."""
        self._file.change(on_written, (_ADD, request.row()))

    async def remove(self, requests: Sequence[AsyncRequest], notices: Sequence[Notice]) -> None:
        """Forget requests that are answered, and keep the messages that tell of them, all or nothing.

        Raises:
            ApiError: that cannot be written.
        """
        removed = [(_REMOVE, (request.seq,)) for request in requests]
        await self._file.changed(*removed, *((_NOTE, notice.row()) for notice in notices))

    def drop(self, endpoint: EndpointId, on_written: OnWritten) -> None:
        """Forget all requests of an endpoint."""
        self._file.change(on_written, (_DROP, (key_of(endpoint),)))

    def forget(self, notice: Notice, on_written: OnWritten) -> None:
        """Forget a message that its topic has got."""
        self._file.change(on_written, (_FORGET, (notice.id,)))

    # what is there

    async def counts(self) -> Mapping[EndpointId, int]:
        """Endpoint → how many requests of it are kept."""
        rows = await self._file.rows("SELECT endpoint, COUNT(*) FROM requests GROUP BY endpoint")
        return {endpoint_of(str(key)): int(str(count)) for key, count in rows}

    async def last(self) -> int:
        """The greatest place of a request that is kept; 0 if there is none."""
        ((found,),) = await self._file.rows("SELECT MAX(seq) FROM requests")
        return int(str(found or 0))

    async def read(self, endpoint: EndpointId, after: int, limit: int) -> list[AsyncRequest]:
        """The requests of an endpoint whose places are greater than `after`, at most so many, in order."""
        statement = "SELECT * FROM requests WHERE endpoint = ? AND seq > ? ORDER BY seq LIMIT ?"
        rows = await self._file.rows(statement, key_of(endpoint), after, limit)
        return [AsyncRequest.from_row(*row) for row in rows]  # type: ignore[arg-type]  # as they were written

    async def expired(self, now: float, limit: int) -> list[AsyncRequest]:
        """The requests that have expired, at most so many, those first that did first."""
        statement = "SELECT * FROM requests WHERE expires <= ? ORDER BY expires LIMIT ?"
        rows = await self._file.rows(statement, now, limit)
        return [AsyncRequest.from_row(*row) for row in rows]  # type: ignore[arg-type]  # as they were written

    async def notices(self) -> list[Notice]:
        """The messages that are still to be given to their topics, in order."""
        rows = await self._file.rows("SELECT * FROM notices ORDER BY rowid")
        return [Notice.from_row(*row) for row in rows]  # type: ignore[arg-type]  # as they were written
