"""Loads that bring code along, from clients that may not send any."""

import base64
import json
from pathlib import Path

import pytest

from halimede.core.uploads import CodeUpload
from halimede.frontends.http.settings import HttpSettings
from tests.frontends.http.models import ModelServer, serve_models, write_repository
from tests.frontends.http.serving import Answer, post

CONFIG = '{"backend": "python", "input": [], "output": []}'
CODE = "import pathlib; pathlib.Path({!r}).touch()"


def load(server: ModelServer, witness: Path, peer: str = "") -> Answer:
    """Ask to load a model with code that would leave a file behind."""
    code = base64.b64encode(CODE.format(str(witness)).encode()).decode()
    body = json.dumps({"parameters": {"config": CONFIG, "file:1/model.py": code}}).encode()
    with server.served.client() as client:
        # the connection is open on the server's side too once it has answered
        assert client.ask(post(b"", "/v2/repository/index")).status == 200
        if peer:
            for connection in server.served.connections:
                connection.peer = peer
        return client.ask(post(body, "/v2/repository/models/stranger/load", "Content-Type: text/plain"))


@pytest.mark.parametrize(
    ("upload", "peer", "needed"),
    [(CodeUpload.LOOPBACK, "10.0.0.2", "=all"), (CodeUpload.NONE, "127.0.0.1", "=loopback")],
)
def test_code_of_a_stranger_is_not_run(tmp_path: Path, upload: CodeUpload, peer: str, needed: str) -> None:
    write_repository(tmp_path)
    witness = tmp_path / "witness"
    with serve_models(tmp_path, HttpSettings(code_upload=upload)) as server:
        answer = load(server, witness, peer)
    assert (answer.status, not witness.exists()) == (403, True)
    assert f"--allow-model-code-upload{needed}" in json.loads(answer.body)["error"]


@pytest.mark.parametrize(
    ("upload", "peer"), [(CodeUpload.LOOPBACK, "127.0.0.1"), (CodeUpload.ALL, "10.0.0.2")]
)
def test_code_of_a_trusted_client_is_run(tmp_path: Path, upload: CodeUpload, peer: str) -> None:
    write_repository(tmp_path)
    witness = tmp_path / "witness"
    with serve_models(tmp_path, HttpSettings(code_upload=upload)) as server:
        load(server, witness, peer)
    assert witness.exists()


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"parameters": {"EXECUTION_ENV_PATH": {"string_value": "/tmp/env"}}}, "EXECUTION_ENV_PATH"),
        ({"parameters": {"CPU_EXTENSION_PATH": {"string_value": "/tmp/x.so"}}}, "CPU_EXTENSION_PATH"),
        ({"model_operations": {"op_library_filename": ["/tmp/x.so"]}}, "op_library_filename"),
        (
            {
                "optimization": {
                    "execution_accelerators": {
                        "gpu_execution_accelerator": [
                            {"name": "tensorrt", "parameters": {"extra_plugin_lib_paths": "/tmp/x.so"}}
                        ]
                    }
                }
            },
            "extra_plugin_lib_paths",
        ),
    ],
)
def test_a_stranger_does_not_say_what_code_is_run(
    tmp_path: Path, config: dict[str, object], named: str
) -> None:
    write_repository(tmp_path)
    body = {"parameters": {"config": json.dumps({"backend": "identity", **config})}}
    settings = HttpSettings(code_upload=CodeUpload.NONE)
    with serve_models(tmp_path, settings) as server, server.served.client() as client:
        answer = client.ask(post(json.dumps(body).encode(), "/v2/repository/models/echo/load"))
    assert answer.status == 403
    assert json.loads(answer.body)["error"].startswith(
        f"configurations with {named} are not taken from requests"
    )


@pytest.mark.parametrize(
    "place", ["../../witness/model.py", "/proc/self/fd/0", "../1/../../witness/model.py"]
)
def test_nobody_has_a_file_outside_of_the_version_run(tmp_path: Path, place: str) -> None:
    write_repository(tmp_path)
    (tmp_path / "witness").mkdir()
    witness = tmp_path / "ran"
    (tmp_path / "witness" / "model.py").write_text(CODE.format(str(witness)))
    config = json.dumps({"backend": "python", "default_model_filename": place, "input": [], "output": []})
    body = json.dumps({"parameters": {"config": config}}).encode()
    settings = HttpSettings(code_upload=CodeUpload.ALL)
    with serve_models(tmp_path, settings) as server, server.served.client() as client:
        answer = client.ask(post(body, "/v2/repository/models/echo/load"))
    assert answer.status == 500
    assert f"default_model_filename '{place}' must name a file inside" in json.loads(answer.body)["error"]
    assert not witness.exists()


def test_a_stranger_may_load_what_lies_in_the_repository(tmp_path: Path) -> None:
    write_repository(tmp_path)
    settings = HttpSettings(code_upload=CodeUpload.NONE)
    with serve_models(tmp_path, settings) as server, server.served.client() as client:
        assert client.ask(post(b"", "/v2/repository/models/echo/load")).status == 200
