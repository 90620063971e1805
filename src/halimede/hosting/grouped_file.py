"""An SQLite file whose changes are written together: one `fsync` for all that come while others are being written.

Whoever makes a change is told when it is on disk. A change that cannot be made, unlike a disk that cannot be written,
concerns nobody else: then those that came together are made one after another.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from halimede.core import tasks
from halimede.hosting.control.database import DatabaseError
from halimede.hosting.errors import ApiError

logger = logging.getLogger("halimede")

Result = TypeVar("Result")

Values = tuple[object, ...]
Change = tuple[str, Values]
"""A statement and its values."""

OnWritten = Callable[[ApiError | None], None]
"""Called on the event loop when a change is on disk, or with why it is not."""


class GroupedFile:
    """The file. Lives on the event loop, written on a thread; `open` before, `close` after."""

    def __init__(self, path: Path, schema: str, version: int, words: str) -> None:
        """A file.

        Args:
            path: where it is.
            schema: makes the tables of an empty file.
            version: of the tables (`PRAGMA user_version`).
            words: what it holds, for the texts of errors.
        """
        self._path = path
        self._schema = schema
        self._version = version
        self._words = words
        self._thread = ThreadPoolExecutor(1, f"halimede-{path.stem}")
        self._connection: sqlite3.Connection | None = None
        self._waiting: list[tuple[OnWritten, Sequence[Change]]] = []
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
                (found,) = connection.execute("PRAGMA user_version").fetchone()
                if found > self._version:
                    msg = f"its version is {found}, and this version of Halimede knows {self._version}"
                    raise sqlite3.DatabaseError(msg)
                if found < self._version:
                    connection.executescript(
                        f"BEGIN; {self._schema} PRAGMA user_version = {self._version}; COMMIT;"
                    )
            except sqlite3.Error:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise DatabaseError(f"cannot use {self._path}, which holds {self._words}: {error}") from None
        self._connection = connection

    async def close(self) -> None:
        """Close the file, when all is written."""
        while self._writing is not None:
            await asyncio.wait([self._writing])
        if self._connection is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
            self._connection = None
        self._thread.shutdown()

    def change(self, on_written: OnWritten, *changes: Change) -> None:
        """Make changes, all or none of them, after those that were asked for before."""
        self._waiting.append((on_written, changes))
        if self._writing is None:
            self._writing = tasks.start(f"writing {self._path}", self._write())

    async def changed(self, *changes: Change) -> None:
        """Make changes, all or none of them, and return when they are on disk.

        Raises:
            ApiError: they cannot be written.
        """
        written: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()

        def on_written(error: ApiError | None) -> None:
            if not written.done():
                written.set_result(error)

        self.change(on_written, *changes)
        error = await written
        if error is not None:
            raise error

    async def _write(self) -> None:
        """Write what there is, and what has come meanwhile."""
        while self._waiting:  # some may have no changes, and wait for those before
            waiting, self._waiting = self._waiting, []
            refusals = await self._refusals([changes for _, changes in waiting])
            for (on_written, _), refusal in zip(waiting, refusals, strict=True):
                try:
                    on_written(refusal)
                except Exception:  # of one who waits; the others are to hear of it too
                    logger.exception("%s is written, but what was to be done then failed", self._path)
        self._writing = None

    async def _refusals(self, groups: Sequence[Sequence[Change]]) -> Sequence[ApiError | None]:
        """Write the changes of all; why those of each cannot be made, None if they are."""
        refusal = await self._refusal([change for changes in groups for change in changes])
        if refusal is None or len(groups) == 1 or isinstance(refusal.__cause__, sqlite3.OperationalError):
            return [refusal] * len(groups)
        return [await self._refusal(changes) for changes in groups]

    async def _refusal(self, changes: Sequence[Change]) -> ApiError | None:
        """Write changes, all or none of them: why they cannot be made, None if they are."""
        try:
            await self._run(lambda connection: _commit(connection, changes))
        except ApiError as error:
            return error
        except Exception as error:  # of these changes, and those that follow are to be written
            logger.exception("%s cannot be written", self._path)
            return ApiError("InternalFailure", f"{self._path} cannot be written: {error!r}", 500)
        return None

    async def rows(self, statement: str, *values: object) -> Sequence[Values]:
        """What a query finds.

        Raises:
            ApiError: the file cannot be read.
        """
        return await self._run(lambda connection: connection.execute(statement, values).fetchall())

    async def _run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        assert self._connection is not None
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._connection)
        except sqlite3.Error as error:
            msg = f"{self._path}, which holds {self._words}, cannot be read or written: {error}"
            raise ApiError("InternalFailure", msg, 500) from error


def _commit(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    """Make all of the changes or none."""
    if not changes:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement, same in groupby(changes, key=lambda change: change[0]):
            connection.executemany(statement, [values for _, values in same])
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # some errors have done so already
            connection.execute("ROLLBACK")
        raise
