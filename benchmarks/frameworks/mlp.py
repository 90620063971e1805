"""The network that most frameworks compute: fully connected layers with rectifiers between them."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from benchmarks.frameworks.framework import MLP_FEATURES, Size

WIDTHS = {Size.SMALL: (MLP_FEATURES, 512, 512, 10), Size.LARGE: (MLP_FEATURES, 2048, 2048, 2048, 10)}

Array = NDArray[np.float32]


def layers(size: Size) -> list[tuple[Array, Array]]:
    """Weights of shape [in, out] and bias of each layer; random, and the same each time."""
    random = np.random.default_rng(0)
    widths = WIDTHS[size]
    return [
        (
            random.standard_normal((before, after), np.float32) * np.float32((2 / before) ** 0.5),
            random.standard_normal(after, np.float32),
        )
        for before, after in pairwise(widths)
    ]
