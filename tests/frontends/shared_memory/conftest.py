"""Memory that goes with the test."""

from collections.abc import Callable, Iterator

import pytest

from tests.frontends.shared_memory.support import SIZE, Memory


@pytest.fixture
def memory() -> Iterator[Callable[..., Memory]]:
    """Makes shared memory."""
    made: list[Memory] = []

    def make(size: int = SIZE, values: object = 0) -> Memory:
        made.append(Memory(size, values))
        return made[-1]

    yield make
    for each in made:
        each.close()
