"""Steps that take long, such as the fetch of a model, for whoever shows how far they are.

Whoever does such a step says so with `step`. On a terminal, the command line watches, and shows bars; without a watcher
nothing happens.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True, eq=False)
class Step:
    """A step that is under way. Watchers look at it now and then, on threads of their own.

    Attributes:
        text: what is done, such as `Fetching 'bert'`.
        total: of how many units it consists; None if that is not known.
        of_bytes: the units are bytes.
        done: how many units are done.
        position: tells how many are done, in place of `done`; None if `done` says it.
    """

    text: str
    total: int | None = None
    of_bytes: bool = False
    done: int = 0
    position: Callable[[], int] | None = None

    def advance(self, count: int) -> None:
        """So many further units are done."""
        self.done += count


class Watcher(Protocol):
    """Is told of steps, on the threads that do them."""

    def begun(self, step: Step) -> None:
        """A step has begun."""

    def ended(self, step: Step) -> None:
        """A step has ended; its `position` is not to be called any more."""


_watchers: list[Watcher] = []


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Tell the watcher of steps that begin in the block, on any thread."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


@contextmanager
def step(
    text: str,
    total: int | None = None,
    *,
    of_bytes: bool = False,
    position: Callable[[], int] | None = None,
) -> Iterator[Step]:
    """The block is a step; the arguments are those of `Step`."""
    made = Step(text, total, of_bytes, position=position)
    watchers = tuple(_watchers)
    for each in watchers:
        each.begun(made)
    try:
        yield made
    finally:
        for each in watchers:
            each.ended(made)
