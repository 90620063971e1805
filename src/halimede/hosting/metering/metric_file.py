"""The file of metrics: what was measured, for the next process of the host. Blocks; one thread does all of it."""

import json
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halimede.hosting.metering.statistics import Values
from halimede.hosting.metering.store import MINUTE, Metric, MetricStore, oldest_minute

logger = logging.getLogger("halimede")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS minutes (
    namespace TEXT, name TEXT, dimensions TEXT, minute INTEGER, unit TEXT,
    count REAL, total REAL, minimum REAL, maximum REAL, sketch TEXT,
    PRIMARY KEY (namespace, name, dimensions, minute))
"""

_ROW = "namespace = ? AND name = ? AND dimensions = ? AND minute = ?"


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed in a store.

    Attributes:
        minutes: metric, minute: what is to be written, and was taken out of the series' own lists.
        gone: the same of what is to be deleted.
        rows: what `minutes` are, as the file has them.
    """

    minutes: Sequence[tuple[Metric, int]]
    gone: Sequence[tuple[Metric, int]]
    rows: Sequence[tuple[Any, ...]]


def take_changes(store: MetricStore) -> Changes:
    """What has changed since it was taken the last time."""
    minutes, gone, rows = [], [], []
    for metric in store.metrics():
        series = store.series(metric)
        assert series is not None
        for minute in series.unsaved:
            of = series.minutes[minute]
            minutes.append((metric, minute))
            rows.append(
                (
                    *_key(metric, minute),
                    series.unit,
                    of.count,
                    of.total,
                    of.minimum,
                    of.maximum,
                    json.dumps(of.sketch),
                )
            )
        gone += [(metric, minute) for minute in series.gone]
        series.unsaved, series.gone = set(), set()
    return Changes(minutes, gone, rows)


def mark_unsaved(store: MetricStore, changes: Changes) -> None:
    """The changes could not be written: they are still to be."""
    for metric, minute in changes.minutes:
        series = store.series(metric)
        if series is not None and minute in series.minutes:
            series.unsaved.add(minute)
    for metric, minute in changes.gone:
        series = store.series(metric)
        if series is not None and minute not in series.minutes:
            series.gone.add(minute)


class MetricFile:
    """The file, an SQLite database."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def load(self, store: MetricStore, now: float) -> None:
        """Read all that was measured. A file that cannot be read is put aside: measuring goes on without it.

        Raises:
            sqlite3.Error: there cannot be a file.
        """
        try:
            self._load(store)
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
            self._load(store)
        for metric in store.metrics():
            series = store.series(metric)
            assert series is not None
            series.unsaved.clear()
        store.forget(now)

    def _load(self, store: MetricStore) -> None:
        self._connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(_SCHEMA)
        with closing(self._connection.execute("SELECT * FROM minutes")) as cursor:
            for namespace, name, dimensions, minute, unit, count, total, least, most, sketch in cursor:
                metric = Metric.of(namespace, name, dict(json.loads(dimensions)))
                powers = {int(power): number for power, number in json.loads(sketch).items()}
                store.merge(metric, Values(count, total, least, most, powers), unit, minute * MINUTE)

    def write(self, changes: Changes, now: float) -> None:
        """Write what has changed, all of it or nothing.

        Raises:
            sqlite3.Error: it cannot be written.
        """
        connection = self._connection
        assert connection is not None
        connection.execute("BEGIN IMMEDIATE")
        try:
            gone = [_key(metric, minute) for metric, minute in changes.gone]
            connection.executemany(f"DELETE FROM minutes WHERE {_ROW}", gone)  # noqa: S608 - ours alone
            connection.executemany(
                "INSERT OR REPLACE INTO minutes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", changes.rows
            )
            connection.execute("DELETE FROM minutes WHERE minute < ?", (oldest_minute(now),))
            connection.execute("COMMIT")
        except sqlite3.Error:
            with suppress(sqlite3.Error):  # some errors have done so already
                connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        """Write and read no more."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _key(metric: Metric, minute: int) -> tuple[str, str, str, int]:
    return metric.namespace, metric.name, json.dumps(metric.dimensions), minute
