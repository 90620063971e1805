"""The pages on functions, files, the engine in an application and the command line say what their commands print."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.test_pages import Command, commands
from tests.support.server import ServerProcess, running
from tests.support.walkthroughs import blocks

APP = "examples/functions/app.py"
PAGES = ("functions.md", "files.md", "in-process.md", "command-line.md", "tutorial.md")
FUNCTIONS = ("add", "count", "Classifier", "countdown", "spell")
SERVE = [sys.executable, "-m", "halimede", "serve"]
PORTS = ["--http-address=127.0.0.1", "--http-port=0", "--grpc-port=0", "--metrics-port=0"]


@pytest.fixture(scope="module")
def functions_server(examples: Path) -> Iterator[ServerProcess]:
    """A server of functions, and of a model's directory."""
    given = [f"{APP}:{name}" for name in FUNCTIONS]
    given += [f"square={APP}:slow_square", str(examples / "models" / "digits")]
    with running([*SERVE, *given, *PORTS], 3) as server:
        yield server


@pytest.fixture(scope="module")
def files_server(examples: Path) -> Iterator[ServerProcess]:
    """A server of what the page on files gives to `halimede serve`."""
    given = [str(examples / "models" / "digits" / "1" / "model.onnx"), f"counts={APP}:count"]
    with running([*SERVE, *given, *PORTS], 3) as server:
        yield server


@pytest.mark.parametrize("command", commands(*PAGES), ids=lambda one: f"{one.page}: {one.line[:60]}")
def test_page_says_what_its_command_prints(
    command: Command,
    functions_server: ServerProcess,
    files_server: ServerProcess,
    examples: Path,
    tmp_path: Path,
) -> None:
    given_server = files_server if command.page in ("files.md", "tutorial.md") else functions_server
    places = {"build/examples": str(examples), "build/models": str(tmp_path / "models")}
    line = command.line.replace("localhost:8000", given_server.http)
    if line.startswith(".venv/bin/python "):
        line = f"{shlex.quote(sys.executable)} {line.removeprefix('.venv/bin/python ')}"
        line += f" {examples}" if "embedded" in line else ""
    if line.startswith("head "):  # of what the command before has written
        init = "halimede init net=build/examples/models/digits/1/model.onnx --model-repository=build/models"
        line = f"{init} >&2; {line}"
    for place, here in places.items():
        line = line.replace(place, here)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HALIMEDE_URL": f"http://{given_server.http}",
    }
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.rstrip("\n")
    for place, here in places.items():
        printed = printed.replace(here, place)
    assert printed == command.output.rstrip("\n")


@pytest.mark.parametrize("page", PAGES)
def test_code_of_the_page_is_that_of_the_examples(page: str) -> None:
    sources = [path.read_text() for path in sorted(Path("examples/functions").glob("*.py"))]
    dedented = [re.sub(r"^    ", "", source, flags=re.M) for source in sources]
    for block in blocks(page, "python"):
        if "http_port=9000" not in block:  # a line that shows what may be given
            for part in block.strip().split("\n\n\n"):
                assert any(part in source for source in (*sources, *dedented)), part


def test_the_shortest_server_is_that_of_the_readme() -> None:
    (block,) = re.findall(r"^```python\n(from halimede.*?)^```", Path("README.md").read_text(), re.M | re.S)
    assert block in Path("examples/functions/add.py").read_text()
