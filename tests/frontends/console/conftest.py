"""A server with models, a real Chromium, and a page in it that shows the server's console."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, ViewportSize, sync_playwright

from tests.frontends.console.models import write_models
from tests.support.server import ServerProcess, start_server

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
WINDOW: ViewportSize = {"width": 1440, "height": 900}


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
    program = shutil.which("chromium")
    assert program, "the tests of the console need Chromium: on Debian, apt-get install chromium"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own for each test. What it logs as an error, such as a breach of its policy, fails the test."""
    context = browser.new_context(viewport=WINDOW)
    context.set_default_timeout(20_000)
    opened = context.new_page()
    errors: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            errors.append(message.text)

    opened.on("console", note)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert errors == []
