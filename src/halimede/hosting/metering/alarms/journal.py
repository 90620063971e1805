"""Reads and writes the file of alarms from the event loop; another thread does it."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from halimede.hosting.errors import ApiError
from halimede.hosting.metering.alarms.alarm_file import AlarmFile, Changes, HistoryQuery, StoredAlarm
from halimede.hosting.metering.alarms.history import HistoryItem

logger = logging.getLogger("halimede")

_MAX_UNWRITTEN = 10_000
"""So much of what has happened is kept while the file cannot be written."""

Result = TypeVar("Result")


class Journal:
    """What is on disk of alarms. Lives on the event loop."""

    def __init__(self, path: Path) -> None:
        self._file = AlarmFile(path)
        self._thread = ThreadPoolExecutor(1, "halimede-alarms")
        self._unwritten = Changes()

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def load(self) -> tuple[list[StoredAlarm], int]:
        """All alarms, and the end of the last period that was evaluated.

        Raises:
            sqlite3.Error: there cannot be a file of alarms.
        """
        return await self._run(self._file.load)

    async def write(self, changes: Changes) -> None:
        """Write what a request changes.

        Raises:
            ApiError: it cannot be written (``InternalServiceError``).
        """
        try:
            await self._run(lambda: self._file.write(changes))
        except sqlite3.Error as error:
            raise ApiError("InternalServiceError", f"the alarms cannot be written: {error}", 500) from None

    async def note(self, changes: Changes) -> None:
        """Write what has happened, now or the next time."""
        waiting, self._unwritten = self._unwritten, Changes()
        changes.history[:0] = waiting.history
        changes.states[:0] = waiting.states
        if not (changes.history or changes.states or changes.evaluated):
            return
        try:
            await self._run(lambda: self._file.write(changes))
        except sqlite3.Error as error:
            logger.error("the states of alarms cannot be written now: %s", error)
            self._unwritten.history[:0] = changes.history[-_MAX_UNWRITTEN:]
            self._unwritten.states[:0] = changes.states[-_MAX_UNWRITTEN:]

    async def history(self, query: HistoryQuery) -> list[HistoryItem]:
        """What has happened to alarms, also to those that are no more.

        Raises:
            ApiError: it cannot be read (``InternalServiceError``).
        """
        try:
            return await self._run(lambda: self._file.history(query))
        except sqlite3.Error as error:
            msg = f"the history of alarms cannot be read: {error}"
            raise ApiError("InternalServiceError", msg, 500) from None

    async def close(self, now: float) -> None:
        """Write what has not been, and close the file."""
        await self.note(Changes(now=now))
        await self._run(self._file.close)
        self._thread.shutdown()
