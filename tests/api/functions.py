"""Functions that tests serve."""

import asyncio
import functools
import json
import os
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from halimede import Tensor, model

Rows = Annotated[npt.NDArray[np.float32], Tensor("FP32", [-1, 4])]


class Greeting(NamedTuple):
    text: str
    length: int


def greet(name: str, times: int = 1) -> Greeting:
    if not name:
        raise ValueError("name must not be empty")
    if name == "nobody":
        raise LookupError("nobody is there")
    text = f"hello {name} " * times
    return Greeting(text, len(text))


@model(batch=8, delay_us=200_000)
def batched(x: Rows) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Twice the rows, and how many came together."""
    return x * 2, np.full(len(x), len(x))


@model(batch=8, delay_us=200_000)
def positive(x: Rows) -> Rows:
    """The rows, which must not be negative."""
    if x.min() < 0:
        raise ValueError(f"{x.min():g} is negative")
    return x


@model(batch=8, delay_us=200_000)
async def positive_later(x: Rows) -> Rows:
    return positive(x)


@model(batch=8, delay_us=200_000, repeat_failed=False)
def positive_at_once(x: Rows) -> Rows:
    return positive(x)


def parsed(text: str) -> str:
    """The text of a document, which a library reads."""
    return str(json.loads(text)["text"])


def squared(x: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A square, which a library in C makes."""
    return x.reshape(2, 2)


@model(batch=8)
def upper(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]


def countdown(n: int) -> Iterator[int]:
    if n < 0:
        raise ValueError("n must not be negative")
    while n:
        yield n
        n -= 1


async def words(text: str) -> AsyncIterator[str]:
    for word in text.split():
        await asyncio.sleep(0)
        yield word


_waiting: "list[asyncio.Future[None]]" = []


async def rendezvous(x: float) -> float:
    """Answers once two calls are under way."""
    if not _waiting:
        _waiting.append(asyncio.get_running_loop().create_future())
        await _waiting[0]
    else:
        _waiting.pop().set_result(None)
    return float(x**0.5)


@model(isolation="none")
def here(x: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], int]:
    return x[::-1], os.getpid()


@model(name="counter", instances=1)
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, by: int) -> int:
        self.count += by
        return self.count


class Adder:
    """Adds what each object of it was made with."""

    def __init__(self, summand: float) -> None:
        self.summand = summand

    def __call__(self, x: float, factor: float = 1) -> float:
        return x * factor + self.summand

    def doubled(self, x: float) -> float:
        return 2 * x + self.summand


@model(name="in_process", isolation="none")
class AdderHere(Adder):
    pass


def scaled(x: float, factor: float) -> float:
    return x * factor


add_three = Adder(3)
tripled = functools.partial(scaled, factor=3)


def wrong(x: float) -> float:
    return "text"  # type: ignore[return-value]
