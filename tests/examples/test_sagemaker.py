"""The page on SageMaker: its commands, run against `halimede sagemaker-serve` with what the example builds."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.sagemaker.build import build
from tests.examples.test_pages import Command, commands, run
from tests.support.sagemaker import start_serve
from tests.support.server import ServerProcess

BUILT = "build/sagemaker"
SHOWN = f"/home/me/halimede/{BUILT}"
CONTAINERFILE = Path("examples/sagemaker/Containerfile")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make sagemaker` builds."""
    directory = tmp_path_factory.mktemp("sagemaker")
    build(directory)
    return directory


@pytest.fixture(scope="module")
def single(base: Path) -> Iterator[ServerProcess]:
    """What the page starts on port 8080."""
    with start_serve(base, SAGEMAKER_TRITON_DEFAULT_MODEL_NAME="read_digit") as server:
        yield server


@pytest.fixture(scope="module")
def many(base: Path) -> Iterator[ServerProcess]:
    """What the page starts on port 8081."""
    with start_serve(base, SAGEMAKER_MULTI_MODEL="true") as server:
        yield server


@pytest.mark.parametrize("command", commands("sagemaker.md"), ids=lambda one: one.line[:60])
def test_page_says_what_its_command_prints(
    command: Command, base: Path, single: ServerProcess, many: ServerProcess
) -> None:
    line = command.line.replace(f"'$PWD'/{BUILT}", str(base)).replace(BUILT, str(base))
    line = line.replace("localhost:8080", single.sagemaker).replace("localhost:8081", many.sagemaker)

    printed = run(command._replace(line=line), single)

    assert printed == command.output.rstrip("\n").replace(SHOWN, str(base))


def test_archives_are_what_the_base_directory_holds(base: Path) -> None:
    archives = sorted(path.name for path in (base / "archives").iterdir())
    assert archives == ["add_sub.tar.gz", "digits.tar.gz", "read_digit.tar.gz"]
    assert sorted(path.name for path in (base / "model").iterdir()) == ["digits", "read_digit", "words"]
    tops = sorted(sorted(path.name for path in each.iterdir()) for each in base.glob("models/*/model"))
    assert tops == [["1", "config.pbtxt", "labels.txt"], ["add_sub"], ["digits", "read_digit", "words"]]
    for archive in (base / "archives").iterdir():
        with tarfile.open(archive) as packed:
            assert not [name for name in packed.getnames() if "__pycache__" in name]


def test_script_of_the_image_is_the_server(tmp_path: Path) -> None:
    [recipe] = re.findall(r"^RUN (printf .*/serve)$", CONTAINERFILE.read_text(), re.M)
    script = tmp_path / "serve"
    subprocess.run(["sh", "-c", recipe.replace("/usr/local/bin/serve", str(script))], check=True, timeout=30)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    done = subprocess.run(
        [script, "--help"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert done.stdout.startswith("Usage: halimede sagemaker-serve")


def test_image_is_one_that_the_platform_can_run() -> None:
    text = CONTAINERFILE.read_text()
    instructions = dict.fromkeys(line for line in text.splitlines() if line and not line.startswith("#"))
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]

    # the platform's command is `serve`, which an entry point would take as an argument
    assert not [line for line in instructions if line.startswith("ENTRYPOINT")]
    assert 'CMD ["serve"]' in instructions
    for capability in ("accept-bind-to-port", "multi-models"):
        assert f"LABEL com.amazonaws.sagemaker.capabilities.{capability}=true" in instructions
    assert "EXPOSE 8080" in instructions
    [version] = re.findall(r"^FROM python:3\.(\d+)-slim$", text, re.M)
    assert project["requires-python"] == f">=3.{version}"
    for extra in re.findall(r"\$wheel\[(\w+)\]", text):
        assert extra in project["optional-dependencies"]
    assert f"COPY {project['name']}-*.whl /tmp/" in instructions
