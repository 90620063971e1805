"""Takes over what a host left that told names apart by nothing but themselves: it gets accounts and regions.

Version 0 of the directory has no accounts and regions; version 1, which `state.db` says (`PRAGMA user_version`), does:

    state.db, metrics.db          tables by kind or namespace and name  →  by account and region as well
    logs/ENDPOINT/…               →  logs/ACCOUNT/REGION/ENDPOINT/…
    instances/ID/instance.json    says the account and region of the instance's endpoint

A resource comes into the account and region of its ARN; what has none, such as a user's own metric, into those of
requests that do not say. `state.db` comes last: a host that is killed before does all of it again.
"""

import logging
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from halimede.hosting.control import database
from halimede.hosting.control.database import DatabaseError
from halimede.hosting.identity import Scope
from halimede.hosting.metering import metric_file

logger = logging.getLogger("halimede")

_OLD_LOGS = "logs-without-accounts"


@dataclass(slots=True)
class _Owners:
    """Where things belong.

    Attributes:
        default: what nobody knows.
        endpoints: name → account and region.
        fleets: id → account and region.
    """

    default: Scope
    endpoints: dict[str, Scope] = field(default_factory=dict)
    fleets: dict[str, Scope] = field(default_factory=dict)

    def of_arn(self, arn: str) -> Scope:
        """Where a resource of SageMaker belongs."""
        parts = arn.split(":")
        return Scope(parts[4], parts[3]) if len(parts) > 5 and parts[3] and parts[4] else self.default


def take_over(directory: Path, default: Scope) -> None:
    """Bring a host's directory to the version of today, if it has an earlier one. Blocks.

    Args:
        directory: the host's, which no other host has.
        default: the account and region of requests that do not say.

    Raises:
        DatabaseError: the state cannot be read or written, or is of a later version.
    """
    path = directory / "state.db"
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as state:
            if not _is_old(state, "documents"):
                return
            logger.info("the state in %s gets accounts and regions", directory)
            owners = _owners(state, default)
            _move_logs(directory, owners)
            _complete_instances(directory / "instances", owners)
            _take_over_metrics(directory / "metrics.db", owners)
            _take_over_state(state, owners)
    except (sqlite3.Error, OSError) as error:
        raise DatabaseError(f"cannot use {path}, which holds the host's state: {error}") from None


def _is_old(connection: sqlite3.Connection, table: str) -> bool:
    version = database.checked_version(connection)
    known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    return not version and known is not None


def _owners(state: sqlite3.Connection, default: Scope) -> _Owners:
    owners = _Owners(default)
    for name, data in state.execute("SELECT name, document FROM documents WHERE kind = 'endpoint'"):
        document = orjson.loads(data)
        scope = owners.endpoints[name] = owners.of_arn(document["arn"])
        for fleet in (document["current"], document["pending"]):
            if fleet:
                owners.fleets[fleet["id"]] = scope
    return owners


def _move_logs(directory: Path, owners: _Owners) -> None:
    """Instances go on writing to their logs: they are moved, not copied."""
    logs, old = directory / "logs", directory / _OLD_LOGS
    if logs.is_dir() and not old.exists():
        logs.rename(old)
    for endpoint in list(old.iterdir()) if old.exists() else ():
        scope = owners.endpoints.get(endpoint.name, owners.default)
        place = scope.directory(logs)
        place.mkdir(parents=True, exist_ok=True)
        endpoint.rename(place / endpoint.name)


def _complete_instances(instances: Path, owners: _Owners) -> None:
    for path in instances.glob("*/instance.json"):
        try:
            document: dict[str, Any] = orjson.loads(path.read_bytes())
            request = document["running"]["request"]
            scope = owners.fleets.get(request["fleet"], owners.default)
        except (ValueError, KeyError, TypeError):  # whoever adopts instances says so
            continue
        request |= {"account": scope.account, "region": scope.region}
        beside = path.with_name(f"{path.name}.new")
        beside.write_bytes(orjson.dumps(document))
        beside.rename(path)


def _take_over_metrics(path: Path, owners: _Owners) -> None:
    """A file that is no database stays as it is: whoever reads it puts it aside."""
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as metrics:
            if not _is_old(metrics, "minutes"):
                return

            def scope_of(dimensions: str) -> Scope:
                names: Mapping[str, str] = dict(orjson.loads(dimensions))
                return owners.endpoints.get(names.get("EndpointName", ""), owners.default)

            metrics.create_function("account_of", 1, lambda dimensions: scope_of(dimensions).account)
            metrics.create_function("region_of", 1, lambda dimensions: scope_of(dimensions).region)
            columns = "account_of(dimensions), region_of(dimensions), *"
            _rebuild(metrics, "minutes", metric_file.SCHEMA, metric_file.VERSION, columns)
    except sqlite3.OperationalError:  # it may well be in order
        raise
    except sqlite3.DatabaseError as error:
        logger.warning("the metrics in %s cannot be taken over: %s", path, error)


def _take_over_state(state: sqlite3.Connection, owners: _Owners) -> None:
    state.create_function("account_of", 1, lambda data: owners.of_arn(orjson.loads(data)["arn"]).account)
    state.create_function("region_of", 1, lambda data: owners.of_arn(orjson.loads(data)["arn"]).region)
    columns = "kind, account_of(document), region_of(document), name, document"
    _rebuild(state, "documents", database.SCHEMA, database.VERSION, columns)


def _rebuild(connection: sqlite3.Connection, table: str, schema: str, version: int, columns: str) -> None:
    """Make a table anew from its rows, all of it or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
        for statement in schema.split(";"):
            connection.execute(statement)
        connection.execute(f"INSERT INTO {table} SELECT {columns} FROM old_{table}")  # noqa: S608 - ours alone
        connection.execute(f"DROP TABLE old_{table}")
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
