"""Functions and a class, each served as a model: see docs/functions.md."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from halimede import Tensor, model

Rows = Annotated[npt.NDArray[np.float32], Tensor("FP32", [-1, 4])]
Scores = Annotated[npt.NDArray[np.float32], Tensor("FP32", [-1, 2])]


def add(a: float, b: float) -> float:
    return a + b


class Counts(NamedTuple):
    words: int
    letters: int


def count(text: str, longest: int = 1000) -> Counts:
    if len(text) > longest:
        raise ValueError(f"text has {len(text)} letters; at most {longest} are counted")
    return Counts(len(text.split()), len(text))


@model(batch=32, delay_us=500, instances=2)
class Classifier:
    def __init__(self) -> None:
        self.weights = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)  # here a real model is loaded

    def __call__(self, rows: Rows) -> Scores:
        return np.asarray(rows @ self.weights, np.float32)


def countdown(start: int) -> Iterator[int]:
    yield from range(start, 0, -1)


async def spell(word: str) -> AsyncIterator[str]:
    for letter in word:
        await asyncio.sleep(0.01)
        yield letter


async def slow_square(x: float) -> float:
    await asyncio.sleep(0.01)  # as a request to a database takes; meanwhile other calls go on
    return x**2
