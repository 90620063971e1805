"""A server, its clients, and memory that goes with the test."""

from collections.abc import Callable, Iterator

import pytest

from tests.frontends.shared_memory.support import SIZE, Client, Memory, grpc, http, serving
from tests.support.server import ServerProcess
from tests.support.waiting import wait_until


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


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that lets clients share memory."""
    with serving(tmp_path_factory.mktemp("repository")) as started:
        yield started


@pytest.fixture(params=[http, grpc], ids=["http", "grpc"])
def client(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client over each protocol; nothing of it is left when its test is over."""
    made: Callable[[ServerProcess], Client] = request.param
    opened = made(server)
    yield opened
    opened.close()
    wait_until(lambda: server.get("/v2/systemsharedmemory/status")[1] == b"[]", "the regions to be released")
