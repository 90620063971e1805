"""The pages on hosting and on asynchronous inference say what their commands print; they share a host and a model."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.test_pages import commands
from tests.support.host import HostProcess, start_host
from tests.support.waiting import wait_until
from tests.support.walkthroughs import blocks

pytestmark = pytest.mark.timeout(200)

CHANGING = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|^Backlog, .*", re.M
)


def run(command: list[str], host: HostProcess, hosting: Path) -> str:
    """What a command of the pages prints, without what is another one each time."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{host.environment['PATH']}"
    done = subprocess.run(
        [part.replace("build/hosting", str(hosting)) for part in command],
        env={**host.environment, "PATH": path}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return without_changing(done.stdout)


def without_changing(text: str) -> str:
    return CHANGING.sub("…", text).rstrip("…\n")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, hosting: Path) -> Iterator[HostProcess]:
    """A host with the endpoint of the page on hosting."""
    with start_host(tmp_path_factory.mktemp("host") / "host") as running:
        run([sys.executable, "-c", blocks("hosting.md", "python")[0]], running, hosting)
        yield running


@pytest.fixture
def asynchronous(host: HostProcess, hosting: Path) -> Iterator[HostProcess]:
    """The same with the endpoint of the page on asynchronous inference, which others do not see."""
    run([sys.executable, "-c", blocks("async.md", "python")[0]], host, hosting)
    yield host
    sagemaker = host.client("sagemaker")
    sagemaker.delete_endpoint(EndpointName="later")
    sagemaker.get_waiter("endpoint_deleted").wait(EndpointName="later", WaiterConfig={"Delay": 1})
    sagemaker.delete_endpoint_config(EndpointConfigName="later")
    s3 = host.client("s3")
    for entry in s3.list_objects_v2(Bucket="results").get("Contents", ()):
        s3.delete_object(Bucket="results", Key=entry["Key"])
    s3.delete_bucket(Bucket="results")


def test_page_on_hosting_says_what_its_commands_print(host: HostProcess, hosting: Path) -> None:
    for command in commands("hosting.md"):
        assert run(["bash", "-c", command.line], host, hosting) == without_changing(command.output)


def test_page_on_asynchronous_inference_says_what_its_commands_print(
    asynchronous: HostProcess, hosting: Path
) -> None:
    for command in commands("async.md"):
        assert run(["bash", "-c", command.line], asynchronous, hosting) == without_changing(command.output)
    s3 = asynchronous.client("s3")
    wait_until(lambda: s3.list_objects_v2(Bucket="results").get("Contents"), "the result")
