"""The programs of the page on autoscaling print what the page says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.host import start_host
from tests.support.walkthroughs import blocks

pytestmark = pytest.mark.timeout(200)

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def test_page_says_what_its_programs_print(tmp_path: Path, hosting: Path) -> None:
    create = blocks("hosting.md", "python")[0].replace("build/hosting", str(hosting))
    _, *printed = blocks("autoscaling.md", "text")  # the first one is the example's
    with start_host(tmp_path / "host", "--metric-period=1") as host:
        program = "\n".join([create, *blocks("autoscaling.md", "python")])
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=dict(host.environment), capture_output=True, text=True, timeout=150, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert UUID.sub("…", done.stdout) == UUID.sub("…", "".join(printed))
