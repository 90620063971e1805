"""Work on many things, such as all models, in steps, so that other requests are answered in between."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


def in_steps(
    items: Iterable[Item], work: Callable[[Item], Made], per_step: int
) -> Generator[None, None, list[Made]]:
    """What the work makes of each.

    Args:
        items: what is worked on.
        work: called with each.
        per_step: so many of them take about a millisecond.
    """
    made: list[Made] = []
    for number, item in enumerate(items):
        if number and number % per_step == 0:
            yield
        made.append(work(item))
    return made


async def taken(steps: Generator[None, None, Made]) -> Made:
    """What the steps make, taken one in each turn of the loop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: Made = end.value
            return made
        await asyncio.sleep(0)


def whole(steps: Generator[None, None, Made]) -> Made:
    """What the steps make, taken all at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: Made = end.value
            return made
