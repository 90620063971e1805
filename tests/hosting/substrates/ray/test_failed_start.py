"""A host that starts a cluster of its own and cannot use it: the programs are made up, and no Ray is needed."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from halimede.hosting.substrates.images import Images
from halimede.hosting.substrates.processes import start_time
from halimede.hosting.substrates.ray.engine_process import EngineError
from halimede.hosting.substrates.ray.settings import RaySettings
from halimede.hosting.substrates.ray.substrate import RaySubstrate

_CLUSTER = """#!/bin/sh
echo $$ > {directory}/pid
echo "$RAY_AUTH_MODE" > {directory}/modes
echo "Local node IP: 127.0.0.1"
exec sleep 600
"""
_ENGINE = """#!/bin/sh
echo "$RAY_AUTH_MODE" >> {directory}/modes
exit 1
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a `ray` that starts at once, and a Python whose engine gives no answer."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, text in (("ray", _CLUSTER), ("python", _ENGINE)):
        (directory / name).write_text(text.format(directory=directory))
        (directory / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(directory / "python"))
    return directory


@pytest.fixture
def earlier(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A cluster that an earlier process of the host has started."""
    process = subprocess.Popen(["sleep", "600"])
    document = {"address": "127.0.0.1:1", "pid": process.pid, "began": start_time(process.pid)}
    (tmp_path / "ray.json").write_bytes(orjson.dumps(document))
    yield process
    process.kill()
    process.wait()


def open_substrate(directory: Path) -> None:
    async def run() -> None:
        await RaySubstrate(directory, Images(), 1.0, RaySettings()).open()

    asyncio.run(run())


def test_cluster_that_cannot_be_used_is_ended(tmp_path: Path, programs: Path) -> None:
    with pytest.raises(EngineError, match="gives no answer"):
        open_substrate(tmp_path)
    assert not start_time(int((programs / "pid").read_text()))
    assert not (tmp_path / "ray.json").exists()


def test_cluster_whose_address_cannot_be_kept_is_ended(tmp_path: Path, programs: Path) -> None:
    (tmp_path / "ray.json").mkdir()
    with pytest.raises(IsADirectoryError):
        open_substrate(tmp_path)
    assert not start_time(int((programs / "pid").read_text()))


@pytest.mark.usefixtures("programs")
def test_cluster_of_an_earlier_process_runs_on_with_its_instances(
    tmp_path: Path, earlier: "subprocess.Popen[bytes]"
) -> None:
    with pytest.raises(EngineError, match="gives no answer"):
        open_substrate(tmp_path)
    assert earlier.poll() is None
    assert (tmp_path / "ray.json").exists()
    os.kill(earlier.pid, 0)


@pytest.mark.parametrize(("has_token", "mode"), [(True, "token"), (False, "disabled")])
def test_cluster_and_its_clients_agree_on_whether_there_is_a_token(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch, has_token: bool, mode: str
) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if has_token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("0" * 64)
    with pytest.raises(EngineError):
        open_substrate(tmp_path)
    assert (programs / "modes").read_text().split() == [mode, mode]
