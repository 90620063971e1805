"""The view of an endpoint in a real browser: its models, captured invocations, logs, and requests to it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.hosting.console.serving import invoke
from tests.hosting.console.test_host_console import look, read, show
from tests.support.browser import watch_stream
from tests.support.host import HostProcess


def send(page: Page, body: str) -> None:
    page.get_by_label("Text of the body").fill(body)
    page.get_by_role("button", name="Send").click()


def test_an_invocation_is_sent_and_its_answer_drawn(page: Page, host: HostProcess) -> None:
    show(page, host, "#/endpoint/reader")
    page.get_by_role("link", name="Try it").click()
    page.get_by_label("Variant").select_option("stable")
    send(page, '{"numbers": [27, 18, 28]}')
    expect(page.get_by_text("from variant stable")).to_be_visible()
    values = page.get_by_role("region", name="Values of same").get_by_role("cell")
    expect(values).to_have_text(["27", "18", "28"])
    look(page, "host-try")
    page.get_by_label("Content type").fill("text/plain")
    send(page, "a moon")
    expect(page.locator(".answer")).to_contain_text("A MOON")
    expect(page.get_by_role("link", name="Save answer.txt")).to_be_visible()


def test_a_file_is_sent(page: Page, host: HostProcess, tmp_path: Path) -> None:
    file = tmp_path / "request.json"
    file.write_text('{"numbers": [1, 2]}')
    show(page, host, "#/endpoint/reader/try")
    page.get_by_label("From", exact=True).select_option("File")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Body: choose a file first").first).to_be_visible()
    page.locator("input[type=file]").set_input_files(file)
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("region", name="Values of same")).to_contain_text("2")
    expect(page.locator(".code code")).to_contain_text("--data-binary '@request.json'")


def test_what_is_wrong_is_said(page: Page, host: HostProcess) -> None:
    show(page, host, "#/endpoint/reader/try")
    send(page, '{"numbers": ')
    expect(page.locator(".warning")).to_contain_text("The body is no JSON")
    send(page, '{"fail": "no such weights"}')
    expect(page.locator(".warning")).to_have_text("")
    expect(page.get_by_text("Failed with 424")).to_be_visible()
    expect(page.locator(".answer .note.bad")).to_contain_text('with message "no such weights"')
    page.get_by_label("Content type").fill("text/über")
    page.get_by_role("button", name="Send").click()
    problem = "Content type: “text/über” has characters that a header cannot have; it takes printable ASCII"
    expect(page.locator(".answer .note.bad")).to_have_text(problem)
    expect(page.locator(".code code")).to_have_text(f"# {problem}")
    page.get_by_label("Content type").fill("")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer .note.bad")).to_contain_text("say what the body is")
    show(page, host, "#/endpoint/many/try")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".answer .note.bad")).to_contain_text("Target model: say which model is meant")
    show(page, host, "#/endpoint/nobody/try")
    expect(page.get_by_text("There is no such endpoint.")).to_be_visible()
    expect(page.get_by_role("button", name="Send")).to_be_hidden()


def test_the_code_makes_the_same_call(page: Page, host: HostProcess) -> None:
    show(page, host, "#/endpoint/reader/try")
    page.get_by_label("Text of the body").fill('{"numbers": [27, 18], "who": "it\'s me"}')
    code = page.locator(".code code")
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for client, start in (
        ("curl", ["sh", "-c"]),
        ("boto3", [sys.executable, "-c"]),
        ("halimede", ["sh", "-c"]),
    ):
        page.get_by_role("button", name=client).click()
        expect(code).to_contain_text("27, 18")
        said = subprocess.run(
            [*start, code.inner_text()],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PATH": binaries},
            check=False,
        )
        assert (said.returncode, said.stderr) == (0, ""), client
        assert '"data": [27, 18]' in said.stdout, client


def test_a_response_stream_is_written_as_it_comes(page: Page, host: HostProcess) -> None:
    show(page, host, "#/endpoint/reader/try")
    watch_stream(page)
    page.get_by_label("Show the answer as it comes").check()
    expect(page.get_by_role("button", name="curl")).to_be_hidden()
    send(page, '{"words": ["Halimede", "is", "a", "moon", "of", "Neptune"]}')
    expect(page.locator(".stream")).to_have_text("Halimede is a moon of Neptune ")
    expect(page.get_by_text("the first after")).to_be_visible()
    assert page.evaluate("window.seen.size") > 3


def test_a_request_for_an_asynchronous_endpoint_is_queued(page: Page, host: HostProcess) -> None:
    show(page, host, "#/endpoint/queued/try")
    expect(page.get_by_text("The endpoint is asynchronous")).to_be_visible()
    send(page, "[1]")
    expect(page.get_by_text("Accepted in")).to_be_visible()
    expect(page.locator(".places")).to_contain_text("s3://results/")


def test_models_are_shown_with_the_instances_that_hold_them(page: Page, host: HostProcess) -> None:
    runtime = host.client("sagemaker-runtime")
    for model in ("first.tar.gz", "second.tar.gz", "bad.tar.gz"):
        invoke(runtime, "many", b"[]", TargetModel=model)
    show(page, host, "#/endpoint/many")
    page.get_by_role("link", name="Models").click()
    rows = page.get_by_role("region", name="Models of AllTraffic").get_by_role("row")
    expect(rows.filter(has_text="first.tar.gz")).to_contain_text("loaded")
    bad = rows.filter(has_text="bad.tar.gz")
    expect(bad).to_contain_text("failed")
    expect(bad).to_contain_text("weights are missing")
    memory = page.get_by_role("region", name="Memory of AllTraffic").get_by_role("row")
    expect(memory.nth(1).get_by_role("cell").first).to_have_text("2")
    look(page, "host-models")
    page.get_by_label("Models whose names contain").fill("SECOND")
    expect(rows).to_have_count(2)  # with the head
    page.get_by_label("Models whose names contain").fill("none of that name")
    expect(page.get_by_text("No model has such a name.")).to_be_visible()


def test_captured_invocations_are_shown_and_sent_again(page: Page, host: HostProcess) -> None:
    invoke(host.client("sagemaker-runtime"), "reader", b'{"numbers": [4711]}')
    show(page, host, "#/endpoint/reader/captured")
    record = page.get_by_role("article").filter(has_text='{"numbers": [4711]}').first
    again = page.get_by_role("button", name="Read again")
    for _ in range(120):  # records are written a while after they were captured
        expect(again).to_be_enabled()
        if record.count():
            break
        page.wait_for_timeout(250)
        again.click()
    expect(record).to_contain_text('"data": [4711]')
    expect(page.get_by_text("the last in s3://captured/reader/reader")).to_be_visible()
    look(page, "host-captured")
    record.get_by_role("link", name="Try it").click()
    expect(page.get_by_label("Text of the body")).to_have_value('{"numbers": [4711]}')
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("region", name="Values of same")).to_contain_text("4711")


def test_logs_of_instances_are_followed_and_filtered(page: Page, host: HostProcess) -> None:
    runtime = host.client("sagemaker-runtime")
    invoke(runtime, "reader", b'["before"]', TargetVariant="stable")
    show(page, host, "#/endpoint/reader/logs")
    records = page.get_by_role("region", name="Log records").get_by_role("listitem")
    expect(records.filter(has_text='asked ["before"]').first).to_be_visible()
    invoke(runtime, "reader", b'["after"]', TargetVariant="candidate")
    expect(records.filter(has_text='asked ["after"]')).to_have_count(1)
    invoke(runtime, "reader", b'{"fail": "no such moon"}', TargetVariant="candidate")
    expect(records.filter(has_text="no such moon").first).to_contain_text("ERROR")
    look(page, "host-logs")
    page.get_by_label("Show").select_option("Errors")
    expect(records.filter(has_text="asked")).to_have_count(0)
    page.get_by_label("Show").select_option("Everything")
    page.get_by_label("Text to search for").fill('ASKED ["AFTER"]')
    expect(records).to_have_count(1)
    source = records.locator(".faint").inner_text()
    page.get_by_label("Text to search for").fill("ready")
    page.get_by_label("Instance").select_option(source)
    expect(records).to_have_count(1)
    expect(records).to_contain_text(source)


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        (
            "models",
            400,
            "the endpoint is missing; ask for ?endpoint=NAME",
        ),
        ("logs?endpoint=../x", 400, "'../x' is no name of an endpoint"),
        ("models?endpoint=nobody", 404, "no endpoint 'nobody' takes requests"),
        ("captured?endpoint=nobody", 404, "there is no endpoint 'nobody'"),
        ("captured?endpoint=many", 400, "endpoint 'many' captures nothing"),
    ],
)
def test_calls_say_what_is_wrong_with_them(host: HostProcess, path: str, status: int, reason: str) -> None:
    answered, document = read(host, f"/console/{path}")
    assert answered == status
    assert reason in document["error"]


def test_figures_of_one_endpoint_are_its_own(page: Page, host: HostProcess) -> None:
    show(page, host, "#/endpoint/many")
    invoke(host.client("sagemaker-runtime"), "many", b"[]", TargetModel="first.tar.gz")
    tile = page.locator(".tile").filter(has=page.get_by_role("heading", name="Invocations"))
    expect(tile.locator(".figure")).not_to_have_text("–")
    expect(page.get_by_role("region", name="Instances").get_by_role("row")).to_have_count(2)  # with the head
    expect(page.get_by_text("There are no alarms.")).to_be_visible()
    look(page, "host-endpoint")
