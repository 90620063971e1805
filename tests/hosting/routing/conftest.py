"""What is tested here holds with one process and with two routers."""

from collections.abc import Iterator

import pytest

from tests.hosting.routing.serving import PROCESSES


@pytest.fixture(autouse=True, params=[1, 2], ids=["one-process", "two-routers"])
def processes(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many processes answer invocations."""
    PROCESSES.count = request.param
    yield PROCESSES.count
    PROCESSES.count = 1


@pytest.fixture(scope="package", autouse=True)
def farms() -> Iterator[None]:
    """The routers that the tests of this directory share are ended with the last of them."""
    yield
    PROCESSES.close()
