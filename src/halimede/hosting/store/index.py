"""The store's tables: SQLite, with one change a transaction. Blocks; one thread only."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import md5
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from halimede.hosting.errors import ApiError
from halimede.hosting.store.checksums import Checksum
from halimede.hosting.store.failures import (
    no_such_bucket,
    no_such_key,
    no_such_upload,
    other_account,
    precondition_failed,
)
from halimede.hosting.store.listing import Listing, Page, page
from halimede.hosting.store.records import Bucket, Conditions, Part, SmallPut, StoredObject, Upload

_SCHEMA = """
CREATE TABLE IF NOT EXISTS buckets (name TEXT PRIMARY KEY, created INTEGER, account TEXT, region TEXT);
CREATE TABLE IF NOT EXISTS objects (
    bucket TEXT, key BLOB, blob TEXT, size INTEGER, etag TEXT, modified INTEGER, headers BLOB, checksum BLOB,
    PRIMARY KEY (bucket, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uploads (
    id TEXT PRIMARY KEY, bucket TEXT, key BLOB, begun INTEGER, headers BLOB, algorithm TEXT, checksum_kind TEXT
);
CREATE TABLE IF NOT EXISTS small (number INTEGER PRIMARY KEY, data BLOB);
CREATE TABLE IF NOT EXISTS parts (
    upload TEXT, number INTEGER, blob TEXT, size INTEGER, etag TEXT, modified INTEGER, checksum BLOB,
    PRIMARY KEY (upload, number)
) WITHOUT ROWID;
"""

_SELECT_OBJECT = (
    "SELECT blob, size, etag, modified, headers, checksum FROM objects WHERE bucket = ? AND key = ?"
)
_SELECT_OBJECTS = (
    "SELECT key, blob, size, etag, modified, headers, checksum FROM objects "
    "WHERE bucket = ? AND key > ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"
)
_SELECT_UPLOAD = "SELECT * FROM uploads WHERE id = ? AND bucket = ? AND key = ?"
_SELECT_UPLOADS = (
    "SELECT * FROM uploads WHERE bucket = ? AND key >= ? AND key < ? AND (key, id) > (?, ?) "
    "ORDER BY key, id LIMIT ?"
)
_SELECT_PARTS = (
    "SELECT number, blob, size, etag, modified, checksum FROM parts "
    "WHERE upload = ? AND number > ? ORDER BY number LIMIT ?"
)


_ROW = "row-"
"""So the names of small objects' bytes begin; those of files are hexadecimal digits."""


class Index:
    """The tables."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it."""
        self._connection = sqlite3.connect(path, isolation_level=None)
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(_SCHEMA)
            ((last,),) = self._rows("SELECT MAX(number) FROM small")
        except sqlite3.Error:
            self.close()
            raise
        self._numbers = count((last or 0) + 1)  # none comes again, as somebody may still be about to read it

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:  # a full disk has rolled it back already
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _rows(self, statement: str, *values: object) -> list[Any]:
        return self._connection.execute(statement, values).fetchall()

    def _execute(self, statement: str, *values: object) -> None:
        self._connection.execute(statement, values)

    def blobs(self) -> set[str]:
        """The names of all files that there are."""
        return {name for (name,) in self._rows("SELECT blob FROM objects UNION ALL SELECT blob FROM parts")}

    # buckets

    def add_bucket(self, bucket: Bucket) -> Bucket | None:
        """Add a bucket; the one that is there already, if there is."""
        with self._transaction():
            known = self._bucket(bucket.name)
            if known is None:
                moment = _milliseconds(bucket.created)
                self._execute(
                    "INSERT INTO buckets VALUES (?, ?, ?, ?)",
                    bucket.name,
                    moment,
                    bucket.account,
                    bucket.region,
                )
        return known

    def bucket(self, name: str) -> Bucket:
        """A bucket.

        Raises:
            ApiError: there is none (``NoSuchBucket``).
        """
        bucket = self._bucket(name)
        if bucket is None:
            raise no_such_bucket(name)
        return bucket

    def _bucket(self, name: str) -> Bucket | None:
        rows = self._rows("SELECT * FROM buckets WHERE name = ?", name)
        return Bucket(name, _moment(rows[0][1]), *rows[0][2:]) if rows else None

    def buckets(self) -> list[Bucket]:
        """All buckets, by name."""
        rows = self._rows("SELECT * FROM buckets ORDER BY name")
        return [Bucket(name, _moment(created), *rest) for name, created, *rest in rows]

    def remove_bucket(self, name: str) -> list[str] | None:
        """Remove a bucket that has no objects, and what has been uploaded to it in part.

        Returns:
            The files that are not needed any more; None if there are objects, and the bucket stays.

        Raises:
            ApiError: there is none.
        """
        with self._transaction():
            self.bucket(name)
            if self._rows("SELECT 1 FROM objects WHERE bucket = ? LIMIT 1", name):
                return None
            uploads = [upload for (upload,) in self._rows("SELECT id FROM uploads WHERE bucket = ?", name)]
            unused = [blob for upload in uploads for blob in self._forget_upload(upload)]
            self._execute("DELETE FROM buckets WHERE name = ?", name)
        return unused

    # objects

    def object(self, bucket: str, key: str) -> StoredObject:
        """An object.

        Raises:
            ApiError: there is no such bucket, or no such object in it.
        """
        found = self._object(bucket, key)
        if found is None:
            self.bucket(bucket)
            raise no_such_key(bucket, key)
        return found

    def _object(self, bucket: str, key: str) -> StoredObject | None:
        rows = self._rows(_SELECT_OBJECT, bucket, key.encode())
        return _stored(rows[0]) if rows else None

    def put(self, bucket: str, key: str, stored: StoredObject, conditions: Conditions) -> list[str]:
        """Put an object in the place of the one that is there, if there is.

        Returns:
            The files that are not needed any more.

        Raises:
            ApiError: there is no such bucket, or a condition does not hold.
        """
        with self._transaction():
            return self._put(bucket, key, stored, conditions)

    def _put(self, bucket: str, key: str, stored: StoredObject, conditions: Conditions) -> list[str]:
        known = self.check(bucket, key, conditions)
        values = (stored.blob, stored.size, stored.etag, _milliseconds(stored.modified))
        headers, checksum = orjson.dumps(stored.headers), _packed(stored.checksum)
        statement = "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        self._execute(statement, bucket, key.encode(), *values, headers, checksum)
        return [] if known is None else self._without_rows([known.blob])

    def put_small(
        self, puts: Sequence[SmallPut], account: str = ""
    ) -> tuple[list[StoredObject | ApiError], list[str]]:
        """Put objects into buckets of an account, or of any, in one transaction, their bytes in the table `small`.

        Returns:
            For each of them what was put, or why it cannot be, and the files that are not needed any more.
        """
        with self._transaction():
            owners = dict(self._rows("SELECT name, account FROM buckets"))
            modified = datetime.now(UTC)
            outcomes: list[StoredObject | ApiError] = []
            latest: dict[tuple[str, bytes], tuple[int, SmallPut, StoredObject]] = {}
            for put in puts:
                owner = owners.get(put.bucket)
                if owner is None:
                    outcomes.append(no_such_bucket(put.bucket))
                    continue
                if account not in ("", owner):
                    outcomes.append(other_account(put.bucket))
                    continue
                number = next(self._numbers)
                etag = md5(put.data, usedforsecurity=False).hexdigest()
                stored = StoredObject(_row_name(number), len(put.data), etag, modified, put.headers)
                latest[put.bucket, put.key.encode()] = (number, put, stored)
                outcomes.append(stored)
            statement = "SELECT blob FROM objects WHERE bucket = ? AND key = ?"
            replaced = [blob for place in latest for (blob,) in self._rows(statement, *place)]
            self._connection.executemany(
                "INSERT INTO small VALUES (?, ?)", [(number, put.data) for number, put, _ in latest.values()]
            )
            moment = _milliseconds(modified)
            self._connection.executemany(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (*place, each.blob, each.size, each.etag, moment, orjson.dumps(each.headers), None)
                    for place, (_, _, each) in latest.items()
                ],
            )
            return outcomes, self._without_rows(replaced)

    def small(self, blob: str) -> bytes:
        """The bytes of a small object.

        Raises:
            FileNotFoundError: it is not there any more.
        """
        rows = self._rows("SELECT data FROM small WHERE number = ?", _row_number(blob))
        if not rows:
            raise FileNotFoundError(blob)
        data: bytes = rows[0][0]
        return data

    def _without_rows(self, blobs: Iterable[str]) -> list[str]:
        """Remove the bytes of those that are rows; the others, which are files."""
        files = []
        for blob in blobs:
            if is_row(blob):
                self._execute("DELETE FROM small WHERE number = ?", _row_number(blob))
            else:
                files.append(blob)
        return files

    def check(self, bucket: str, key: str, conditions: Conditions) -> StoredObject | None:
        """The object that would be replaced, if there is one.

        Raises:
            ApiError: there is no such bucket, or a condition does not hold.
        """
        if conditions.account not in ("", self.bucket(bucket).account):
            raise other_account(bucket)
        known = self._object(bucket, key)
        if conditions.absent and known is not None:
            raise precondition_failed(f"If-None-Match: there is an object '{key}'")
        if conditions.etag and known is None:
            raise no_such_key(bucket, key)
        if conditions.etag and known is not None and conditions.etag not in {"*", known.etag}:
            raise precondition_failed(f"If-Match: the object '{key}' has the ETag {known.etag}")
        return known

    def remove(self, bucket: str, keys: Iterable[str]) -> list[str]:
        """Remove those of these objects that there are; the files that are not needed any more.

        Raises:
            ApiError: there is no such bucket.
        """
        with self._transaction():
            self.bucket(bucket)
            rows = []
            for key in keys:
                statement = "DELETE FROM objects WHERE bucket = ? AND key = ? RETURNING blob"
                rows += self._rows(statement, bucket, key.encode())
            return self._without_rows(blob for (blob,) in rows)

    def page(self, bucket: str, listing: Listing) -> Page:
        """A page of a bucket's objects.

        Raises:
            ApiError: there is no such bucket.
        """
        self.bucket(bucket)

        def rows(above: bytes, begin: bytes, end: bytes, limit: int) -> list[tuple[bytes, StoredObject]]:
            found = self._rows(_SELECT_OBJECTS, bucket, above, begin, end, limit)
            return [(key, _stored(values)) for key, *values in found]

        return page(listing, rows)

    # uploads

    def add_upload(self, upload: Upload) -> None:
        """Begin an upload.

        Raises:
            ApiError: there is no such bucket.
        """
        with self._transaction():
            self.bucket(upload.bucket)
            values = (upload.id, upload.bucket, upload.key.encode(), _milliseconds(upload.begun))
            statement = "INSERT INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?)"
            headers = orjson.dumps(upload.headers)
            self._execute(statement, *values, headers, upload.algorithm, upload.checksum_kind)

    def upload(self, bucket: str, key: str, upload: str) -> Upload:
        """An upload.

        Raises:
            ApiError: there is none of this object.
        """
        rows = self._rows(_SELECT_UPLOAD, upload, bucket, key.encode())
        if not rows:
            self.bucket(bucket)
            raise no_such_upload(upload)
        return _upload(rows[0])

    def uploads(self, bucket: str, prefix: str, after: tuple[str, str], limit: int) -> list[Upload]:
        """The uploads of a bucket by key and id, those after a key and an id.

        Raises:
            ApiError: there is no such bucket.
        """
        self.bucket(bucket)
        begin = prefix.encode()
        after_key, after_id = after[0].encode(), after[1]
        rows = self._rows(_SELECT_UPLOADS, bucket, begin, begin + b"\xff", after_key, after_id, limit)
        return [_upload(row) for row in rows]

    def put_part(self, upload: Upload, part: Part) -> list[str]:
        """Put a part; the files that are not needed any more.

        Raises:
            ApiError: there is no such upload any more.
        """
        with self._transaction():
            self.upload(upload.bucket, upload.key, upload.id)
            statement = "SELECT blob FROM parts WHERE upload = ? AND number = ?"
            rows = self._rows(statement, upload.id, part.number)
            values = (part.blob, part.size, part.etag, _milliseconds(part.modified), _packed(part.checksum))
            self._execute(
                "INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?, ?, ?)", upload.id, part.number, *values
            )
        return [blob for (blob,) in rows]

    def parts(self, upload: str, after: int = 0, limit: int = 10_000) -> list[Part]:
        """The parts of an upload, those with a number above one."""
        return [_part(row) for row in self._rows(_SELECT_PARTS, upload, after, limit)]

    def complete(self, upload: Upload, stored: StoredObject, conditions: Conditions) -> list[str]:
        """Put the object of an upload and forget the upload; the files that are not needed any more.

        Raises:
            ApiError: there is no such upload any more, or a condition does not hold.
        """
        with self._transaction():
            self.upload(upload.bucket, upload.key, upload.id)
            unused = self._put(upload.bucket, upload.key, stored, conditions)
            return unused + self._forget_upload(upload.id)

    def abort(self, bucket: str, key: str, upload: str) -> list[str]:
        """Forget an upload; the files that are not needed any more.

        Raises:
            ApiError: there is no such upload.
        """
        with self._transaction():
            self.upload(bucket, key, upload)
            return self._forget_upload(upload)

    def _forget_upload(self, upload: str) -> list[str]:
        rows = self._rows("DELETE FROM parts WHERE upload = ? RETURNING blob", upload)
        self._execute("DELETE FROM uploads WHERE id = ?", upload)
        return [blob for (blob,) in rows]


def is_row(blob: str) -> bool:
    """Whether the bytes are a row of the table `small`, and not a file."""
    return blob.startswith(_ROW)


def _row_name(number: int) -> str:
    return f"{_ROW}{number}"


def _row_number(blob: str) -> int:
    return int(blob.removeprefix(_ROW))


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _packed(checksum: Checksum | None) -> bytes | None:
    return None if checksum is None else orjson.dumps([checksum.algorithm, checksum.value, checksum.kind])


def _checksum(packed: bytes | None) -> Checksum | None:
    return None if packed is None else Checksum(*orjson.loads(packed))


def _stored(row: Any) -> StoredObject:
    blob, size, etag, modified, headers, checksum = row
    return StoredObject(blob, size, etag, _moment(modified), orjson.loads(headers), _checksum(checksum))


def _upload(row: Any) -> Upload:
    upload, bucket, key, begun, headers, algorithm, kind = row
    return Upload(upload, bucket, key.decode(), _moment(begun), orjson.loads(headers), algorithm, kind)


def _part(row: Any) -> Part:
    number, blob, size, etag, modified, checksum = row
    return Part(number, blob, size, etag, _moment(modified), _checksum(checksum))
