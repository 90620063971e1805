"""The host's console in a real browser: its overview, while a canary is under way, and who may see it."""

import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from halimede.hosting.substrates.processes import end_marked
from tests.hosting.console.program import write_program
from tests.hosting.console.serving import (
    ALARM,
    ROLE,
    begin_canary,
    configure,
    load,
    put_alarm,
    variant,
    wait_in_service,
)
from tests.support.browser import found_by_axe, keep, wait_for_lines
from tests.support.host import HostProcess, start_host


def show(page: Page, host: HostProcess, view: str = "#/") -> None:
    page.goto(f"{host.url}/console{view}")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


def read(host: HostProcess, path: str, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(f"{host.url}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_a_canary_is_followed(page: Page, host: HostProcess) -> None:
    begin_canary(host, "reader", "next", ALARM)
    with load(host):
        show(page, host)
        card = page.locator("section").filter(has=page.get_by_role("heading", name="reader"))
        expect(card).to_contain_text("Updating")
        expect(card).to_contain_text("Deploying next, a canary of 30 % first")
        share = re.compile(r"The new fleet takes 30 % of the requests; \d+ min left")
        expect(card).to_contain_text(share, timeout=60_000)
        watched = card.get_by_role("list", name="Alarms that would roll it back")
        expect(watched).to_contain_text(f"Rolled back if “{ALARM}” goes off ok")
        rows = page.get_by_role("region", name="Variants of reader").get_by_role("row")
        stable = rows.filter(has_text="stable")
        expect(stable.first).to_contain_text("56 %")  # four fifths of the 70 % that are left to its fleet
        expect(stable.nth(1)).to_contain_text("24 %")
        for each in (stable.first, stable.nth(1)):  # the new fleet has figures of its own
            expect(each.get_by_role("cell").nth(2)).not_to_have_text("–")
            expect(each.get_by_role("cell").nth(2)).not_to_have_text("0")
            expect(each).to_contain_text("2 of 2")
        expect(rows.filter(has_text="Baking")).to_have_count(2)
        expect(card).to_contain_text("invocations captured, to s3://captured/reader")
        expect(page.get_by_role("region", name="Alarms", exact=True)).to_contain_text(ALARM)
        wait_for_lines(page)
        look(page, "host-canary")
        page.get_by_role("link", name="Instances").click()
        instances = page.get_by_role("region", name="Instances").get_by_role("row")
        expect(instances.filter(has_text="reader").filter(has_text="takes requests")).to_have_count(6)
        expect(instances.filter(has_text="next")).to_have_count(3)
        expect(page.get_by_role("region", name="Nodes")).to_contain_text("this machine")
        look(page, "host-instances")


def look(page: Page, name: str) -> None:
    """Check a view and keep a picture of it, in light and dark."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        assert found_by_axe(page) == [], scheme
        keep(page, f"{name}-{scheme}")


def test_endpoints_are_filtered_by_name(page: Page, host: HostProcess) -> None:
    show(page, host)
    expect(page.get_by_role("heading", name="many")).to_be_visible()
    page.get_by_label("Filter endpoints by name").fill("REA")
    expect(page.get_by_role("heading", name="many")).to_have_count(0)
    expect(page.get_by_role("heading", name="reader")).to_be_visible()
    page.get_by_label("Filter endpoints by name").fill("nobody")
    expect(page.get_by_text("No endpoint has such a name.")).to_be_visible()


def test_a_snapshot_tells_what_there_is(host: HostProcess) -> None:
    status, document = read(host, "/console/snapshot")
    assert status == 200
    [endpoint] = [each for each in document["endpoints"] if each["EndpointName"] == "reader"]
    assert {each["variant"] for each in endpoint["Figures"]} == {"stable", "candidate"}
    assert {each["EndpointName"] for each in document["endpoints"] if each["MultiModel"]} == {"many"}
    assert "reader" in {each["endpoint"] for each in document["instances"]}
    assert ALARM in [each["AlarmName"] for each in document["alarms"]]


def test_a_rollback_is_followed_with_the_alarm_that_caused_it(page: Page, host: HostProcess) -> None:
    for config in ("shaky", "worse"):
        configure(host, config, variant("A", "first"))
    host.client("sagemaker").create_endpoint(EndpointName="shaky", EndpointConfigName="shaky")
    wait_in_service(host, "shaky")
    put_alarm(host, "shaking", "shaky", "A")
    show(page, host, "#/endpoint/shaky")
    alarms = page.get_by_role("region", name="Alarms", exact=True)
    expect(alarms.get_by_role("row").filter(has_text="shaking")).to_contain_text("ok", timeout=60_000)
    begin_canary(host, "shaky", "worse", "shaking")
    expect(page.get_by_text("The new fleet takes 30 % of the requests")).to_be_visible(timeout=60_000)
    host.client("cloudwatch").set_alarm_state(
        AlarmName="shaking", StateValue="ALARM", StateReason="it shakes"
    )
    note = page.locator(".note.bad")
    expect(note.filter(has_text="shaking")).to_be_visible(timeout=60_000)  # why it was rolled back
    changes = page.get_by_role("region", name="Changes of alarms")
    expect(changes.get_by_role("row").filter(has_text="OK to ALARM")).to_contain_text("shaking")
    expect(page.get_by_text("InService")).to_be_visible(timeout=60_000)
    keep(page, "host-rolled-back")
    host.client("sagemaker").delete_endpoint(EndpointName="shaky")
    expect(page.get_by_text("There is no such endpoint.")).to_be_visible(timeout=60_000)


def test_what_autoscaling_does_is_shown_and_an_endpoint_goes(page: Page, host: HostProcess) -> None:
    configure(host, "grower", variant("A", "first"))
    host.client("sagemaker").create_endpoint(EndpointName="grower", EndpointConfigName="grower")
    wait_in_service(host, "grower")
    host.client("application-autoscaling").register_scalable_target(
        ServiceNamespace="sagemaker",
        ResourceId="endpoint/grower/variant/A",
        ScalableDimension="sagemaker:variant:DesiredInstanceCount",
        MinCapacity=2,
        MaxCapacity=3,
    )
    show(page, host)
    row = page.get_by_role("region", name="Autoscaling").get_by_role("row").filter(has_text="grower")
    expect(row).to_contain_text("Successful", timeout=60_000)
    card = page.get_by_role("region", name="Variants of grower")
    expect(card).to_contain_text("2 of 2")
    keep(page, "host-autoscaling")
    host.client("sagemaker").delete_endpoint(EndpointName="grower")
    expect(card).to_have_count(0, timeout=60_000)


def test_what_failed_comes_first_with_its_reason(page: Page, host: HostProcess, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no such weights >&2\nexit 3\n")
    broken.chmod(0o755)
    sagemaker = host.client("sagemaker")
    sagemaker.create_model(ModelName="broken", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": str(broken)})
    configure(host, "broken", variant("A", "broken"))
    sagemaker.create_endpoint(EndpointName="zz-broken", EndpointConfigName="broken")
    show(page, host)
    card = page.locator("section").filter(has=page.get_by_role("heading", name="zz-broken"))
    expect(card).to_contain_text("no such weights", timeout=60_000)
    expect(page.locator(".endpoints h2").first).to_have_text("zz-broken")
    keep(page, "host-failed")
    sagemaker.delete_endpoint(EndpointName="zz-broken")
    expect(card).to_have_count(0, timeout=60_000)


def test_pages_of_other_sites_get_nothing(host: HostProcess) -> None:
    for path in (
        "/snapshot",
        "/events",
        "/models?endpoint=many",
        "/logs?endpoint=many",
        "/captured?endpoint=reader",
    ):
        status, answer = read(host, f"/console{path}", **{"Sec-Fetch-Site": "cross-site"})
        assert status == 403
        assert answer["error"] == "the console's calls are not answered for pages of other sites"


def test_where_there_are_keys_the_page_signs_its_requests(page: Page, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(
        '[keys.reader]\nsecret = "reader-secret-of-tests"\n'
        'actions = ["sagemaker:List*", "sagemaker:Describe*", "sagemaker:InvokeEndpoint", "logs:GetLogEvents"]\n'
        '[keys.owner]\nsecret = "owner-secret-of-tests"\n'
    )
    image = write_program(tmp_path)
    try:
        with start_host(tmp_path / "host", f"--keys={keys}", "--describe-hold=1") as guarded:
            owner = guarded.client(
                "sagemaker", aws_access_key_id="owner", aws_secret_access_key="owner-secret-of-tests"
            )
            sign_in(page, guarded)
            keep(page, "host-empty")
            owner.create_model(ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": str(image)})
            owner.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant("A", "m")])
            owner.create_endpoint(EndpointName="e", EndpointConfigName="c")
            page.get_by_role("link", name="e", exact=True).click()
            expect(page.get_by_text("InService")).to_be_visible(timeout=60_000)
            page.get_by_role("link", name="Try it").click()
            page.get_by_label("Text of the body").fill("[1]")
            page.get_by_role("button", name="Send").click()
            expect(page.get_by_text("from variant A")).to_be_visible()
            expect(page.locator(".code code")).to_contain_text("--aws-sigv4 aws:amz:us-east-1:sagemaker")
            page.get_by_role("link", name="Logs").click()
            expect(page.get_by_role("region", name="Log records")).to_contain_text("asked [1]")
            page.evaluate("location.hash = '#/endpoint/e/captured'")
            expect(page.get_by_text("is not authorized to perform: s3:ListBucket")).to_be_visible()
    finally:
        end_marked(tmp_path / "host", 0.0)


def sign_in(page: Page, guarded: HostProcess) -> None:
    """Open the page, and give it a key, after a wrong one."""
    assert read(guarded, "/console/snapshot")[0] == 403
    page.goto(f"{guarded.url}/console")
    expect(page.get_by_text("The host refuses: Missing Authentication Token")).to_be_visible()
    page.get_by_role("button", name="Access").click()
    page.get_by_label("Access key ID").fill("reader")
    page.get_by_label("Secret access key").fill("a wrong one")
    page.get_by_role("button", name="Use").click()
    expect(page.get_by_text("The request signature we calculated does not match")).to_be_visible()
    page.get_by_role("button", name="Access").click()
    page.get_by_label("Secret access key").fill("reader-secret-of-tests")
    page.get_by_role("button", name="Use").click()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    expect(page.get_by_text("There are no endpoints yet")).to_be_visible()


def test_without_a_console_there_is_none(tmp_path: Path) -> None:
    with start_host(tmp_path / "host", "--allow-console=false") as plain:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{plain.url}/console/host/main.js", timeout=60)
        with refused.value as error:
            assert error.code == 404
