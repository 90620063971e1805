"""Repository agents that hang, as a whole server bears with them."""

import json
import os
import urllib.request
from pathlib import Path

import pytest

from tests.repository.agents.agents import agents_text, until_gone, write_agent
from tests.support import onnx_models
from tests.support.server import ServerProcess, start_server
from tests.support.waiting import wait_until

HANG = """
def {method}(self, model):
    import os, pathlib, time
    pathlib.Path({note!r}).write_text(str(os.getpid()))
    time.sleep(1000)
"""


@pytest.fixture
def note(tmp_path: Path) -> Path:
    """Where an agent that hangs has left the number of its process."""
    return tmp_path / "note"


def repository(tmp_path: Path, note: Path, method: str) -> Path:
    """A repository with a model whose agent hangs, and one without agents."""
    write_agent(tmp_path / "agents", "hangs", HANG.format(method=method, note=str(note)))
    models = tmp_path / "models"
    onnx_models.write_model(models, "m", onnx_models.identity(), agents_text(("hangs", {})))
    onnx_models.write_model(models, "other", onnx_models.identity())
    return models


def pid_in(note: Path) -> int:
    return int(wait_until(lambda: note.exists() and note.read_text(), "the agent to hang"))


def infer(server: ServerProcess, model: str) -> int:
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 16], "data": [0] * 16}
    body = json.dumps({"inputs": [tensor]}).encode()
    with urllib.request.urlopen(
        f"http://{server.http}/v2/models/{model}/infer", body, timeout=30
    ) as response:
        return int(response.status)


def test_other_models_are_served_while_an_agent_hangs_which_ends_with_a_killed_server(
    tmp_path: Path, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    models = repository(tmp_path, note, "load")
    flags = (f"--repoagent-directory={tmp_path}/agents",)
    with start_server(models, *flags, ready=False) as server:
        server.wait_for("successfully loaded 'other'")
        pid = pid_in(note)
        assert infer(server, "other") == 200
        [scratch] = temporary.glob("halimede-agents-*")
        server.process.kill()
        server.process.wait(30)
        until_gone(pid)
    note.unlink()
    os.utime(scratch, (0, 0))
    with start_server(models, *flags, ready=False) as server:
        pid_in(note)
        assert not scratch.exists()
        server.process.kill()


def test_a_server_that_stops_does_not_wait_for_an_agent_for_ever(tmp_path: Path, note: Path) -> None:
    models = repository(tmp_path, note, "unload_complete")
    flags = (f"--repoagent-directory={tmp_path}/agents", "--exit-timeout-secs=1")
    with start_server(models, *flags) as server:
        assert infer(server, "m") == 200
        assert server.stop() == 1
        assert "Exit timeout expired. Exiting immediately." in server.log
    until_gone(pid_in(note))
