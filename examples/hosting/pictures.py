"""The pictures of scikit-learn's digits, which `examples.hosting.build` has written: its import takes seconds."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

NAME = "pictures.npz"


def read_pictures(directory: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures [n, 8, 8], and the digit that each shows."""
    with np.load(directory / NAME) as stored:
        return stored["images"], stored["targets"]
