"""The chat example, with a model that was trained for a moment: built, served, and talked to."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.chat.client import answer
from examples.chat.pages import read_turns
from tests.support.server import ServerProcess, start_server

if find_spec("transformers") is None:  # whose import takes a second
    pytest.skip("needs transformers: pip install 'halimede[transformers]'", allow_module_level=True)


BUILDS = """
import runpy, sys

_, directory, qwen = sys.argv
for arguments in ([qwen, "--steps=0", "--kind=qwen2"], [directory, "--steps=2"]):
    sys.argv[1:] = arguments
    runpy.run_module("examples.chat.build", run_name="__main__")
"""
"""Makes a model of another kind, and then, as `make chat` does, one: PyTorch is imported for both at once."""


@dataclass(frozen=True)
class Built:
    """What was made.

    Attributes:
        directory, qwen: the two directories.
        printed: what making the one of `directory` printed.
        told: what was said of the other.
    """

    directory: Path
    qwen: Path
    printed: str
    told: str


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """What `make chat` builds, with less training, and a model of another kind."""
    directory, qwen = tmp_path_factory.mktemp("chat"), tmp_path_factory.mktemp("qwen")
    done = subprocess.run(
        [sys.executable, "-c", BUILDS, directory, qwen], capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    told, _, *printed = done.stdout.splitlines()
    return Built(directory, qwen, "\n".join(printed), told)


@pytest.fixture(scope="module")
def server(built: Built) -> Iterator[ServerProcess]:
    """What `make chat` builds, with less training, and starts."""
    assert built.printed.endswith(f"{built.directory}/models: scribe")
    with start_server(built.directory / "models", "--allow-openai=true") as running:
        yield running


def test_each_line_gets_an_answer(server: ServerProcess) -> None:
    command = [sys.executable, "-m", "examples.chat.client", f"--http={server.http}", "--temperature=0"]
    done = subprocess.run(
        [*command, "--max-tokens=5"],
        input="Dynamic batching\nGPUs\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.count("> ") == 3


def test_what_the_server_refuses_is_told(server: ServerProcess) -> None:
    with pytest.raises(RuntimeError, match="unknown model: 'nobody'"):
        list(answer(f"http://{server.http}/v1", "nobody", [{"role": "user", "content": "Hello"}]))


def test_it_may_be_a_qwen(built: Built) -> None:
    assert built.told.startswith("a qwen2 of ")
    config = json.loads((built.qwen / "models" / "scribe" / "1" / "config.json").read_text())
    assert config["architectures"] == ["Qwen2ForCausalLM"]


def test_headings_are_asked_and_paragraphs_answered(tmp_path: Path) -> None:
    first = "# Title\n\nA [link](x.md) and `code`,\nin two lines.\n\nMore.\n\n"
    page = first + "## Table\n\n| a |\n\n```sh\n# no\n```\n\nThe end.\n"
    (tmp_path / "page.md").write_text(page)
    assert read_turns(tmp_path) == [("Title", "A link and code, in two lines."), ("Table", "The end.")]
