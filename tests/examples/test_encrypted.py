"""The example of an agent that decrypts models: encrypted by its program, served, changed and refused."""

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.support import onnx_models
from tests.support.server import ServerProcess, start_server
from tests.support.walkthroughs import run_module

AGENTS = ROOT / "examples/encrypted/agents"


@pytest.fixture
def encrypted(tmp_path: Path) -> Path:
    """A repository with an encrypted model."""
    onnx_models.write_model(tmp_path / "models", "identity", onnx_models.identity())
    run_module(
        "examples.encrypted.encrypt",
        tmp_path / "models",
        tmp_path / "encrypted",
        f"--key-file={tmp_path}/key",
    )
    return tmp_path / "encrypted"


def post(server: ServerProcess, path: str, document: object) -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://{server.http}{path}", json.dumps(document).encode())
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def load(server: ServerProcess) -> tuple[int, bytes]:
    return post(server, "/v2/repository/models/identity/load", {})


def test_an_encrypted_model_is_served(
    encrypted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    plain = (tmp_path / "models/identity/1/model.onnx").read_bytes()
    assert [path.name for path in (encrypted / "identity/1").iterdir()] == ["model.onnx.aes"]
    assert plain[:64] not in (encrypted / "identity/1/model.onnx.aes").read_bytes()
    with start_server(encrypted, f"--repoagent-directory={AGENTS}") as server:
        status, body = server.get("/v2/models/identity")
        assert status == 200
        [tensor] = json.loads(body)["inputs"]
        shape = [1 if size == -1 else size for size in tensor["shape"]]
        count = 1
        for size in shape:
            count *= size
        tensors = [{**tensor, "shape": shape, "data": list(range(count))}]
        status, body = post(server, "/v2/models/identity/infer", {"inputs": tensors})
        assert status == 200
        assert json.loads(body)["outputs"][0]["data"] == list(range(count))
        [decrypted] = temporary.glob("halimede-agents-*")
        assert [path.read_bytes() for path in decrypted.rglob("model.onnx")] == [plain]
        assert server.stop() == 0
        assert (tmp_path / "key").read_text() not in server.log
    assert list(temporary.glob("halimede-agents-*")) == []


def test_changed_files_and_wrong_keys_are_refused(encrypted: Path, tmp_path: Path) -> None:
    flags = (f"--repoagent-directory={AGENTS}", "--model-control-mode=explicit")
    file = encrypted / "identity/1/model.onnx.aes"
    right = file.read_bytes()
    key = tmp_path / "key"
    right_key = key.read_text()
    with start_server(encrypted, *flags) as server:
        for content in (right[:-1], right[:20], right[:40] + b"\0" + right[41:], b""):
            file.write_bytes(content)
            status, body = load(server)
            assert status == 500
            reason = "agent 'decrypt' refused LOAD: '1/model.onnx.aes' was encrypted with another key, or was changed"
            assert reason in json.loads(body)["error"]
        file.write_bytes(right)
        key.write_text("nonsense" * 8)
        status, body = load(server)
        assert "does not hold 64 hexadecimal digits" in json.loads(body)["error"]
        key.write_text("00" * 32)
        assert load(server)[0] == 500
        key.write_text(right_key)
        assert load(server) == (200, b"")
        assert "nonsense" not in server.log
