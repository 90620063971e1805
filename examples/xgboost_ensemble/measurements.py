"""A row of measurements as the trees want it: what training and serving share, so that they cannot drift apart.

`build.py` trains with it, and puts a copy beside the model that prepares what is asked of the server.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MEASUREMENTS = 10
"""Properties of the cell nuclei in a picture, such as their radius."""

COLUMNS = 3 * MEASUREMENTS
"""Values in a row: the means of the measurements over all nuclei, their standard errors, and their worst values."""

FEATURES = COLUMNS + MEASUREMENTS
"""Values in a row for the trees."""

_MISSING = ("", "?")


def parse(row: str) -> list[float]:
    """The values of a row of text, which commas separate; what is empty or `?` is missing, NaN.

    Raises:
        ValueError: there are not `COLUMNS` values, or one is no number.
    """
    texts = [text.strip() for text in row.split(",")]
    if len(texts) != COLUMNS:
        raise ValueError(f"a row has {COLUMNS} values with commas between them, got {len(texts)}")
    values = []
    for number, text in enumerate(texts, 1):
        try:
            values.append(float("nan") if text in _MISSING else float(text))
        except ValueError:
            raise ValueError(f"value {number} of the row must be a number, got '{text}'") from None
    return values


def features(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    """The features [rows, FEATURES] of rows [rows, COLUMNS].

    A tree tests one value at a time, so that a ratio takes it many steps: how far the worst value of each measurement
    is above its mean is therefore a feature too. Where the mean is 0, it is missing.
    """
    means, worst = rows[:, :MEASUREMENTS], rows[:, -MEASUREMENTS:]
    ratios = np.divide(worst, means, out=np.full(means.shape, np.nan), where=means != 0)
    return np.hstack([rows, ratios]).astype(np.float32)
