"""The commands of the pages print what the pages say.

A page's commands are those of its `console` blocks; what follows a command there, up to the next, is its output.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.server import ServerProcess, start_server
from tests.support.walkthroughs import blocks

PYTHON = ".venv/bin/python "


class Command(NamedTuple):
    """A command of a page, and what it prints there."""

    page: str
    line: str
    output: str


def commands(*pages: str) -> list[Command]:
    """The commands of the pages, in their order."""
    found = []
    for page in pages:
        for block in blocks(page, "console"):
            for entry in re.split(r"^\$ ", block, flags=re.M)[1:]:
                line, _, output = entry.partition("\n")
                found.append(Command(page, line, output))
    assert found
    return found


def run(command: Command, server: ServerProcess) -> str:
    """What the command prints when it talks to that server, without lines that are empty at the end."""
    line = command.line
    if line.startswith(PYTHON):
        script = shlex.split(line)[1]
        addresses = {
            "--http": server.http,
            "--grpc": server.grpc,
            "--metrics": server.metrics,
            "--sagemaker": server.sagemaker,
        }
        source = Path(script).read_text()
        given = " ".join(f"{flag} {where}" for flag, where in addresses.items() if f'"{flag}"' in source)
        line = (
            f"{shlex.quote(sys.executable)} {script} {given} {line.removeprefix(PYTHON).removeprefix(script)}"
        )
    line = line.replace("localhost:8000", server.http).replace("localhost:8002", server.metrics)
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n")


@pytest.fixture(scope="module")
def python_server() -> Iterator[ServerProcess]:
    """A server as the pages on Python models start it."""
    with start_server("examples/python/models") as running:
        yield running


@pytest.mark.parametrize(
    "command",
    commands("python-models.md", "bls.md", "decoupled.md"),
    ids=lambda one: f"{one.page}: {one.line[:60]}",
)
def test_page_says_what_its_command_prints(command: Command, python_server: ServerProcess) -> None:
    assert run(command, python_server) == command.output.rstrip("\n")


@pytest.mark.parametrize("command", commands("sentence-embeddings.md"), ids=lambda one: one.line[:60])
def test_page_on_embeddings_says_what_its_command_prints(
    command: Command, embeddings_server: ServerProcess
) -> None:
    assert run(command, embeddings_server) == command.output.rstrip("\n")


@pytest.fixture(scope="module")
def sequences_server() -> Iterator[ServerProcess]:
    """A server as `make sequences` starts it."""
    with start_server("examples/sequences/models") as running:
        yield running


@pytest.mark.parametrize("command", commands("sequences.md"), ids=lambda one: one.line[:60])
def test_page_on_sequences_says_what_its_command_prints(
    command: Command, sequences_server: ServerProcess
) -> None:
    assert run(command, sequences_server) == command.output.rstrip("\n")
