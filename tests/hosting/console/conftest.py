"""A host with endpoints, a real Chromium, and a page in it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.hosting.console.serving import served
from tests.support.browser import chromium, opened
from tests.support.host import HostProcess


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="package")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    with served(tmp_path_factory.mktemp("host")) as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with opened(browser) as shown:
        yield shown
