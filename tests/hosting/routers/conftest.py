"""Every test here has two routers."""

from collections.abc import Iterator

import pytest

from tests.hosting.routing.serving import PROCESSES


@pytest.fixture(autouse=True)
def two_routers() -> Iterator[None]:
    """Two processes answer invocations."""
    PROCESSES.count = 2
    yield
    PROCESSES.count = 1


@pytest.fixture(scope="module", autouse=True)
def farms() -> Iterator[None]:
    """The routers that tests of a module share are ended with it."""
    yield
    PROCESSES.close()
