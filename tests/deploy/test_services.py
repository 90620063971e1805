"""The units and Containerfiles of `deploy/`: their commands are ones that the command line takes."""

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.deploy.commands import options

UNITS = sorted(Path("deploy/systemd").glob("*.service"))
IMAGES = sorted(Path("deploy/containers").iterdir())
EXTRAS = set(tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"])


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_unit_starts_a_command_and_gives_it_time_to_stop(path: Path) -> None:
    unit = path.read_text()
    [line] = re.findall(r"^ExecStart=(.*) \$HALIMEDE_ARGS$", unit, re.M)
    flags = options(shlex.split(line))
    [patience] = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.M)
    assert int(patience) > flags.get("drain_delay_secs", 0) + flags.get("exit_timeout_secs", 0)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_takes_the_unit(path: Path, tmp_path: Path) -> None:
    program = tmp_path / "halimede"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = path.read_text().replace("/opt/halimede/bin/halimede", str(program))
    assert verified(tmp_path / path.name, text) == ""
    assert "Unknown key" in verified(tmp_path / "wrong.service", text.replace("KillMode=", "KilMode="))


def verified(path: Path, text: str) -> str:
    """What `systemd-analyze verify` says of the file itself; it also reads units of the machine."""
    path.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    return "".join(line for line in done.stderr.splitlines(keepends=True) if path.name in line)


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_image_starts_a_command_with_extras_that_there_are(path: Path) -> None:
    lines = dict(re.findall(r"^([A-Z]+) (.+)$", path.read_text().replace("\\\n", " "), re.M))
    flags = options(json.loads(lines["ENTRYPOINT"]) + json.loads(lines["CMD"]))
    assert set(lines["ARG"].removeprefix("EXTRAS=").split(",")) <= EXTRAS
    assert lines["USER"] == "1000"
    exposed = {int(port) for port in lines["EXPOSE"].split()}
    names = ("port", "http_port", "grpc_port", "metrics_port")
    assert exposed == {flags[name] for name in names if name in flags}
