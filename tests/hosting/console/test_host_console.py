"""The host's console in a real browser, while a canary is under way."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from playwright.sync_api import Browser, expect

from halimede.hosting.substrates.processes import end_marked
from tests.hosting.control.deployments.test_policies import blue_green, percent
from tests.support.browser import chromium, found_by_axe, keep, opened, wait_for_lines
from tests.support.host import HostProcess, start_host
from tests.support.program import write_program

ROLE = "arn:aws:iam::000000000000:role/x"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host with an endpoint of two variants, an alarm, autoscaling, and a canary that bakes."""
    place = tmp_path_factory.mktemp("host")
    image = write_program(place)
    try:
        with start_host(place / "host", "--metric-period=1", "--describe-hold=1") as running:
            set_up(running, image)
            yield running
    finally:
        end_marked(place / "host", 0.0)


def set_up(host: HostProcess, image: Path) -> None:
    sagemaker = host.client("sagemaker")
    for name in ("first", "second"):
        sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer={"Image": str(image)})
    capture = {
        "EnableCapture": True,
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": "s3://captured/reader",
        "CaptureOptions": [{"CaptureMode": "Input"}, {"CaptureMode": "Output"}],
    }
    host.client("s3").create_bucket(Bucket="captured")
    for config, counts in (("weighted", (2, 1)), ("next", (2, 1))):
        variants = [
            {
                "VariantName": variant,
                "ModelName": model,
                "InstanceType": "ml.t2.medium",
                "InitialInstanceCount": count,
                "InitialVariantWeight": weight,
            }
            for variant, model, count, weight in zip(
                ("stable", "candidate"), ("first", "second"), counts, (4, 1), strict=True
            )
        ]
        sagemaker.create_endpoint_config(
            EndpointConfigName=config, ProductionVariants=variants, DataCaptureConfig=capture
        )
    sagemaker.create_endpoint(EndpointName="reader", EndpointConfigName="weighted")
    sagemaker.get_waiter("endpoint_in_service").wait(
        EndpointName="reader", WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    host.client("cloudwatch").put_metric_alarm(
        AlarmName="errors of reader",
        Namespace="AWS/SageMaker",
        MetricName="Invocation5XXErrors",
        Dimensions=[{"Name": "EndpointName", "Value": "reader"}, {"Name": "VariantName", "Value": "stable"}],
        Statistic="Average",
        Period=60,
        EvaluationPeriods=1,
        Threshold=0.2,
        ComparisonOperator="GreaterThanThreshold",
        TreatMissingData="notBreaching",
    )


@contextmanager
def load(host: HostProcess) -> Iterator[None]:
    done = threading.Event()
    runtime = host.client("sagemaker-runtime")

    def invoke() -> None:
        while not done.wait(0.01):
            with suppress(BotoCoreError, ClientError):
                runtime.invoke_endpoint(EndpointName="reader", Body=b"{}", ContentType="application/json")

    threads = [threading.Thread(target=invoke) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def read(host: HostProcess, path: str, **headers: str) -> tuple[int, Any]:
    request = urllib.request.Request(f"{host.url}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_a_canary_is_followed(browser: Browser, host: HostProcess, scheme: str) -> None:
    sagemaker = host.client("sagemaker")
    if sagemaker.describe_endpoint(EndpointName="reader")["EndpointStatus"] == "InService":
        policy = blue_green("CANARY", 3000, CanarySize=percent(30))
        sagemaker.update_endpoint(EndpointName="reader", EndpointConfigName="next", DeploymentConfig=policy)
    with load(host), opened(browser, color_scheme=scheme) as page:
        page.goto(f"{host.url}/console")
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        card = page.locator("section").filter(has=page.get_by_role("heading", name="reader"))
        expect(card).to_contain_text("Updating")
        expect(card).to_contain_text("Deploying next")
        expect(card).to_contain_text("Baking: 30 % of the requests", timeout=60_000)
        rows = page.get_by_role("region", name="Variants of reader").get_by_role("row")
        stable = rows.filter(has_text="stable").first
        expect(stable).to_contain_text("56 %")  # four fifths of the 70 % that are left to its fleet
        expect(stable.get_by_role("cell").nth(1)).not_to_have_text("–")
        expect(stable.get_by_role("cell").nth(1)).not_to_have_text("0")
        expect(stable).to_contain_text("2 of 2")
        expect(rows.filter(has_text="Baking")).to_have_count(2)
        expect(rows.filter(has_text="Baking").first).to_contain_text("24 %")
        expect(card).to_contain_text("invocations captured, to s3://captured/reader")
        instances = page.get_by_role("region", name="Instances").get_by_role("row")
        expect(instances.filter(has_text="takes requests")).to_have_count(6)
        expect(page.get_by_role("region", name="Alarms")).to_contain_text("errors of reader")
        wait_for_lines(page)
        assert found_by_axe(page) == []
        keep(page, f"host-canary-{scheme}")


def test_a_snapshot_tells_what_there_is(host: HostProcess) -> None:
    status, document = read(host, "/console/snapshot")
    assert status == 200
    [endpoint] = [each for each in document["endpoints"] if each["EndpointName"] == "reader"]
    assert {each["variant"] for each in endpoint["Figures"]} == {"stable", "candidate"}
    assert "reader" in {each["endpoint"] for each in document["instances"]}
    assert [each["AlarmName"] for each in document["alarms"]] == ["errors of reader"]


def test_what_autoscaling_does_is_shown_and_an_endpoint_goes(browser: Browser, host: HostProcess) -> None:
    sagemaker = host.client("sagemaker")
    variant = {
        "VariantName": "A",
        "ModelName": "first",
        "InstanceType": "ml.t2.medium",
        "InitialInstanceCount": 1,
    }
    sagemaker.create_endpoint_config(EndpointConfigName="grower", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="grower", EndpointConfigName="grower")
    sagemaker.get_waiter("endpoint_in_service").wait(
        EndpointName="grower", WaiterConfig={"Delay": 1, "MaxAttempts": 60}
    )
    host.client("application-autoscaling").register_scalable_target(
        ServiceNamespace="sagemaker",
        ResourceId="endpoint/grower/variant/A",
        ScalableDimension="sagemaker:variant:DesiredInstanceCount",
        MinCapacity=2,
        MaxCapacity=3,
    )
    with opened(browser) as page:
        page.goto(f"{host.url}/console")
        row = page.get_by_role("region", name="Autoscaling").get_by_role("row").filter(has_text="grower")
        expect(row).to_contain_text("Successful", timeout=60_000)
        card = page.get_by_role("region", name="Variants of grower")
        expect(card).to_contain_text("2 of 2")
        keep(page, "host-autoscaling")
        sagemaker.delete_endpoint(EndpointName="grower")
        expect(card).to_have_count(0, timeout=60_000)


def test_pages_of_other_sites_get_nothing(host: HostProcess) -> None:
    for path in ("/console/snapshot", "/console/events"):
        status, answer = read(host, path, **{"Sec-Fetch-Site": "cross-site"})
        assert status == 403
        assert answer["error"] == "the console's calls are not answered for pages of other sites"


def test_where_there_are_keys_the_page_signs_its_requests(browser: Browser, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(
        '[keys.reader]\nsecret = "reader-secret-of-tests"\naccount = "000000000000"\n'
        'actions = ["sagemaker:List*", "sagemaker:Describe*"]\n'
    )
    with start_host(tmp_path / "host", f"--keys={keys}") as guarded, opened(browser) as page:
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
        keep(page, "host-empty")


def test_without_a_console_there_is_none(tmp_path: Path) -> None:
    with start_host(tmp_path / "host", "--allow-console=false") as plain:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{plain.url}/console/main.js", timeout=10)
        with refused.value as error:
            assert error.code == 404
