"""The console in a real browser: each view, by what a person sees and does."""

import json
import struct
import subprocess
import sys
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from playwright.sync_api import Page, expect

from halimede import serve_in_background
from halimede.core import tasks
from tests.support.browser import SCHEMES, found_by_axe, keep, wait_for_lines, watch_stream
from tests.support.meanwhile import meanwhile
from tests.support.server import ServerProcess, run_command, start_server

FEATURES = {"name": "features", "datatype": "FP32", "shape": [1, 4], "data": [0.5, 2, 1, 0]}
NUMBERS = {"name": "numbers", "datatype": "INT32", "shape": [1, 3], "data": [1, 2, 3]}


def show(page: Page, server: ServerProcess, view: str = "#/") -> None:
    page.goto(f"http://{server.http}/console{view}")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


def png(size: int, colour: tuple[int, int, int]) -> bytes:
    """A square picture of one colour, as PNG (https://www.w3.org/TR/png/)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes(colour) * size) * size
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


@contextmanager
def load(server: ServerProcess) -> Iterator[None]:
    """Meanwhile requests come from several clients, some of which fail."""

    def infer(model: str, tensor: Mapping[str, object]) -> None:
        body = json.dumps({"inputs": [tensor]}).encode()
        url = f"http://{server.http}/v2/models/{model}/infer"
        try:
            urllib.request.urlopen(url, body, timeout=60).close()
        except urllib.error.HTTPError as error:
            error.close()

    bad = {**FEATURES, "data": [-1, 0, 0, 0]}
    kinds = [("classifier", FEATURES)] * 4 + [("identity", NUMBERS), ("classifier", bad)]
    with meanwhile(*((partial(infer, model, tensor), 0.05) for model, tensor in kinds)):
        yield


def test_failures_of_the_server_itself_are_shown(page: Page) -> None:
    def double(x: float) -> float:
        return 2 * x

    with serve_in_background(double) as server:
        tasks.FAILURES.note("polling the model repositories", ValueError("the disk is gone"))
        page.goto(f"{server.url}/console")
        row = page.get_by_role("region", name="Failures of the server").get_by_role("row").nth(1)
        expect(row).to_contain_text("polling the model repositories")
        expect(row).to_contain_text("ValueError: the disk is gone")
        expect(row).to_contain_text("ago")


def test_models_are_shown_with_their_states_and_the_reason_of_a_failure(
    page: Page, server: ServerProcess
) -> None:
    show(page, server)
    rows = page.get_by_role("region", name="Models").get_by_role("row")
    expect(rows.filter(has_text="classifier")).to_contain_text("Ready")
    broken = rows.filter(has_text="broken")
    expect(broken).to_contain_text("Failed")
    expect(broken).to_contain_text("Protobuf parsing failed")
    expect(page.get_by_text("4 ready, 1 failed")).to_be_visible()
    page.get_by_label("Filter models by name").fill("writ")
    expect(rows).to_have_count(2)  # with the head
    keep(page, "filtered")
    page.get_by_label("Filter models by name").fill("")
    page.get_by_role("link", name="broken").click()
    expect(page.get_by_role("heading", name="broken")).to_be_visible()
    expect(page.locator(".note.bad").filter(has_text="Protobuf parsing failed")).to_be_visible()
    keep(page, "failed-model")


def test_figures_follow_the_load(page: Page, server: ServerProcess) -> None:
    with load(server):
        show(page, server)
        rate = page.get_by_role("img", name="Requests per second, now: answered")
        expect(rate).not_to_have_attribute(
            "aria-label", "Requests per second, now: answered 0, failed 0, cancelled 0"
        )
        row = page.get_by_role("region", name="Models").get_by_role("row").filter(has_text="classifier")
        expect(row.get_by_role("cell").nth(1)).not_to_have_text("0")
        expect(row.get_by_role("cell").nth(3)).to_contain_text("s")  # p99 in µs or ms
        page.get_by_role("link", name="classifier").click()
        sizes = page.locator("section").filter(has=page.get_by_role("heading", name="Batch sizes"))
        expect(sizes.locator(".bar").first).to_be_visible()
        closings = page.locator("section").filter(
            has=page.get_by_role("heading", name="Why batches were closed")
        )
        bar = closings.locator(".bar").filter(has_text="queue delay was over")
        expect(bar.locator(".value")).not_to_have_text("0")
        failed = page.locator("section").filter(
            has=page.get_by_role("heading", name="Failures and cancellations")
        )
        expect(failed.locator(".bar").filter(has_text="the model failed").locator(".value")).not_to_have_text(
            "0"
        )
        instances = page.get_by_role("region", name="Instances")
        expect(instances.get_by_role("row")).to_have_count(3)
        wait_for_lines(page)
        assert page.locator(".uplot canvas").count() == 4
        keep(page, "model-under-load")


def test_a_request_with_numbers_is_sent_and_its_answer_is_a_table(page: Page, server: ServerProcess) -> None:
    show(page, server, "#/model/identity/1/try")
    page.get_by_label("Values of numbers").fill("3, 1, 4, 1, 5")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Answered in")).to_be_visible()
    values = page.get_by_role("region", name="Values of same").get_by_role("cell")
    expect(values).to_have_text(["3", "1", "4", "1", "5"])
    page.get_by_label("Values of numbers").fill("1 two")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("'two' is not a whole number", exact=True)).to_be_visible()


def test_classes_are_bars_with_labels(page: Page, server: ServerProcess) -> None:
    show(page, server, "#/model/classifier/1/try")
    page.get_by_label("Values of features").fill("0 5 1 2")
    page.get_by_label("Best classes to show").fill("3")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer dt")).to_have_text(["dog", "owl", "fox"])
    keep(page, "try-classes")
    page.get_by_label("Values of features").fill("0 -5 1 2")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("features must not be negative")).to_be_visible()


def test_a_picture_is_sent_and_drawn(page: Page, server: ServerProcess, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    picture.write_bytes(png(96, (250, 200, 5)))
    show(page, server, "#/model/negative/1/try")
    page.locator("input[type=file]").set_input_files(picture)
    page.get_by_role("button", name="Send").click()
    canvas = page.get_by_role("img", name="Picture of negative")
    expect(canvas).to_be_visible()
    drawn = canvas.evaluate("(e) => [...e.getContext('2d').getImageData(20, 20, 1, 1).data]")
    assert drawn == [5, 55, 250, 255]
    expect(page.get_by_role("region", name="Values of size")).to_contain_text(str(48 * 48 * 3))
    keep(page, "try-picture")
    raw = tmp_path / "picture.bin"
    raw.write_bytes(b"\1" * 100)
    page.get_by_label("Kind of picture").select_option("File")
    page.locator("input[type=file]").set_input_files(raw)
    page.get_by_role("button", name="Send").click()
    problem = "picture: the file has 100 bytes of values, but the shape needs 6912"
    expect(page.get_by_text(problem, exact=True)).to_be_visible()


def test_a_stream_is_written_as_it_comes(page: Page, server: ServerProcess) -> None:
    show(page, server, "#/model/writer/1/try")
    watch_stream(page)
    page.get_by_label("Values of prompt").fill("A moon")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".stream")).to_contain_text("Halimede is a moon of Neptune")
    expect(page.get_by_text("20 responses in")).to_be_visible()
    assert page.evaluate("window.seen.size") > 3
    keep(page, "try-stream")
    page.get_by_label("Send", exact=True).check()
    page.get_by_label("Values of words").fill("2")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("2 responses in")).to_be_visible()
    expect(page.locator(".stream")).to_have_text("Halimede is ")


def test_the_code_makes_the_same_call(page: Page, server: ServerProcess) -> None:
    show(page, server, "#/model/identity/1/try")
    page.get_by_label("Values of numbers").fill("27 18 28")
    code = page.locator(".code code")
    expect(code).to_contain_text("27, 18, 28")
    said = subprocess.run(
        ["sh", "-c", code.inner_text()], capture_output=True, text=True, timeout=30, check=True
    )
    assert json.loads(said.stdout)["outputs"][0]["data"] == [27, 18, 28]
    page.get_by_role("button", name="tritonclient").click()
    expect(code).to_contain_text("import tritonclient.http")
    said = subprocess.run(
        [sys.executable, "-c", code.inner_text()], capture_output=True, text=True, timeout=30, check=True
    )
    assert said.stdout == "[[27 18 28]]\n"
    page.get_by_role("button", name="boto3").click()
    expect(code).to_contain_text("invoke_endpoint(EndpointName")
    compile(code.inner_text(), "boto3", "exec")


def test_a_dialog_is_answered_though_the_one_before_has_just_been_dismissed(
    page: Page, server: ServerProcess
) -> None:
    show(page, server)
    answers = page.evaluate(
        """async () => {
            const { confirm } = await import("/console/dom.js");
            const press = (name) => [...document.querySelectorAll("dialog[open] button")]
                .find((button) => button.textContent === name).click();
            const first = confirm("One?", "", "Yes");
            press("Cancel");
            const second = confirm("Two?", "", "Yes");
            await first;
            press("Yes");
            return [await first, await second];
        }"""
    )
    assert answers == [False, True]
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_model_is_unloaded_and_loaded_with_the_keyboard(page: Page, server: ServerProcess) -> None:
    show(page, server)
    row = page.get_by_role("region", name="Models").get_by_role("row").filter(has_text="negative")
    unload = row.get_by_role("button", name="Unload negative")
    unload.press("Enter")
    expect(page.get_by_role("dialog", name="Unload negative?")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    unload.press("Enter")
    expect(page.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(row).to_contain_text("Unloaded")
    row.get_by_role("button", name="Load negative", exact=True).press("Enter")
    expect(row).to_contain_text("Ready")
    broken = page.get_by_role("region", name="Models").get_by_role("row").filter(has_text="broken")
    broken.get_by_role("button", name="Load broken").click()
    expect(page.locator(".notice.error")).to_contain_text("broken")


def test_the_log_is_filtered(page: Page, server: ServerProcess) -> None:
    show(page, server, "#/logs")
    records = page.get_by_role("region", name="Log records").get_by_role("listitem")
    expect(records.filter(has_text="Started HTTPService").first).to_be_visible()
    keep(page, "logs")
    page.get_by_label("Text to search for").fill("protobuf PARSING")
    expect(records.first).to_contain_text("Protobuf parsing failed")
    expect(records.filter(has_text="Started HTTPService")).to_have_count(0)
    page.get_by_label("Text to search for").fill("")
    page.get_by_label("Show").select_option("Errors")
    expect(records.first).to_contain_text("ERROR")
    expect(records.filter(has_text="INFO")).to_have_count(0)


def test_axe_finds_nothing(page: Page, server: ServerProcess) -> None:
    views = ("#/", "#/logs", "#/model/classifier/1", "#/model/broken/1", "#/model/classifier/1/try")
    with load(server):
        for view in (*views, "#/model/writer/1/try", "#/model/negative/1/try"):
            show(page, server, view)
            expect(page.locator("h1")).to_have_count(1)
            if view.endswith(("classifier/1/try", "writer/1/try")):
                page.get_by_role("button", name="Send").click()
                expect(page.locator(".outcome.good")).to_be_visible()
            for scheme in SCHEMES:
                page.emulate_media(color_scheme=scheme)
                assert found_by_axe(page) == [], (view, scheme)
        show(page, server)
        wait_for_lines(page)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            keep(page, f"under-load-{scheme}")


def test_an_empty_server_says_so(page: Page, tmp_path: Path) -> None:
    with start_server(tmp_path) as empty:
        show(page, empty)
        expect(page.get_by_text("There are no models yet")).to_be_visible()
        keep(page, "empty")
        empty.stop()
        expect(page.get_by_text("Connection lost")).to_be_visible()


def test_a_token_is_asked_for_and_opens_the_page(page: Page, repository: Path, tmp_path: Path) -> None:
    made = run_command("token", "me")
    token = made.stderr.strip()
    (tmp_path / "tokens").write_text(made.stdout)
    flags = (f"--token-file={tmp_path / 'tokens'}", "--model-control-mode=explicit", "--load-model=identity")
    with start_server(repository, *flags, "--http-restricted-api=statistics:x-key=open") as guarded:
        page.goto(f"http://{guarded.http}/console")
        expect(page.get_by_text("The server refuses: this call needs a bearer token")).to_be_visible()
        page.get_by_role("button", name="Access").click()
        page.get_by_label("Bearer token").fill(token)
        page.get_by_role("button", name="Use").click()
        expect(page.get_by_text("expecting header 'x-key'")).to_be_visible()
        page.get_by_role("button", name="Access").click()
        page.get_by_label("Header of restricted APIs").fill("x-key")
        page.get_by_label("Its value").fill("open")
        page.get_by_role("button", name="Use").click()
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        expect(page.get_by_role("link", name="identity")).to_be_visible()
        keep(page, "with-token")
