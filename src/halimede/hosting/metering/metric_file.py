"""The file of metrics: what was measured, for the next process of the host. Blocks; one thread does all of it."""

import json
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halimede.hosting.identity import Scope
from halimede.hosting.metering.statistics import Values
from halimede.hosting.metering.store import Metric, MetricStores, Series, oldest_time

logger = logging.getLogger("halimede")

VERSION = 1
"""Of the table (`PRAGMA user_version`). 0 has no accounts and regions; `hosting.migration` makes it 1."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS minutes (
    account TEXT, region TEXT, namespace TEXT, name TEXT, dimensions TEXT, minute INTEGER, unit TEXT,
    count REAL, total REAL, minimum REAL, maximum REAL, sketch TEXT,
    PRIMARY KEY (account, region, namespace, name, dimensions, minute))
"""

_RESOLUTION = """
CREATE TABLE IF NOT EXISTS resolution (seconds INTEGER NOT NULL);
INSERT INTO resolution SELECT 60 WHERE NOT EXISTS (SELECT * FROM resolution)
"""
"""Of what length the minutes of the table are; files that do not say it have minutes."""

_PUT = "INSERT OR REPLACE INTO minutes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_ROW = "account = ? AND region = ? AND namespace = ? AND name = ? AND dimensions = ? AND minute = ?"

Place = tuple[Scope, Metric, int]
"""A minute of a metric of an account and region."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed in the stores.

    Attributes:
        minutes: what is to be written, and was taken out of the series' own lists.
        gone: what is to be deleted, likewise.
        rows: what `minutes` are, as the file has them.
    """

    minutes: Sequence[Place]
    gone: Sequence[Place]
    rows: Sequence[tuple[Any, ...]]


def take_changes(stores: MetricStores) -> Changes:
    """What has changed since it was taken the last time."""
    minutes: list[Place] = []
    gone: list[Place] = []
    rows = []
    for scope, metric, series in _every(stores):
        for minute in series.unsaved:
            of = series.minutes[minute]
            place = (scope, metric, minute)
            minutes.append(place)
            values = (of.count, of.total, of.minimum, of.maximum, json.dumps(of.sketch))
            rows.append((*_key(place), series.unit, *values))
        gone += [(scope, metric, minute) for minute in series.gone]
        series.unsaved, series.gone = set(), set()
    return Changes(minutes, gone, rows)


def _every(stores: MetricStores) -> Iterator[tuple[Scope, Metric, Series]]:
    for scope, store in stores.all():
        for metric in store.metrics():
            series = store.series(metric)
            assert series is not None
            yield scope, metric, series


def mark_unsaved(stores: MetricStores, changes: Changes) -> None:
    """The changes could not be written: they are still to be."""
    for scope, metric, minute in changes.minutes:
        series = stores.find(scope).series(metric)
        if series is not None and minute in series.minutes:
            series.unsaved.add(minute)
    for scope, metric, minute in changes.gone:
        series = stores.find(scope).series(metric)
        if series is not None and minute not in series.minutes:
            series.gone.add(minute)


class MetricFile:
    """The file, an SQLite database."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._resolution = 0

    def load(self, stores: MetricStores, now: float) -> None:
        """Read all that was measured. A file that cannot be read is put aside: measuring goes on without it.

        What was measured with another resolution comes to the stores': what is finer is merged, and what is coarser
        stands where it begins.

        Raises:
            sqlite3.Error: there cannot be a file.
        """
        try:
            self._load(stores)
        except (sqlite3.DatabaseError, ValueError) as error:
            self.close()
            if isinstance(error, sqlite3.OperationalError):  # it may well be in order
                raise
            aside = self._path.with_name(f"{self._path.name}.broken")
            logger.error(
                "the metrics in %s cannot be read (%s); they are now in %s", self._path, error, aside
            )
            for suffix in ("-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                self._path.rename(aside)
            self._load(stores)
        if self._resolution != stores.resolution:
            self._rewrite(take_changes(stores), stores.resolution)
        for _, _, series in _every(stores):
            series.unsaved.clear()
        stores.forget(now)

    def _load(self, stores: MetricStores) -> None:
        self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version < VERSION:
            self._connection.executescript(f"BEGIN; {SCHEMA}; PRAGMA user_version = {VERSION}; COMMIT;")
        self._connection.executescript(f"BEGIN; {_RESOLUTION}; COMMIT;")
        (self._resolution,) = self._connection.execute("SELECT seconds FROM resolution").fetchone()
        with closing(self._connection.execute("SELECT * FROM minutes")) as cursor:
            for account, region, namespace, name, dimensions, minute, unit, *numbers, sketch in cursor:
                count, total, least, most = numbers
                metric = Metric.of(namespace, name, dict(json.loads(dimensions)))
                powers = {int(power): number for power, number in json.loads(sketch).items()}
                store = stores.of(Scope(account, region))
                store.merge(
                    metric, Values(count, total, least, most, powers), unit, minute * self._resolution
                )

    def _rewrite(self, changes: Changes, resolution: int) -> None:
        """Have what is in the stores, in place of all that was there."""
        assert self._connection is not None
        with _transaction(self._connection) as connection:
            connection.execute("DELETE FROM minutes")
            connection.executemany(_PUT, changes.rows)
            connection.execute("UPDATE resolution SET seconds = ?", (resolution,))
        self._resolution = resolution

    def write(self, changes: Changes, now: float) -> None:
        """Write what has changed, all of it or nothing.

        Raises:
            sqlite3.Error: it cannot be written.
        """
        assert self._connection is not None
        with _transaction(self._connection) as connection:
            gone = [_key(place) for place in changes.gone]
            connection.executemany(f"DELETE FROM minutes WHERE {_ROW}", gone)  # noqa: S608 - ours alone
            connection.executemany(_PUT, changes.rows)
            oldest = oldest_time(now) // self._resolution
            connection.execute("DELETE FROM minutes WHERE minute < ?", (oldest,))

    def close(self) -> None:
        """Write and read no more."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Do all of the block or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # some errors have done so already
            connection.execute("ROLLBACK")
        raise


def _key(place: Place) -> tuple[str, str, str, str, str, int]:
    scope, metric, minute = place
    return *scope, metric.namespace, metric.name, json.dumps(metric.dimensions), minute
