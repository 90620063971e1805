"""What the Makefile's targets would run, which `make --dry-run` prints."""

import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import run_command

SERVERS = (
    "serve", "sentence-embeddings", "resnet50", "bert", "roberta-onnx", "inception-ensemble", "xgboost-ensemble",
    "t5-python", "sequences", "iterative", "chat", "host",
)  # fmt: skip


def dry_run(*arguments: str) -> list[str]:
    outer = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")  # of the make that runs these tests
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", *arguments],
        env={name: value for name, value in os.environ.items() if name not in outer},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


@pytest.mark.parametrize("target", SERVERS)
def test_flags_may_be_added_to_what_a_target_starts(target: str) -> None:
    last = dry_run(target, "ARGS=--http-port=8100 --id=x")[-1]
    assert last.startswith(f"HALIMEDE_MAKE_TARGET={target} exec .venv/bin/halimede ")
    assert last.endswith(" --http-port=8100 --id=x")


@pytest.mark.parametrize(
    ("flags", "extra"),
    [
        ("", "host"),
        ("--port=8099", "host"),
        ("--substrate=ray", "ray"),
        ("--port=8099 --substrate ray", "ray"),
    ],
)
def test_host_installs_ray_only_for_a_cluster(flags: str, extra: str) -> None:
    lines = dry_run("host", f"ARGS={flags}")
    installed = [line.split()[-1] for line in lines if "pip install" in line]
    assert sorted(installed) == sorted(["'.[examples]'", f"'.[{extra}]'"])


def test_flags_may_be_added_to_the_container() -> None:
    assert (
        'SAGEMAKER_TRITON_ADDITIONAL_ARGS="--log-verbose=1"'
        in dry_run("sagemaker", "ARGS=--log-verbose=1")[-1]
    )


def test_installing_says_so_and_shows_its_progress() -> None:
    lines = dry_run("serve")
    (install,) = (line for line in lines if "pip install" in line and "'.[examples]'" in line)
    assert "--quiet" not in install
    assert "Installing Halimede with [examples] into .venv" in lines[lines.index(install) - 1]


def test_port_in_use_says_how_make_is_told_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HALIMEDE_MAKE_TARGET", "serve")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_command(
            "serve", f"--model-repository={tmp_path}", "--http-address=127.0.0.1", f"--http-port={port}",
            "--grpc-port=0", "--metrics-port=0",
        )  # fmt: skip
    assert done.returncode == 1
    assert "choose another port with --http-port, as in: make serve ARGS=--http-port=0" in done.stderr


WALK_THROUGHS = (
    "single_model",
    "multi_model",
    "ab_test",
    "data_capture",
    "pipeline",
    "sessions",
    "text_stream",
)
MISSING: tuple[tuple[dict[str, str], str], ...] = (
    ({}, "AWS_ENDPOINT_URL, AWS_DEFAULT_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"),
    (
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_DEFAULT_REGION": "us-east-1"},
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY",
    ),
)


def not_set(missing: str) -> str:
    return (
        f"not set: {missing}; for a host on this machine (`halimede host`), say first:\n"
        '    eval "$(.venv/bin/halimede host --print-env)"'
    )


@pytest.mark.parametrize("name", WALK_THROUGHS)
@pytest.mark.parametrize(("variables", "missing"), MISSING)
def test_walk_through_without_its_variables_says_what_is_missing(
    name: str, variables: dict[str, str], missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(each)
    for each, value in variables.items():
        monkeypatch.setenv(each, value)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(f"examples/hosting/{name}.py", run_name="__main__")
    assert ended.value.code == not_set(missing)


def test_process_of_a_walk_through_without_its_variables_fails(tmp_path: Path) -> None:
    [(variables, missing), _] = MISSING
    done = subprocess.run(
        [sys.executable, "-m", "examples.hosting.single_model"],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **variables},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == f"{not_set(missing)}\n"
