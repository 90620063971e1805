import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from halimede.cli.check.command import command
from tests.repository.agents.agents import agents_text, write_agent
from tests.support import onnx_models


def report(repository: Path, *flags: str) -> dict[str, Any]:
    result = CliRunner().invoke(command, [str(repository), "--format=json", *flags])
    found: dict[str, Any] = json.loads(result.output)
    assert result.exit_code == bool(found["problems"])
    return found


def write_model(repository: Path, *agents: tuple[str, dict[str, str]]) -> Path:
    onnx_models.write_model(repository, "m", onnx_models.identity(), "\n" + agents_text(*agents))
    return repository / "m" / "1" / "model.onnx"


def test_an_agent_that_is_not_there_is_told_with_where_it_should_be(tmp_path: Path) -> None:
    write_model(tmp_path / "models", ("checksum", {}), ("nosuch", {"key": "hunter2-hunter2"}))
    found = report(tmp_path / "models", f"--repoagent-directory={tmp_path}/agents")
    (problem,) = found["problems"]
    assert (problem["line"], problem["field"]) == (2, "model_repository_agents.agents[1].name")
    assert problem["message"].startswith("unable to find 'agent.py' for repo agent 'nosuch', searched: ")
    assert problem["fix"] == (
        f"put its class at {tmp_path}/agents/nosuch/agent.py, "
        "or name the directory of agents with --repoagent-directory"
    )
    assert "hunter2" not in json.dumps(found)


@pytest.mark.parametrize(
    ("text", "message"),
    [("class Agent: pass", "defines no class TritonRepositoryAgent"), ("def (", "SyntaxError")],
)
def test_an_agent_that_is_none_is_told(tmp_path: Path, text: str, message: str) -> None:
    write_model(tmp_path / "models", ("a", {}))
    write_agent(tmp_path / "agents", "a", "pass").write_text(text)
    (problem,) = report(tmp_path / "models", f"--repoagent-directory={tmp_path}/agents")["problems"]
    assert message in problem["message"]
    assert problem["field"] == "model_repository_agents.agents[0]"


def test_wrong_checksums_are_told(tmp_path: Path) -> None:
    write_model(tmp_path, ("checksum", {"MD5:1/model.onnx": "00"}))
    (problem,) = report(tmp_path)["problems"]
    assert problem["message"].startswith("Mismatched MD5 hash for file 1/model.onnx, expect: 00, got: ")


def test_a_model_with_right_checksums_is_looked_at_as_any_other(tmp_path: Path) -> None:
    file = write_model(tmp_path)
    write_model(tmp_path, ("checksum", {"MD5:1/model.onnx": hashlib.md5(file.read_bytes()).hexdigest()}))
    assert report(tmp_path)["problems"] == []
    file.write_bytes(b"no model")
    write_model(tmp_path, ("checksum", {}))
    file.write_bytes(b"no model")
    assert "1" in report(tmp_path)["problems"][0]["file"]


def test_a_model_whose_files_agents_may_replace_is_not_opened(tmp_path: Path) -> None:
    file = write_model(tmp_path / "models", ("a", {}))
    file.write_bytes(b"encrypted")
    write_agent(tmp_path / "agents", "a", "def load(self, model): 1 / 0")
    found = report(tmp_path / "models", f"--repoagent-directory={tmp_path}/agents")
    assert found["problems"] == []
    (warning,) = found["warnings"]
    assert warning["message"] == (
        "the model is not looked at any further: its files may be replaced by its agents 'a'"
    )
