"""Take the pictures of the consoles that are in docs/: `python -m scripts.console_pictures build/examples`.

It serves the example models that `python -m examples.build` has made in that directory, and a host as the tests of its
console do, sends them requests for a minute, and takes what Chromium shows. `--seconds 5` is enough to see whether it
works.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, FloatRect, Page, ViewportSize, expect

from examples.chat.build import build
from tests.hosting.console import serving as hosts
from tests.support.browser import chromium, opened
from tests.support.meanwhile import meanwhile
from tests.support.server import ServerProcess, start_server

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WINDOW: ViewportSize = {"width": 1280, "height": 860}
FLAGS = (
    "--model-control-mode=explicit",
    "--load-model=*",
    "--exit-on-error=false",
    "--model-memory-budget=1GB",
)
CLIENTS = 4
PAUSE_S = 0.005


class Camera:
    """Takes pictures of a console.

    Args:
        page: shows it.
        url: where the console is.
        seconds: how long it is looked at before pictures under load.
    """

    def __init__(self, page: Page, url: str, seconds: float) -> None:
        page.set_viewport_size(WINDOW)
        page.goto(url)
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        self.page = page
        self._seconds = seconds

    def show(self, view: str) -> None:
        """Go to a view, such as `#/logs`, without forgetting what has been seen."""
        self.page.evaluate(f"location.hash = '{view}'")

    def wait(self) -> None:
        """Look on for a while."""
        self.page.wait_for_timeout(self._seconds * 1000)

    def take(self, name: str, height: int | None = None) -> None:
        """Take a picture of the whole page, or of so many pixels of it from the top."""
        self.page.mouse.move(0, 0)
        clip = None if height is None else FloatRect(x=0, y=0, width=WINDOW["width"], height=height)
        self.page.screenshot(path=DOCS / f"console-{name}.png", full_page=True, clip=clip)


@contextmanager
def camera(browser: Browser, url: str, seconds: float) -> Iterator[Camera]:
    """A camera in a page of its own."""
    with opened(browser, color_scheme="light") as page:
        yield Camera(page, url, seconds)


# a server


def of_a_server(browser: Browser, place: Path, examples: Path, seconds: float) -> None:
    """A server that is empty, then one with models under load, of which one has failed."""
    (place / "empty").mkdir()
    with (
        start_server(place / "empty") as server,
        camera(browser, f"http://{server.http}/console", seconds) as shown,
    ):
        expect(shown.page.get_by_text("There are no models yet")).to_be_visible()
        processor = shown.page.locator(".tile").filter(has_text="Processor")
        expect(processor.locator(".figure")).not_to_have_text("–")
        shown.take("empty", 600)
    models = place / "models"
    shutil.copytree(examples / "models", models)
    (models / "broken" / "1").mkdir(parents=True)
    (models / "broken" / "1" / "model.onnx").write_bytes(b"no model")
    digit = json.loads((examples / "digit.json").read_text())
    with (
        start_server(models, *FLAGS, ready=False) as server,
        camera(browser, f"http://{server.http}/console", seconds) as shown,
    ):
        expect(shown.page.get_by_text("1 failed")).to_be_visible(timeout=60_000)
        with load(server, requests_of(server) | {"digits": digit}):
            shown.wait()
            shown.take("overview", 860)
            shown.show("#/model/broken/1")
            expect(shown.page.get_by_role("heading", name="broken")).to_be_visible()
            shown.take("failed", 240)
            shown.show("#/model/digits/1")
            shown.page.wait_for_timeout(1500)
            shown.take("model")
            shown.show("#/model/digits/1/try")
            pixels = [value for row in digit["inputs"][0]["data"] for value in row]
            shown.page.get_by_label("Values of image").fill(" ".join(map(str, pixels)))
            shown.page.get_by_role("button", name="Send").click()
            expect(shown.page.locator(".answer dt").first).to_have_text("seven")
            shown.page.get_by_role("button", name="tritonclient").click()
            shown.take("try", 810)


def of_a_chat(browser: Browser, place: Path) -> None:
    """A conversation with the model of `make chat`, which is made with fewer steps if it is not there."""
    models = ROOT / "build" / "chat" / "models"
    if not (models / "scribe" / "1").is_dir():
        build(place / "chat", steps=100)
        models = place / "chat" / "models"
    with (
        start_server(models, "--allow-openai=true", "--allow-grpc=false") as server,
        camera(browser, f"http://{server.http}/console", 0) as shown,
    ):
        shown.show("#/model/scribe/1/try")
        message = shown.page.get_by_label("Message", exact=True)
        shown.page.get_by_label("Temperature").fill("0")
        shown.page.get_by_label("Most tokens").fill("60")
        message.fill("Dynamic batching")
        message.press("Enter")
        expect(shown.page.get_by_role("status").filter(has_text="tokens/s")).to_be_visible()
        expect(shown.page.get_by_role("log")).to_have_attribute("aria-busy", "false")
        shown.page.get_by_role("button", name="openai").click()
        shown.take("chat")


def requests_of(server: ServerProcess) -> dict[str, Any]:
    """Model → a request for it, of those that answer once."""
    with urllib.request.urlopen(f"http://{server.http}/v2/console/snapshot", timeout=10) as answer:
        models = json.loads(answer.read())["models"]
    found = {}
    for model in models:
        if model["state"] == "READY" and not model["decoupled"]:
            url = f"http://{server.http}/v2/models/{model['name']}"
            with urllib.request.urlopen(url, timeout=10) as answer:
                found[model["name"]] = {"inputs": list(map(_tensor, json.loads(answer.read())["inputs"]))}
    return found


def _tensor(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tensor of ones as an input's metadata has it."""
    shape = [max(size, 1) for size in metadata["shape"]]
    count = 1
    for size in shape:
        count *= size
    values = {"BYTES": "1", "BOOL": True}
    return {
        "name": metadata["name"],
        "datatype": metadata["datatype"],
        "shape": shape,
        "data": [values.get(metadata["datatype"], 1)] * count,
    }


@contextmanager
def load(server: ServerProcess, requests: Mapping[str, Any]) -> Iterator[None]:
    """Meanwhile several clients send the requests, most of them to `digits`."""

    def infer(model: str, body: bytes) -> None:
        url = f"http://{server.http}/v2/models/{model}/infer"
        try:
            urllib.request.urlopen(url, body, timeout=10).close()
        except urllib.error.HTTPError as error:
            error.close()

    shares = [(model, CLIENTS if model == "digits" else 1) for model in requests]
    clients = [
        (partial(infer, model, json.dumps(requests[model]).encode()), PAUSE_S * 4 / count)
        for model, count in shares
        for _ in range(count)
    ]
    with meanwhile(*clients):
        yield


# a host


def of_a_host(browser: Browser, place: Path, seconds: float) -> None:
    """A host during a canary deployment."""
    with (
        hosts.served(place) as host,
        hosts.load(host),
        camera(browser, f"{host.url}/console", seconds) as shown,
    ):
        hosts.begin_canary(host, "reader", "next", hosts.ALARM)
        expect(shown.page.get_by_text("The new fleet takes 30 %")).to_be_visible(timeout=60_000)
        runtime = host.client("sagemaker-runtime")
        for model in ("first.tar.gz", "second.tar.gz", "bad.tar.gz"):
            hosts.invoke(runtime, "many", b"[]", TargetModel=model)
        shown.wait()
        shown.take("host")
        shown.show("#/endpoint/reader")
        expect(shown.page.get_by_role("heading", name="Data capture")).to_be_visible()
        shown.page.wait_for_timeout(1500)
        shown.take("host-endpoint", 1300)
        shown.show("#/endpoint/many/models")
        expect(shown.page.get_by_text("second.tar.gz")).to_be_visible()
        shown.take("host-models", 620)
        shown.show("#/endpoint/reader/try")
        shown.page.get_by_label("Text of the body").fill('{"numbers": [27, 18, 28]}')
        shown.page.get_by_role("button", name="Send").click()
        expect(shown.page.get_by_role("region", name="Values of same")).to_be_visible()
        shown.page.get_by_role("button", name="boto3").click()
        shown.take("host-try")


def main() -> None:
    """Take all of them."""
    parser = argparse.ArgumentParser(description="Take the pictures of the consoles that are in docs/.")
    parser.add_argument("examples", type=Path, help="What python -m examples.build has made.")
    parser.add_argument("--seconds", type=float, default=60.0, help="How long requests are sent before one.")
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="console-") as directory, chromium() as browser:
        for name in ("server", "host"):
            (Path(directory) / name).mkdir()
        of_a_server(browser, Path(directory) / "server", given.examples, given.seconds)
        of_a_chat(browser, Path(directory))
        of_a_host(browser, Path(directory) / "host", given.seconds)
    sys.stdout.write(f"docs/console-*.png: taken in {time.monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    main()
