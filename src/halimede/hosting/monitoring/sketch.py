"""The distribution of any number of values in bounded memory: a KLL sketch.

Levels hold values that stand for 1, 2, 4, … values each. A level that is full is sorted, and every second one of it
goes up. With k = 2048, as SageMaker has it, a rank is right to about 0.1 %, and no more than some 6,000 values are
kept.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from halimede.core.tensors import Array

LARGEST = 1e150
"""Larger numbers are none that are kept, so that their squares have room."""

_K = 2048
_C = 0.64


class Sketch:
    """Values, as many as there may be.

    Attributes:
        count: how many were added.
    """

    def __init__(self) -> None:
        self.count = 0
        self._levels: list[Array] = [np.empty(0)]
        self._random = np.random.default_rng(0)

    def add(self, values: Array) -> None:
        """Add finite numbers."""
        self.count += len(values)
        for begin in range(0, len(values), _K):
            self._levels[0] = np.concatenate([self._levels[0], values[begin : begin + _K]])
            self._compress()

    def _compress(self) -> None:
        while True:
            height = len(self._levels)
            full = [
                level
                for level, values in enumerate(self._levels)
                if len(values) > max(8, math.ceil(_K * _C ** (height - 1 - level)))
            ]
            if not full:
                return
            level = full[0]
            if level + 1 == height:
                self._levels.append(np.empty(0))
            values = np.sort(self._levels[level])
            paired = len(values) // 2 * 2  # an odd one stays, so that weights add up to the count
            kept = values[self._random.integers(2) : paired : 2]
            self._levels[level] = values[paired:]
            self._levels[level + 1] = np.concatenate([self._levels[level + 1], kept])

    def points(self) -> tuple[Array, Array]:
        """The values that are kept, sorted, and how many values each stands for."""
        values = np.concatenate(self._levels)
        weights = np.concatenate(
            [np.full(len(each), float(1 << level)) for level, each in enumerate(self._levels)]
        )
        order = np.argsort(values, kind="stable")
        return values[order], weights[order]


def document_of(values: Array, weights: Array) -> dict[str, Any]:
    """Points as `statistics.json` has them; their weights are powers of two."""
    heights = np.log2(weights).astype(int) if len(weights) else np.zeros(1, int)
    return {
        "parameters": {"c": _C, "k": float(_K)},
        "data": [values[heights == height].tolist() for height in range(int(heights.max()) + 1)],
    }


def points_of(document: Mapping[str, Any]) -> tuple[Array, Array]:
    """The points of a sketch in `statistics.json`.

    Raises:
        ValueError, TypeError, LookupError: it is none.
    """
    levels: Sequence[Sequence[float]] = document["data"]
    values = np.concatenate([np.asarray(level, float) for level in levels])
    weights = np.concatenate([np.full(len(level), 2.0**height) for height, level in enumerate(levels)])
    if not (np.abs(values) <= LARGEST).all():
        msg = "its values are not finite, or too large"
        raise ValueError(msg)
    order = np.argsort(values, kind="stable")
    return values[order], weights[order]
