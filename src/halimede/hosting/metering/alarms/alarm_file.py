"""The file of alarms: how they are configured, their states and what has happened to them. Blocks; one thread does all.

What has happened is kept for 30 days, and so much of each alarm and of all.
"""

import logging
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from halimede.hosting.identity import Scope
from halimede.hosting.metering.alarms.alarm import Alarm, AlarmType
from halimede.hosting.metering.alarms.history import HistoryItem, ItemType

logger = logging.getLogger("halimede")

_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS alarms (
    account TEXT, region TEXT, name TEXT, kind TEXT NOT NULL, document BLOB NOT NULL, state BLOB NOT NULL,
    tags BLOB NOT NULL, PRIMARY KEY (account, region, name));
CREATE TABLE IF NOT EXISTS history (
    id INTEGER PRIMARY KEY, account TEXT NOT NULL, region TEXT NOT NULL, name TEXT NOT NULL, alarm_type TEXT NOT NULL,
    moment REAL NOT NULL, kind TEXT NOT NULL, summary TEXT NOT NULL, data TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS history_of_alarms ON history (account, region, name, id);
CREATE INDEX IF NOT EXISTS history_by_time ON history (moment);
CREATE TABLE IF NOT EXISTS progress (evaluated INTEGER NOT NULL);
"""

_RETENTION_S = 30 * 86_400
_OF_AN_ALARM = 1_000
_OF_ALL = 200_000

_THIS = "account = ? AND region = ? AND name = ?"


@dataclass(frozen=True, slots=True)
class StoredAlarm:
    """An alarm as the file has it."""

    scope: Scope
    name: str
    type: AlarmType
    document: Mapping[str, Any]
    state: Mapping[str, Any]
    tags: Mapping[str, str]


@dataclass(slots=True)
class Changes:
    """What is to be written, all of it or nothing.

    Attributes:
        put: alarms that are new or configured otherwise.
        states: alarms whose state has changed.
        removed: accounts, regions and names of those that are no more.
        history: what has happened.
        evaluated: the end of the last period that was evaluated; 0 if none was.
        now: the time, in seconds since 1970.
    """

    put: list[Sequence[Any]] = field(default_factory=list)
    states: list[Sequence[Any]] = field(default_factory=list)
    removed: list[Sequence[str]] = field(default_factory=list)
    history: list[HistoryItem] = field(default_factory=list)
    evaluated: int = 0
    now: float = 0.0

    def add(self, alarm: Alarm) -> None:
        """An alarm is new, or configured otherwise."""
        document, state, tags = map(orjson.dumps, (alarm.document, alarm.state_document(), alarm.tags))
        self.put.append((*alarm.scope, alarm.name, alarm.type, document, state, tags))

    def set_state(self, alarm: Alarm) -> None:
        """An alarm has another state."""
        self.states.append((orjson.dumps(alarm.state_document()), *alarm.scope, alarm.name))

    def remove(self, alarm: Alarm) -> None:
        """An alarm is no more."""
        self.removed.append((*alarm.scope, alarm.name))


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Which items are asked for.

    Attributes:
        scope: of which account and region.
        name: of which alarm; "" for all.
        alarm_types: of which kinds of alarms.
        type: of which kind; "" for all.
        begin, end: from and until when, in seconds since 1970.
        descending: the newest first.
        skip, limit: so many are left out at the beginning, and so many are wanted.
    """

    scope: Scope
    name: str
    alarm_types: Sequence[str]
    type: str
    begin: float
    end: float
    descending: bool
    skip: int
    limit: int


class AlarmFile:
    """The file, an SQLite database."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def load(self) -> tuple[list[StoredAlarm], int]:
        """All alarms, and the end of the last period that was evaluated. A file that cannot be read is put aside.

        Raises:
            sqlite3.Error: there cannot be a file.
        """
        try:
            return self._load()
        except (sqlite3.DatabaseError, ValueError) as error:
            self.close()
            if isinstance(error, sqlite3.OperationalError):  # it may well be in order
                raise
            aside = self._path.with_name(f"{self._path.name}.broken")
            logger.error("the alarms in %s cannot be read (%s); they are now in %s", self._path, error, aside)
            for suffix in ("-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                self._path.rename(aside)
            return self._load()

    def _load(self) -> tuple[list[StoredAlarm], int]:
        self._connection = connection = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA journal_mode = WAL")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > _VERSION:
            msg = f"its version is {version}, and this version of Halimede knows {_VERSION}"
            raise sqlite3.DatabaseError(msg)
        connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        alarms = [
            StoredAlarm(
                Scope(account, region),
                name,
                AlarmType(kind),
                orjson.loads(document),
                orjson.loads(state),
                orjson.loads(tags),
            )
            for account, region, name, kind, document, state, tags in connection.execute(
                "SELECT * FROM alarms"
            )
        ]
        row = connection.execute("SELECT evaluated FROM progress").fetchone()
        return alarms, row[0] if row else 0

    def write(self, changes: Changes) -> None:
        """Write what has changed, all of it or nothing.

        Raises:
            sqlite3.Error: it cannot be written.
        """
        connection = self._opened
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany("INSERT OR REPLACE INTO alarms VALUES (?, ?, ?, ?, ?, ?, ?)", changes.put)
            # an alarm that has been deleted since does not come again
            connection.executemany(f"UPDATE alarms SET state = ? WHERE {_THIS}", changes.states)  # noqa: S608
            connection.executemany(f"DELETE FROM alarms WHERE {_THIS}", changes.removed)  # noqa: S608
            self._write_history(connection, changes)
            if changes.evaluated:
                connection.execute("DELETE FROM progress")
                connection.execute("INSERT INTO progress VALUES (?)", (changes.evaluated,))
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # some errors have done so already
                connection.execute("ROLLBACK")
            raise

    def _write_history(self, connection: sqlite3.Connection, changes: Changes) -> None:
        if not changes.history:
            return
        connection.executemany(
            "INSERT INTO history VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (*each.scope, each.name, each.alarm_type, each.when, each.type, each.summary, each.data)
                for each in changes.history
            ],
        )
        for key in {(*each.scope, each.name) for each in changes.history}:
            connection.execute(
                f"DELETE FROM history WHERE {_THIS} AND id <= "  # noqa: S608 - ours alone
                f"(SELECT id FROM history WHERE {_THIS} ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (*key, *key, _OF_AN_ALARM),
            )
        connection.execute("DELETE FROM history WHERE moment < ?", (changes.now - _RETENTION_S,))
        connection.execute("DELETE FROM history WHERE id <= (SELECT max(id) FROM history) - ?", (_OF_ALL,))

    def history(self, query: HistoryQuery) -> list[HistoryItem]:
        """What has happened.

        Raises:
            sqlite3.Error: it cannot be read.
        """
        kinds = ", ".join("?" * len(query.alarm_types))
        order = "DESC" if query.descending else "ASC"
        cursor = self._opened.execute(
            f"SELECT name, alarm_type, moment, kind, summary, data FROM history "  # noqa: S608 - ours alone
            f"WHERE account = ? AND region = ? AND (? = '' OR name = ?) AND alarm_type IN ({kinds}) "
            f"AND (? = '' OR kind = ?) AND moment >= ? AND moment < ? ORDER BY id {order} LIMIT ? OFFSET ?",
            (
                *query.scope,
                query.name,
                query.name,
                *query.alarm_types,
                query.type,
                query.type,
                query.begin,
                query.end,
                query.limit,
                query.skip,
            ),
        )
        return [
            HistoryItem(query.scope, name, AlarmType(of), moment, ItemType(kind), summary, data)
            for name, of, moment, kind, summary, data in cursor
        ]

    @property
    def _opened(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def close(self) -> None:
        """Write and read no more."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
