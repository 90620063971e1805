"""What clients rely on while an endpoint changes: botocore's waiters, published polling loops, the SDKs' texts."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, WaiterError

from tests.support.host import HostProcess, start_host
from tests.support.program import write_program

ROLE = "arn:aws:iam::000000000000:role/any"
HOLD_S = 50
"""How long the host holds answers at most: longer than anything takes here, on a busy machine as well."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("waiters")


@pytest.fixture(scope="module")
def host(directory: Path) -> Iterator[HostProcess]:
    with start_host(directory / "host", f"--describe-hold={HOLD_S}") as running:
        yield running


@pytest.fixture(scope="module")
def program(directory: Path) -> Path:
    return write_program(directory)


@pytest.fixture
def sagemaker(host: HostProcess) -> Any:
    return host.client("sagemaker")


def script(directory: Path, *lines: str) -> Path:
    """An executable of these lines."""
    path = directory / f"script-{time.monotonic_ns()}"
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return path


def create(sagemaker: Any, name: str, image: Path) -> None:
    """An endpoint of one instance, and all that is below it."""
    sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer={"Image": str(image)})
    variant = {
        "VariantName": "v",
        "ModelName": name,
        "InstanceType": "ml.local.cpu",
        "InitialInstanceCount": 1,
    }
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)


def test_waiters_see_an_endpoint_come_and_go(sagemaker: Any, program: Path) -> None:
    create(sagemaker, "waited", program)
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="waited")
    assert sagemaker.describe_endpoint(EndpointName="waited")["EndpointStatus"] == "InService"

    sagemaker.delete_endpoint(EndpointName="waited")
    sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="waited", WaiterConfig={"Delay": 1})
    assert sagemaker.list_endpoints(NameContains="waited")["Endpoints"] == []


def test_waiter_ends_when_the_endpoint_fails(sagemaker: Any, directory: Path) -> None:
    create(sagemaker, "failing", script(directory, "echo there is no model", "exit 4"))

    with pytest.raises(WaiterError, match="terminal failure state") as failure:
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="failing")

    last = failure.value.last_response
    assert last["EndpointStatus"] == "Failed"
    assert "it ended with status 4; its last lines: there is no model" in last["FailureReason"]
    sagemaker.delete_endpoint(EndpointName="failing")


def test_published_loop_sleeps_for_nothing(sagemaker: Any, directory: Path, program: Path) -> None:
    create(sagemaker, "polled", script(directory, "sleep 0.3", f"exec {program} serve"))

    # published loops sleep for a minute if it is `Creating`
    assert sagemaker.describe_endpoint(EndpointName="polled")["EndpointStatus"] == "InService"
    sagemaker.delete_endpoint(
        EndpointName="polled"
    )  # at once, as a host that ends meanwhile leaves it to its next start
    sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="polled", WaiterConfig={"Delay": 1})


def test_answers_are_not_held_where_the_host_is_told_so(tmp_path: Path) -> None:
    with start_host(tmp_path / "host", "--describe-hold=0") as host:
        sagemaker = host.client("sagemaker")
        create(sagemaker, "slow", script(tmp_path, "exec sleep 1000"))
        began = time.monotonic()
        assert sagemaker.describe_endpoint(EndpointName="slow")["EndpointStatus"] == "Creating"
        assert time.monotonic() - began < 20  # so long answers are held by default


def test_host_that_is_stopped_holds_no_answer_back(tmp_path: Path) -> None:
    with start_host(tmp_path / "host", f"--describe-hold={HOLD_S}") as host, ThreadPoolExecutor(1) as thread:
        sagemaker = host.client("sagemaker")
        create(sagemaker, "slow", script(tmp_path, "exec sleep 1000"))
        sent = threading.Event()
        sagemaker.meta.events.register("before-send.sagemaker.DescribeEndpoint", lambda **_: sent.set())
        describing = thread.submit(sagemaker.describe_endpoint, EndpointName="slow")
        assert sent.wait(60)
        with pytest.raises(TimeoutError):  # it is held
            describing.result(0.3)

        began = time.monotonic()
        assert host.stop() == 0
        assert time.monotonic() - began < HOLD_S
        assert describing.result(60)["EndpointStatus"] == "Creating"


@pytest.mark.parametrize(
    ("operation", "parameters", "kind"),
    [
        ("describe_model", {"ModelName": "missing"}, "model"),
        ("delete_model", {"ModelName": "missing"}, "model"),
        ("describe_endpoint_config", {"EndpointConfigName": "missing"}, "endpoint-config"),
        ("delete_endpoint_config", {"EndpointConfigName": "missing"}, "endpoint-config"),
        ("describe_endpoint", {"EndpointName": "missing"}, "endpoint"),
        ("delete_endpoint", {"EndpointName": "missing"}, "endpoint"),
        ("update_endpoint", {"EndpointName": "missing", "EndpointConfigName": "missing"}, "endpoint"),
        ("create_endpoint", {"EndpointName": "new", "EndpointConfigName": "missing"}, "endpoint-config"),
    ],
)
def test_what_is_missing_is_told_as_the_sdks_expect(
    sagemaker: Any, operation: str, parameters: dict[str, str], kind: str
) -> None:
    with pytest.raises(ClientError) as refused:
        getattr(sagemaker, operation)(**parameters)
    error = refused.value.response["Error"]
    assert error["Code"] == "ValidationException"
    assert error["Message"].startswith("Could not find ")
    assert f":{kind}/missing" in error["Message"]


def test_what_is_there_already_is_told_as_the_sdks_expect(sagemaker: Any, program: Path) -> None:
    create(sagemaker, "twice", program)
    variant = {
        "VariantName": "v",
        "ModelName": "twice",
        "InstanceType": "ml.local.cpu",
        "InitialInstanceCount": 1,
    }
    for operation, parameters, words in (
        ("create_model", {"ModelName": "twice", "PrimaryContainer": {"Image": str(program)}}, "model"),
        (
            "create_endpoint_config",
            {"EndpointConfigName": "twice", "ProductionVariants": [variant]},
            "endpoint configuration",
        ),
        ("create_endpoint", {"EndpointName": "twice", "EndpointConfigName": "twice"}, "endpoint"),
    ):
        with pytest.raises(ClientError) as refused:
            getattr(sagemaker, operation)(**parameters)
        error = refused.value.response["Error"]
        assert error["Code"] == "ValidationException"
        assert error["Message"].startswith(f"Cannot create already existing {words} ")
    sagemaker.delete_endpoint(EndpointName="twice")
    sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="twice", WaiterConfig={"Delay": 1})
