"""The program of the page on deployments does what the page says, and the command shows it so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.test_autoscaling_page import blocks
from tests.support.host import HostProcess, start_host
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(200)


def run(host: HostProcess, *arguments: str) -> str:
    """What Python prints with the host's variables."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=dict(host.environment), capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_times(shown: str) -> str:
    """Without what is another one each time, and the width of columns."""
    shown = re.sub(r"\d{4}-\d\d-\d\d[ T][\d:]{8}", "then", shown)
    return re.sub(r"-+|  +", " ", shown)


def test_page_shows_an_update_as_it_is_shown(tmp_path: Path, hosting: Path) -> None:
    create = blocks("hosting.md", "python")[0].replace("build/hosting", str(hosting))
    with start_host(tmp_path / "host", "--metric-period=1") as host:
        run(host, "-c", create)
        sagemaker = host.client("sagemaker")
        for name in ("current", "candidate"):
            [variant] = sagemaker.describe_endpoint_config(EndpointConfigName="read-digit")[
                "ProductionVariants"
            ]
            sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
        sagemaker.update_endpoint(EndpointName="read-digit", EndpointConfigName="current")
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="read-digit", WaiterConfig={"Delay": 1})

        [program] = blocks("deployments.md", "python")
        run(host, "-c", program)

        [text] = [each for each in blocks("deployments.md", "text") if each.startswith("$ halimede")]
        command, _, wanted = text.removeprefix("$ halimede ").partition("\n")
        wanted = without_times(wanted)
        wait_until(
            lambda: without_times(run(host, "-m", "halimede", *command.split())) == wanted,
            "the command to show what the page shows",
        )
