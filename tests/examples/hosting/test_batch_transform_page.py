"""The programs of the page on batch transform print what the page says."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.examples.test_pages import commands
from tests.support.host import HostProcess, start_host
from tests.support.walkthroughs import blocks

pytestmark = pytest.mark.timeout(200)

PAGE = "batch-transform.md"
TIMES = re.compile(r"\d{4}-\d\d-\d\d[ -]\d\d[:-]\d\d[:-]\d\d")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    with start_host(tmp_path_factory.mktemp("host") / "host") as running:
        yield running


@pytest.fixture
def environment(host: HostProcess) -> Mapping[str, str]:
    """Variables for commands."""
    others = dict(host.environment)
    return {**others, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{others['PATH']}"}


def run(command: list[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_page_says_what_its_program_and_its_commands_print(
    environment: Mapping[str, str], hosting: Path
) -> None:
    [program] = blocks(PAGE, "python")
    printed, _ = blocks(PAGE, "text")
    assert run([sys.executable, "-c", program.replace("build/hosting", str(hosting))], environment) == printed
    for command in commands(PAGE):
        found = run(["bash", "-c", command.line], environment)
        assert TIMES.sub("then", found) == TIMES.sub("then", command.output)


def test_the_walk_through_reads_digits_and_leaves_nothing(
    environment: Mapping[str, str], host: HostProcess, hosting: Path
) -> None:
    before = host.client("s3").list_buckets()["Buckets"]
    found = run([sys.executable, "-m", "examples.hosting.batch_transform", str(hosting)], environment)
    first, right, last = found.splitlines()
    assert re.fullmatch(r"read-digits-[-\d]+: Completed", first)
    assert re.fullmatch(r"right: 17\d\d of 1797", right)
    assert last == "deleted"
    assert host.client("s3").list_buckets()["Buckets"] == before
