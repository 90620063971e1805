"""A server with models, a real Chromium, and a page in it that shows the server's console."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.frontends.console.models import write_models
from tests.support.browser import chromium, opened
from tests.support.server import ServerProcess, start_server


@pytest.fixture(scope="package")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("repository")
    write_models(directory)
    return directory


@pytest.fixture(scope="package")
def server(repository: Path) -> Iterator[ServerProcess]:
    flags = ("--model-control-mode=explicit", "--load-model=*", "--exit-on-error=false")
    with start_server(repository, *flags, "--model-memory-budget=1GB", ready=False) as running:
        running.wait_until(lambda: running.get("/v2/models/writer/ready")[0] == 200, "the models")
        running.wait_for('"Models"')
        yield running


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with opened(browser) as shown:
        yield shown
