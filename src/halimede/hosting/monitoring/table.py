"""Tables of captured invocations, and of files: which columns there are, and what is in them.

The rows of a tensor are its first dimension, unless it has only one, which is one row. Of CSV and lines of JSON each
line is a row. A row with up to 32 elements, always as many, has a column for each: ``input.NAME`` for one,
``input.NAME[0]``, ``input.NAME[1]``, … for several. Otherwise the row is summed up: ``input.NAME.mean``, ``.std`` and
``.norm``, and ``.size`` if that varies. No more than 256 columns are kept.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from halimede.core.media_types import essence
from halimede.core.tensors import Array
from halimede.hosting.capture.payloads import UndecodableError
from halimede.hosting.capture.records import CSV, CaptureRecord, Payload
from halimede.hosting.monitoring.features import Column, Feature

MAX_ELEMENTS = 32
"""Rows with more elements are summed up."""

MAX_COLUMNS = 256
"""So many columns are kept."""

INPUT, OUTPUT = "input.", "output."

_LINES = ("application/jsonlines", "application/x-jsonlines", "application/x-ndjson")


_MAX_REASONS = 1_000
"""So many reasons why bodies cannot be read are told apart: they may say what is in a body."""

_BATCH_ROWS = 512
_BATCH_BYTES = 256 << 10
"""Rows are collected until there are so many, or so many bytes of them."""


class _Tensor:
    """One tensor of all records."""

    def __init__(self) -> None:
        self.elements: list[Column] = []
        self.summaries = {name: Column() for name in ("mean", "std", "norm", "size")}
        self.sizes: set[int] = set()
        self.has_numbers = False
        self._missing = 0
        self._waiting: list[Array] = []
        self._waiting_rows = 0

    @property
    def is_even(self) -> bool:
        """Whether all rows have as many elements, and few."""
        return len(self.sizes) <= 1 and max(self.sizes, default=0) <= MAX_ELEMENTS

    def width(self, size: int) -> int:
        """How many columns it makes of rows of a size."""
        is_even = self.is_even and (not self.sizes or size in self.sizes) and size <= MAX_ELEMENTS
        return max(1, size) if is_even else len(self.summaries)

    def miss(self, count: int) -> None:
        """Count rows that do not have it."""
        self._missing += count

    def add(self, rows: Array) -> None:
        """Add rows: an array of two dimensions."""
        before = self._waiting[0] if self._waiting else rows
        if (before.shape[1], before.dtype) != (rows.shape[1], rows.dtype):
            self._flush()
        self._waiting.append(rows)
        self._waiting_rows += len(rows)
        if self._waiting_rows >= _BATCH_ROWS or self._waiting_rows * max(1, rows[:1].nbytes) >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting_rows:
            self._waiting.clear()
            return
        rows = np.concatenate(self._waiting)
        self._waiting.clear()
        self._waiting_rows = 0
        count, size = rows.shape
        if len(self.sizes) <= MAX_ELEMENTS:
            self.sizes.add(size)
        if self.is_even:
            while len(self.elements) < size:
                self.elements.append(Column())
            for column, values in zip(self.elements, rows.T, strict=True):
                _add(column, values)
        else:
            self.elements.clear()
        if rows.dtype.kind in "iuf" and size != 1:
            self.has_numbers = True
            self._summarise(rows.astype(np.float64))
        self.summaries["size"].add_numbers(np.full(count, size))

    def _summarise(self, rows: Array) -> None:
        count, size = rows.shape
        if not size:
            for name in ("mean", "std", "norm"):
                self.summaries[name].add_missing(count)
            return
        with np.errstate(over="ignore", invalid="ignore"):
            self.summaries["mean"].add_numbers(rows.mean(axis=1))
            self.summaries["std"].add_numbers(rows.std(axis=1))
            self.summaries["norm"].add_numbers(np.sqrt((rows * rows).sum(axis=1)))

    def columns(self, name: str, known: Collection[str]) -> dict[str, Column]:
        """Its columns; those that a baseline has, if it can be had in both ways."""
        self._flush()
        columns: Iterable[Column] = (*self.elements, *self.summaries.values())
        for column in columns:
            column.add_missing(self._missing)
        self._missing = 0
        summed = {f"{name}.{part}": column for part, column in self.summaries.items()}
        if self.is_even and not any(each in known for each in summed):
            if len(self.elements) == 1:
                return {name: self.elements[0]}
            return {f"{name}[{index}]": column for index, column in enumerate(self.elements)}
        if len(self.sizes) == 1:
            del summed[f"{name}.size"]
        return summed if self.has_numbers else {key: summed[key] for key in summed if key.endswith(".size")}


class Table:
    """The columns of all records that were added, in bounded memory.

    Attributes:
        records: how many were added.
        undecodable: why bodies could not be read, and how often.
        left_out: names of tensors that were not kept, since there were too many.
    """

    def __init__(self) -> None:
        self.records = 0
        self.undecodable: Counter[str] = Counter()
        self.left_out: set[str] = set()
        self._tensors: dict[str, _Tensor] = {}
        self._columns: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()

    def add_record(self, record: CaptureRecord) -> None:
        """Add a captured invocation."""
        self.records += 1
        for payload, lead in ((record.input, INPUT), (record.output, OUTPUT)):
            if payload is not None:
                self.add_payload(payload, lead)

    def add_payload(self, payload: Payload, lead: str) -> None:
        """Add a body; the names of its columns begin with `lead`."""
        try:
            tensors = payload.tensors()
        except UndecodableError as error:
            what = lead.rstrip(".")
            why = f"{what}: {error}"
            if why not in self.undecodable and len(self.undecodable) >= _MAX_REASONS:
                why = f"{what}: other reasons"
            self.undecodable[why] += 1
            return
        is_lines = _is_lines(payload)
        self.add_rows({lead + name: _rows(array, is_lines=is_lines) for name, array in tensors.items()}, lead)

    def add_rows(self, tensors: Mapping[str, Array], lead: str) -> None:
        """Add arrays of two dimensions, whose first one are rows, by name."""
        count = max((len(rows) for rows in tensors.values()), default=0)
        for name, rows in tensors.items():
            tensor = self._tensors.get(name)
            if tensor is None:
                if sum(self._columns.values()) >= MAX_COLUMNS:
                    if len(self.left_out) < MAX_COLUMNS:
                        self.left_out.add(name)
                    continue
                tensor = self._tensors[name] = _Tensor()
                tensor.miss(self._rows[lead])
            tensor.add(rows)
            self._columns[name] = tensor.width(rows.shape[1])
        for name, tensor in self._tensors.items():
            if name.startswith(lead) and name not in tensors:
                tensor.miss(count)
        self._rows[lead] += count

    def features(self, known: Collection[str] = ()) -> list[Feature]:
        """What is known of the columns, those of inputs first.

        Args:
            known: names of columns that a baseline has.
        """
        columns: dict[str, Column] = {}
        for name in sorted(self._tensors, key=lambda name: name.startswith(OUTPUT)):
            columns |= self._tensors[name].columns(name, known)
        return [column.feature(name) for name, column in list(columns.items())[:MAX_COLUMNS]]


def renamed(features: list[Feature], known: Collection[str]) -> list[Feature]:
    """Columns with the names that a baseline has for them, if that does not tell inputs and outputs apart.

    Model Monitor calls columns of JSON by their members alone, and numbers columns of CSV, those of outputs first; a
    baseline of training data has their own names, and may have no outputs.
    """
    if not known or any(name.startswith((INPUT, OUTPUT)) for name in known):
        return features
    bare = [feature.name.partition(".")[2] for feature in features]
    if len(set(bare)) == len(bare) and not set(known).isdisjoint(bare):
        return [replace(feature, name=name) for feature, name in zip(features, bare, strict=True)]
    inputs = [feature for feature in features if feature.name.startswith(INPUT)]
    outputs = [feature for feature in features if feature.name.startswith(OUTPUT)]
    for ordered in (outputs + inputs, inputs):
        if len(ordered) == len(known):
            return [replace(feature, name=name) for feature, name in zip(ordered, known, strict=True)]
    return features


def _is_lines(payload: Payload) -> bool:
    media_type = essence(payload.content_type)
    return payload.encoding == CSV or media_type in {"text/csv", *_LINES} or payload.body.lstrip()[:1] == b"["


def _rows(array: Array, *, is_lines: bool) -> Array:
    """An array as rows: two dimensions."""
    if array.ndim == 0:
        return array.reshape(1, 1)
    if array.ndim == 1:
        return array.reshape(-1, 1) if is_lines else array.reshape(1, -1)
    return array.reshape(len(array), -1) if array.size else np.empty((len(array), 0))


def _add(column: Column, values: Array) -> None:
    if values.dtype.kind in "iuf":
        column.add_numbers(values)
        return
    for value in values.tolist():
        if value is None:
            column.add_missing(1)
        elif isinstance(value, bool):
            column.add_text("true" if value else "false")
        else:
            column.add_text(value.decode(errors="replace") if isinstance(value, bytes) else str(value))
