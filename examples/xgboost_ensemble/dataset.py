"""The data: Breast Cancer Wisconsin (Diagnostic), which scikit-learn brings."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

SEED = 0


class Split(NamedTuple):
    """Rows [rows, COLUMNS] and their classes, for training and for testing, and the names of the classes."""

    rows: NDArray[np.float64]
    classes: NDArray[np.int64]
    test_rows: NDArray[np.float64]
    test_classes: NDArray[np.int64]
    labels: list[str]


def load() -> Split:
    """The data, a quarter of it for testing; the same split each time."""
    data = load_breast_cancer()
    rows, test_rows, classes, test_classes = train_test_split(
        data.data, data.target, test_size=0.25, random_state=SEED, stratify=data.target
    )
    return Split(rows, classes, test_rows, test_classes, [str(name) for name in data.target_names])


def as_text(row: NDArray[np.float64]) -> str:
    """A row as it stands in a file: its values with commas between them."""
    return ",".join(repr(float(value)) for value in row)
