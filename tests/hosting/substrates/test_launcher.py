"""Directories of its own for a program."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from halimede.hosting.substrates.launcher import UNABLE
from tests.hosting.substrates.instances import needs_namespaces

LAUNCHER = [sys.executable, "-m", "halimede.hosting.substrates.launcher"]


def _run(plan: dict[str, Any]) -> "subprocess.CompletedProcess[str]":
    plan = {"empty": "/opt/ml", "mounts": {}, "kept": [], "shm_bytes": 0, **plan}
    return subprocess.run([*LAUNCHER, json.dumps(plan)], capture_output=True, text=True, check=False)


def _shell(script: str, **plan: Any) -> str:
    result = _run({**plan, "command": ["/bin/sh", "-ec", script]})
    assert result.returncode == 0, result.stderr
    return result.stdout


@needs_namespaces
def test_the_program_sees_what_is_mounted_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "model" / "1").mkdir(parents=True)
    (tmp_path / "model" / "1" / "weights").write_text("w")
    existed = Path("/opt/ml").exists()
    before = sorted(entry.name for entry in Path("/opt").iterdir())
    seen = _shell(
        "ls /opt/ml; cat /opt/ml/model/1/weights; echo; ls /opt",
        mounts={"/opt/ml/model": str(tmp_path / "model")},
    )
    assert seen.split() == ["model", "w", *sorted({*before, "ml"})]
    assert sorted(entry.name for entry in Path("/opt").iterdir()) == before
    assert Path("/opt/ml").exists() is existed


@needs_namespaces
def test_what_lay_beside_a_directory_that_was_missing_is_still_there(tmp_path: Path) -> None:
    above = tmp_path / "above"
    (above / "directory").mkdir(parents=True)
    (above / "directory" / "inner").write_text("i")
    (above / "file").write_text("f")
    (above / "link").symlink_to("file")
    (above / "dangling").symlink_to("nowhere")
    script = f"cd {above}; cat directory/inner file link; readlink dangling; ls missing/deep; echo new > file"
    assert _shell(script, empty=str(above / "missing" / "deep")) == "iffnowhere\n"
    assert (above / "file").read_text() == "new\n"
    assert not (above / "missing").exists()


@needs_namespaces
def test_a_directory_that_is_there_is_hidden(tmp_path: Path) -> None:
    ml, model = tmp_path / "ml", tmp_path / "ml" / "of-another"
    model.mkdir(parents=True)
    (model / "file").write_text("x")
    # also what is hidden can be mounted
    script = f"ls {ml}; ls {ml}/model"
    assert _shell(script, empty=str(ml), mounts={str(ml / "model"): str(model)}).split() == ["model", "file"]


@needs_namespaces
def test_shared_memory_is_its_own_and_of_the_size_that_was_asked_for() -> None:
    name = f"halimede-test-{os.getpid()}"
    size = _shell(f"echo x > /dev/shm/{name}; df -B1 --output=size /dev/shm | tail -1", shm_bytes=5 << 20)
    assert int(size) == 5 << 20
    assert not Path("/dev/shm", name).exists()


@needs_namespaces
def test_the_program_is_the_same_process_and_user() -> None:
    process = subprocess.Popen(
        [
            *LAUNCHER,
            json.dumps(
                {
                    "empty": "/opt/ml",
                    "mounts": {},
                    "kept": [],
                    "shm_bytes": 0,
                    "command": ["sh", "-c", "echo $$; id -u"],
                }
            ),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    text, _ = process.communicate(timeout=60)
    assert text.split() == [str(process.pid), str(os.geteuid())]


def test_a_directory_that_cannot_be_mounted_is_told(tmp_path: Path) -> None:
    result = _run({"mounts": {"/opt/ml/model": str(tmp_path / "missing")}, "command": ["true"]})
    assert result.returncode == UNABLE
    assert "cannot give the instance directories of its own" in result.stderr
    assert "Traceback" not in result.stderr


@needs_namespaces
def test_nothing_is_made_in_the_root_directory() -> None:
    result = _run({"empty": "/halimede-missing/ml", "command": ["true"]})
    assert result.returncode == UNABLE
    assert "there is no /halimede-missing" in result.stderr
    assert not Path("/halimede-missing").exists()


@needs_namespaces
def test_a_program_that_is_missing_is_told() -> None:
    result = _run({"command": ["/nowhere/serve", "serve"]})
    assert result.returncode == 127
    assert result.stderr == "cannot start '/nowhere/serve': No such file or directory\n"
