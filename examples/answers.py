"""What the clients of the walk-throughs share: inputs, and answers that are held against the framework's."""

from typing import Any

import numpy as np
import tritonclient.http as triton
from numpy.typing import NDArray
from tritonclient.utils import np_to_triton_dtype

TOLERANCE = 1e-4
"""How far an answer may be from the framework's, as a share of the largest value: kernels add in other orders."""


def tensor(name: str, array: NDArray[Any]) -> triton.InferInput:
    """An input of a request."""
    one = triton.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
    one.set_data_from_numpy(array)
    return one


def difference(
    served: NDArray[np.float32], expected: NDArray[np.float32], tolerance: float = TOLERANCE
) -> float:
    """The largest difference between what a server gave and what the framework gives.

    Raises:
        SystemExit: it is beyond the tolerance, or the shapes differ; the text says both sides.
    """
    if served.shape != expected.shape:
        raise SystemExit(f"wrong answer: shape {served.shape}, and the framework gives {expected.shape}")
    found = float(np.abs(served - expected).max())
    allowed = tolerance * float(np.abs(expected).max())
    if not found <= allowed:  # nan is beyond it too
        raise SystemExit(
            f"wrong answer: it is {found:.1e} from the framework's, and {allowed:.1e} is allowed"
        )
    return found
