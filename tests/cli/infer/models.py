"""Functions that tests of the command send requests to."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
import numpy.typing as npt

from halimede import Tensor, model

Rows = Annotated[npt.NDArray[np.float32], Tensor("FP32", [-1, 3])]
Picture = Annotated[npt.NDArray[np.uint8], Tensor("UINT8", [-1, 3, 4, 8])]


@model(batch=8)
def double(x: Rows) -> Rows:
    return x * 2


@model(batch=8)
def mean_colour(picture: Picture) -> Rows:
    return np.asarray(picture.mean((2, 3)), np.float32)


def greet(name: str, times: int = 1) -> str:
    return f"hello {name} " * times


def size(content: bytes) -> int:
    return len(content)


def countdown(n: int) -> Iterator[int]:
    if n < 0:
        raise ValueError("n must not be negative")
    yield from range(n, 0, -1)
