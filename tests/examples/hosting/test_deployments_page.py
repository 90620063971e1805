"""The program of the page on deployments does what the page says, and the command shows it so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.host import HostProcess, start_host
from tests.support.waiting import wait_until
from tests.support.walkthroughs import blocks

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
    create = create.replace('EndpointConfigName="read-digit"', 'EndpointConfigName="current"')
    with start_host(tmp_path / "host", "--metric-period=1") as host:
        run(host, "-c", create)
        sagemaker = host.client("sagemaker")
        [variant] = sagemaker.describe_endpoint_config(EndpointConfigName="current")["ProductionVariants"]
        sagemaker.create_endpoint_config(EndpointConfigName="candidate", ProductionVariants=[variant])

        [program] = blocks("deployments.md", "python")
        run(host, "-c", program)

        [text] = [each for each in blocks("deployments.md", "text") if each.startswith("$ halimede")]
        command, _, wanted = text.removeprefix("$ halimede ").partition("\n")
        wanted = without_times(wanted)
        wait_until(
            lambda: without_times(run(host, "-m", "halimede", *command.split())) == wanted,
            "the command to show what the page shows",
        )
