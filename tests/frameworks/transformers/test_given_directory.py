"""A directory of `save_pretrained`, given to `halimede serve` and `init` as it is."""

import json
import sys
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs transformers: pip install 'halimede[transformers]'")

from tests.frameworks.transformers import tiny_models
from tests.support.server import ServerProcess, run_command, running

PORTS = ("--http-address=127.0.0.1", "--http-port=0", "--grpc-port=0", "--metrics-port=0")


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("given") / "llama"
    tiny_models.make("llama").save_pretrained(directory)
    tiny_models.tokenizer().save_pretrained(directory)
    return directory


def written(server: ServerProcess) -> str:
    """What the model writes."""
    body = json.dumps({"text_input": "The moon", "sampling_parameters": '{"max_tokens": 4}'}).encode()
    request = urllib.request.Request(f"http://{server.http}/v2/models/llama/generate", body)
    with urllib.request.urlopen(request, timeout=60) as response:
        text: str = json.load(response)["text_output"]
        return text


def test_the_directory_is_served(pretrained: Path) -> None:
    with running([sys.executable, "-m", "halimede", "serve", str(pretrained), *PORTS], 3) as server:
        assert written(server)
        assert "language model" in server.log


def test_init_makes_a_repository_of_it_that_check_finds_sound(pretrained: Path, tmp_path: Path) -> None:
    repository = tmp_path / "models"
    made = run_command("init", str(pretrained), f"--model-repository={repository}", timeout=100)
    assert made.returncode == 0, made.stderr
    assert f"{repository}/llama: language model" in made.stdout
    assert "still to be done" not in made.stdout
    checked = run_command("check", str(repository), timeout=100)
    assert (checked.returncode, checked.stderr) == (0, ""), checked.stdout
    command = [sys.executable, "-m", "halimede", "serve", f"--model-repository={repository}", *PORTS]
    with running(command, 3) as server:
        assert written(server)
