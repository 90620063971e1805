"""One server for all tests of a directory, and the official client of it."""

from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.frontends.openai.models import write_repository
from tests.support.server import ServerProcess, start_server


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("repository")
    write_repository(directory)
    with start_server(directory, "--allow-openai=true", "--allow-grpc=false") as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"http://{server.http}/v1", api_key="none", max_retries=0, timeout=30) as opened:
        yield opened
