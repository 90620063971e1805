"""Data of a baseline: files of CSV, of JSON and of captured invocations."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from halimede.hosting.capture.payloads import UndecodableError
from halimede.hosting.capture.records import CSV, JSON, Payload, read_records
from halimede.hosting.monitoring.table import Table

_BATCH = 1_000
"""So many rows are read at a time."""

_CAPTURED = b'"captureData"'


class DatasetError(Exception):
    """The data cannot be read; the text says why."""


def add_csv(table: Table, lines: Iterable[bytes], header: bool | None = None) -> None:
    """Add rows of CSV.

    Args:
        table: takes them.
        lines: the file's.
        header: whether the first row has the columns' names; None if it has when none of its cells is a number.

    Raises:
        DatasetError: they are none.
    """
    try:
        rows = csv.reader(line.decode("utf-8-sig") for line in lines)
        first = next((row for row in rows if row), None)
        if first is None:
            raise DatasetError("there are no rows")
        is_header = not any(map(_is_number, first)) if header is None else header
        names = (
            [cell.strip() for cell in first] if is_header else [f"_c{index}" for index in range(len(first))]
        )
        if len(set(names)) != len(names):
            raise DatasetError("two columns have the same name")
        waiting: Iterator[Sequence[str]] = (row for row in rows if row)
        batch = [*islice(waiting, _BATCH)] if is_header else [first, *islice(waiting, _BATCH)]
        if not batch:
            raise DatasetError("there are no rows below the names of the columns")
        while batch:
            _add_rows(table, batch, names)
            batch = [*islice(waiting, _BATCH)]
    except (csv.Error, UnicodeDecodeError) as error:
        raise DatasetError(f"it is no CSV: {error}") from None


def _add_rows(table: Table, rows: Sequence[Sequence[str]], names: Sequence[str]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    try:
        tensors = Payload(text.getvalue().encode(), "text/csv", CSV).tensors()
    except UndecodableError as error:
        raise DatasetError(str(error)) from None
    if len(tensors) != len(names):
        raise DatasetError(f"rows have {len(tensors)} values, and there are {len(names)} names of columns")
    columns = zip(names, tensors.values(), strict=True)
    table.add_rows({name: array.reshape(-1, 1) for name, array in columns}, "")
    table.records += len(rows)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def add_json(table: Table, lines: Iterable[bytes]) -> int:
    """Add captured invocations, or lines of JSON of any other kind, each of which is a row.

    Returns:
        How many lines of captured files were skipped, since they are no records.

    Raises:
        DatasetError: they are none of that.
    """
    waiting = (line for line in lines if line.strip())
    unreadable: list[str] = []
    while batch := [*islice(waiting, _BATCH)]:
        if _CAPTURED in batch[0]:
            for record in read_records(batch, lambda _, why: unreadable.append(why)):
                table.add_record(record)
        else:
            _add_lines(table, batch)
    return len(unreadable)


def _add_lines(table: Table, lines: Sequence[bytes]) -> None:
    kind = "application/jsonlines"
    if len(lines) == 1 and lines[0].lstrip()[:1] == b"[":
        kind = "application/json"  # an array of rows, in one line
    before = sum(table.undecodable.values())
    table.add_payload(Payload(b"\n".join(lines), kind, JSON), "")
    if sum(table.undecodable.values()) > before:
        why = next(reversed(table.undecodable)).removeprefix(": ")
        raise DatasetError(f"it is no JSON with a row in each line: {why}")
    table.records += len(lines)


def add_document(table: Table, content: bytes) -> None:
    """Add the rows of one document of JSON: an array of objects.

    Raises:
        DatasetError: it is none.
    """
    try:
        rows = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"it is no JSON: {error}") from None
    if not isinstance(rows, list) or not rows:
        raise DatasetError("it is no array of rows")
    add_json(table, (json.dumps(row).encode() for row in rows))
