"""A real Chromium, and pages in it whose errors are found."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, ViewportSize, expect, sync_playwright

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "build" / "console"
AXE = ROOT / "build" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
_PATIENCE_S = 60
expect.set_options(timeout=_PATIENCE_S * 1000)
_POINTS = 3
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WINDOW: ViewportSize = {"width": 1440, "height": 900}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, if possible the program without a user interface, which takes half the processor time."""
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    assert program, (
        "the tests of the console need Chromium: on Debian, apt-get install chromium-headless-shell"
    )
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield opened
        opened.close()


@contextmanager
def opened(browser: Browser, **options: Any) -> Iterator[Page]:
    """A page of its own. What it logs as an error, such as a breach of its policy, is an error here."""
    context = browser.new_context(viewport=WINDOW, **options)
    context.set_default_timeout(_PATIENCE_S * 1000)
    page = context.new_page()
    errors: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            errors.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


def keep(page: Page, name: str) -> None:
    """Keep a picture of the page for people to look at, if the environment has `TEST_PICTURES`: it takes time."""
    if not os.environ.get("TEST_PICTURES"):
        return
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


def wait_for_lines(page: Page) -> None:
    """Return once the lines of the charts have some length."""
    deadline = time.monotonic() + _PATIENCE_S
    while page.evaluate("Number(document.querySelector('.plot')?.dataset.points ?? 0)") < _POINTS:
        assert time.monotonic() < deadline, "the charts have no lines"
        page.wait_for_timeout(100)


def watch_stream(page: Page) -> None:
    """From now on note each text that a stream on the page has, in the set `window.seen`."""
    page.evaluate(
        """() => {
            window.seen = new Set();
            new MutationObserver(() => {
                const text = document.querySelector('.stream')?.textContent;
                if (text) window.seen.add(text);
            }).observe(document.body, {subtree: true, childList: true, characterData: true});
        }"""
    )


def found_by_axe(page: Page) -> list[tuple[str, str]]:
    """What axe-core finds wrong (https://github.com/dequelabs/axe-core), which `make test` fetches: rule and place."""
    assert AXE.exists(), (
        f"{AXE} is missing: run scripts/need-npm-package.sh axe-core@4.14.1 axe-core/axe.min.js"
    )
    found = page.evaluate(AXE.read_text() + "; axe.run()")["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in found]
