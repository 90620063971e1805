"""Router processes that tests share are ended with their module."""

from collections.abc import Iterator

import pytest

from tests.hosting.routing.serving import PROCESSES


@pytest.fixture(params=[1, 2], ids=["one-process", "two-routers"])
def processes(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many processes answer invocations."""
    PROCESSES.count = request.param
    yield PROCESSES.count
    PROCESSES.count = 1


@pytest.fixture(scope="module", autouse=True)
def farms() -> Iterator[None]:
    """The routers that tests of a module share are ended with it."""
    yield
    PROCESSES.close()
