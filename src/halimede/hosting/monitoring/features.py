"""Columns as they are compared: counts, moments and distributions of one column each."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from halimede.core.tensors import Array
from halimede.hosting.monitoring.sketch import LARGEST, Sketch

_TEXT_CHARACTERS = 128
"""Longer texts are told apart by so many."""

MAX_CATEGORIES = 1_000
"""So many values of a column are counted one by one."""

_FEW = 512
"""Numbers are collected until there are so many."""


class InferredType(StrEnum):
    """What a column holds, as SageMaker calls it."""

    INTEGRAL = "Integral"
    FRACTIONAL = "Fractional"
    STRING = "String"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a column.

    Attributes:
        mean, total, deviation: their mean, sum and standard deviation.
        least, most: the least and the greatest.
        points: values, sorted.
        weights: how many numbers each of the points stands for.
        is_sketch: whether the points are numbers of the column; otherwise they are the upper bounds of buckets.
    """

    mean: float
    total: float
    deviation: float
    least: float
    most: float
    points: Array
    weights: Array
    is_sketch: bool = True

    @property
    def count(self) -> float:
        """How many numbers there are."""
        return float(self.weights.sum())


@dataclass(frozen=True, slots=True)
class Feature:
    """What is known of a column.

    Attributes:
        name: such as ``input.age``.
        type: what it holds.
        present, missing: how many values are there, and how many are not.
        numbers: its numbers, if it has any.
        categories: value → how often it is there; of texts and whole numbers.
        distinct: how many different values it has, as far as they were counted.
        are_all_counted: whether all values are among the categories.
        kinds: type → how many values are of it.
    """

    name: str
    type: InferredType
    present: int
    missing: int
    numbers: Numbers | None = None
    categories: Mapping[str, int] = field(default_factory=dict)
    distinct: int = 0
    are_all_counted: bool = True
    kinds: Mapping[InferredType, int] = field(default_factory=dict)

    @property
    def completeness(self) -> float:
        """Which share of its values is there."""
        count = self.present + self.missing
        return self.present / count if count else 0.0


class Column:
    """Takes the values of one column, as many as there may be, in bounded memory."""

    def __init__(self) -> None:
        self._kinds = dict.fromkeys((InferredType.INTEGRAL, InferredType.FRACTIONAL, InferredType.STRING), 0)
        self._missing = 0
        self._sketch = Sketch()
        self._mean = self._squares = self._total = 0.0
        self._least, self._most = math.inf, -math.inf
        self._waiting: list[Array] = []
        self._waiting_count = 0
        self._categories: dict[str, int] = {}
        self._uncounted = 0

    def add_missing(self, count: int) -> None:
        """Count values that are not there."""
        self._missing += count

    def add_numbers(self, values: Array) -> None:
        """Add numbers of an array with one dimension; those that are not finite or too large count as missing."""
        if values.dtype.kind == "f":
            numbers = values.astype(np.float64)
            finite = numbers[np.abs(numbers) <= LARGEST]  # NaN is neither
            self._missing += len(values) - len(finite)
            self._kinds[InferredType.FRACTIONAL] += len(finite)
        else:
            finite = values.astype(np.float64)
            self._kinds[InferredType.INTEGRAL] += len(finite)
            found, counts = np.unique(values, return_counts=True)
            for value, count in zip(found.tolist(), counts.tolist(), strict=True):
                self._count(str(value), count)
        self._waiting.append(finite)
        self._waiting_count += len(finite)
        if self._waiting_count >= _FEW:
            self._flush()

    def add_text(self, text: str) -> None:
        """Add a text."""
        self._kinds[InferredType.STRING] += 1
        self._count(text[:_TEXT_CHARACTERS], 1)

    def _count(self, value: str, count: int) -> None:
        if value in self._categories or len(self._categories) < MAX_CATEGORIES:
            self._categories[value] = self._categories.get(value, 0) + count
        else:
            self._uncounted += count

    def _flush(self) -> None:
        if not self._waiting_count:
            self._waiting.clear()
            return
        values = np.concatenate(self._waiting)
        self._waiting.clear()
        self._waiting_count = 0
        before, added = self._sketch.count, len(values)
        mean = float(values.mean())
        shift = mean - self._mean
        self._squares += float(((values - mean) ** 2).sum()) + shift * shift * before * added / (
            before + added
        )
        self._mean += shift * added / (before + added)
        self._total += float(values.sum())
        self._least = min(self._least, float(values.min()))
        self._most = max(self._most, float(values.max()))
        self._sketch.add(values)

    def feature(self, name: str) -> Feature:
        """What is known of it by now."""
        self._flush()
        return Feature(
            name,
            self._type(),
            sum(self._kinds.values()),
            self._missing,
            self._numbers(),
            dict(self._categories),
            len(self._categories),
            self._uncounted == 0,
            dict(self._kinds),
        )

    def _type(self) -> InferredType:
        for kind in (InferredType.STRING, InferredType.FRACTIONAL, InferredType.INTEGRAL):
            if self._kinds[kind]:
                return kind
        return InferredType.UNKNOWN

    def _numbers(self) -> Numbers | None:
        count = self._sketch.count
        if not count:
            return None
        deviation = math.sqrt(self._squares / count) if self._squares >= 0 else math.nan
        return Numbers(self._mean, self._total, deviation, self._least, self._most, *self._sketch.points())
