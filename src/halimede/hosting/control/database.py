"""What is kept over restarts: documents by kind, account, region and name, and tags, in SQLite.

The file is written on a thread of its own; an operation answers when what it changed is on disk. What one that is
cancelled has begun to write is written all the same.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import orjson

from halimede.hosting.errors import ApiError
from halimede.hosting.identity import Scope

Result = TypeVar("Result")

VERSION = 1
"""Of the tables (`PRAGMA user_version`). 0 has no accounts and regions; `hosting.migration` makes it 1."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
    kind TEXT, account TEXT, region TEXT, name TEXT, document BLOB NOT NULL,
    PRIMARY KEY (kind, account, region, name)
);
CREATE TABLE IF NOT EXISTS tags (arn TEXT, key TEXT, value TEXT NOT NULL, PRIMARY KEY (arn, key));
"""

Document = dict[str, Any]


class DocumentKey(NamedTuple):
    """What a document is kept under.

    Attributes:
        kind: such as ``endpoint-config``.
        account, region: where the name holds.
        name: the resource's.
    """

    kind: str
    account: str
    region: str
    name: str

    @property
    def scope(self) -> Scope:
        """Where the name holds."""
        return Scope(self.account, self.region)


_THIS = "kind = ? AND account = ? AND region = ? AND name = ?"
_PUT = "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)"
_PUT_TAG = "INSERT OR REPLACE INTO tags VALUES (?, ?, ?)"

Statement = tuple[str, Sequence[str | bytes]]


class DatabaseError(Exception):
    """The file cannot be used; the text says why."""


def checked_version(connection: sqlite3.Connection) -> int:
    """The version of a file's tables.

    Raises:
        sqlite3.DatabaseError: it is a later one than this.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        msg = f"its version is {version}, and this version of Halimede knows {VERSION}"
        raise sqlite3.DatabaseError(msg)
    return version


class Database:
    """The file. `open` before, `close` after."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "halimede-database")
        self._connection: sqlite3.Connection | None = None

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
                if checked_version(connection) < VERSION:
                    connection.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
            except sqlite3.Error:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise DatabaseError(f"cannot use {self._path}, which holds the host's state: {error}") from None
        self._connection = connection

    async def _run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        assert self._connection is not None
        done = asyncio.get_running_loop().run_in_executor(self._thread, work, self._connection)
        try:
            return await asyncio.shield(done)
        except sqlite3.Error as error:
            msg = f"the host's state in {self._path} cannot be read or written: {error}"
            raise ApiError("InternalFailure", msg, 500) from None

    async def _write(self, statements: Iterable[Statement]) -> None:
        """Run all of them or none."""
        every = list(statements)

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN")
            try:
                for text, values in every:
                    connection.execute(text, values)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

        await self._run(work)

    async def documents(self, kind: str, scope: Scope | None = None) -> Mapping[DocumentKey, Document]:
        """All documents of a kind, of one account and region or of all."""
        where, values = "kind = ?", [kind]
        if scope is not None:
            where += " AND account = ? AND region = ?"
            values += scope

        def read(connection: sqlite3.Connection) -> dict[DocumentKey, Document]:
            rows = connection.execute(f"SELECT * FROM documents WHERE {where}", values)  # noqa: S608 - ours alone
            return {DocumentKey(*key): orjson.loads(document) for *key, document in rows}

        return await self._run(read)

    async def document(self, key: DocumentKey) -> Document | None:
        """A document; None if there is none."""
        statement = f"SELECT document FROM documents WHERE {_THIS}"  # noqa: S608 - ours alone
        row = await self._run(lambda connection: connection.execute(statement, key).fetchone())
        return None if row is None else orjson.loads(row[0])

    async def is_taken(self, key: DocumentKey) -> bool:
        """Whether there is a document whose name is the same but for the case of its letters."""
        statement = f"SELECT 1 FROM documents WHERE {_THIS} COLLATE NOCASE"  # noqa: S608 - ours alone
        return await self._run(lambda connection: connection.execute(statement, key).fetchone()) is not None

    async def add(
        self, key: DocumentKey, document: Mapping[str, Any], arn: str, tags: Mapping[str, str]
    ) -> None:
        """Keep a new document, and the tags of what it describes."""
        put: Statement = (_PUT, (*key, orjson.dumps(document)))
        await self._write([put, *((_PUT_TAG, (arn, *tag)) for tag in tags.items())])

    async def put(self, key: DocumentKey, document: Mapping[str, Any]) -> None:
        """Keep a document, in place of the one of that name."""
        await self._write([(_PUT, (*key, orjson.dumps(document)))])

    async def remove(self, key: DocumentKey, arn: str, *parts: DocumentKey) -> None:
        """Forget a document, the tags of what it describes, and the documents of its parts: all or none."""
        await self._write(
            [
                *((f"DELETE FROM documents WHERE {_THIS}", each) for each in (key, *parts)),  # noqa: S608 - ours alone
                ("DELETE FROM tags WHERE arn = ?", (arn,)),
            ]
        )

    async def tags(self, arn: str) -> dict[str, str]:
        """The tags of a resource."""
        statement = "SELECT key, value FROM tags WHERE arn = ? ORDER BY key"
        return await self._run(lambda connection: dict(connection.execute(statement, (arn,)).fetchall()))

    async def put_tags(self, arn: str, tags: Mapping[str, str]) -> None:
        """Add tags to a resource."""
        await self._write((_PUT_TAG, (arn, key, value)) for key, value in tags.items())

    async def remove_tags(self, arn: str, keys: Iterable[str]) -> None:
        """Take tags from a resource."""
        await self._write(("DELETE FROM tags WHERE arn = ? AND key = ?", (arn, key)) for key in keys)

    async def close(self) -> None:
        """Close the file, when all is written."""
        if self._connection is not None:
            await self._run(sqlite3.Connection.close)
            self._connection = None
        self._thread.shutdown()
