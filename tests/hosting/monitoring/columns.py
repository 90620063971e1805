"""Columns of known values, for tests."""

from collections.abc import Iterable

import numpy as np

from halimede.core.tensors import Array
from halimede.hosting.monitoring.features import Column, Feature


def numbers(values: Array, name: str = "x", *, chunk: int = 4096) -> Feature:
    """The column of an array, which comes in pieces."""
    column = Column()
    for begin in range(0, len(values), chunk):
        column.add_numbers(values[begin : begin + chunk])
    return column.feature(name)


def texts(values: Iterable[str | None], name: str = "x") -> Feature:
    """The column of texts; None is missing."""
    column = Column()
    for value in values:
        if value is None:
            column.add_missing(1)
        else:
            column.add_text(value)
    return column.feature(name)


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)
