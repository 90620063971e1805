"""A real server that speaks to Vertex AI; statuses and texts are tritonserver's."""

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from halimede.frontends.vertex.content_type import BINARY
from tests.frontends.http.serving import Answer, Client
from tests.support.onnx_models import write_model
from tests.support.server import ServerProcess, run_command, running, start_server
from tests.support.waiting import wait_until

ECHO = """
backend: "identity"
input [{ name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] }]
"""
ROUTES = {"AIP_PREDICT_ROUTE": "/v1/predict", "AIP_HEALTH_ROUTE": "/v1/health"}
VALUES = np.array([5, -6], "<i4")
JSON = json.dumps(
    {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [2], "data": VALUES.tolist()}]}
).encode()
ON = "--allow-vertex-ai=true"


@contextmanager
def serving(repository: Path, *flags: str, ready: bool = True, **environment: str) -> Iterator[ServerProcess]:
    """A server with these variables."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ROUTES, **environment}.items():
            patch.setenv(name, value)
        with start_server(repository, ON, *flags, ready=ready) as server:
            yield server


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("repository")
    for name in ("echo", "other"):
        write_model(directory, name, None, ECHO)
    return directory


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[ServerProcess]:
    flags = ("--model-control-mode=explicit", "--load-model=*", "--vertex-ai-default-model=other")
    with serving(repository, *flags) as running:
        yield running


def ask(
    server: ServerProcess,
    body: bytes = b"{}",
    redirect: str | None = None,
    path: str = "/v1/predict",
    method: str = "POST",
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """The answer to a request at the port of Vertex AI."""
    sent = {"Host": "localhost", "Content-Length": str(len(body)), **(headers or {})}
    if redirect is not None:
        sent["X-Vertex-Ai-Triton-Redirect"] = redirect
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    with Client(int(server.vertex_ai.rpartition(":")[2])) as client:
        return client.ask(head.encode() + b"\r\n" + body, method)


def binary_request() -> tuple[bytes, dict[str, str]]:
    """A request with its tensors as bytes, and the headers that say so."""
    document = {
        "inputs": [
            {"name": "INPUT0", "datatype": "INT32", "shape": [2], "parameters": {"binary_data_size": 8}}
        ],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }
    text = json.dumps(document).encode()
    return text + VALUES.tobytes(), {"Content-Type": f"{BINARY}{len(text)}"}


def test_a_prediction_is_an_inference_on_the_default_model(server: ServerProcess) -> None:
    answer = ask(server, JSON)
    assert answer.status == 200
    document = json.loads(answer.body)
    assert document["model_name"] == "other"
    assert document["outputs"] == [{"name": "OUTPUT0", "datatype": "INT32", "shape": [2], "data": [5, -6]}]


def test_tensors_as_bytes(server: ServerProcess) -> None:
    body, headers = binary_request()
    answer = ask(server, body, headers=headers)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/octet-stream"
    begin = int(answer.headers["inference-header-content-length"])
    assert answer.body[begin:] == VALUES.tobytes()


def test_a_header_of_kserve_says_nothing_of_the_body(server: ServerProcess) -> None:
    body, headers = binary_request()
    size = headers["Content-Type"].removeprefix(BINARY)
    answer = ask(server, body, headers={"Inference-Header-Content-Length": size})
    assert answer.status == 400
    assert b"failed to parse the request JSON buffer" in answer.body


@pytest.mark.parametrize(
    ("content_type", "error"),
    [
        (
            f"text/plain;{BINARY}4",
            f"expect MIME type for binary data starts with '{BINARY}', got: text/plain;",
        ),
        (f"{BINARY}abc", "Unable to parse inference header size, got: abc; expected a number of bytes"),
        (f"{BINARY}9999", "inference header size should be in range"),
    ],
)
def test_a_wrong_content_type_is_refused(server: ServerProcess, content_type: str, error: str) -> None:
    body, _ = binary_request()
    answer = ask(server, body, headers={"Content-Type": content_type})
    assert answer.status == 400
    assert json.loads(answer.body)["error"].startswith(error)


def test_bodies_are_taken_as_they_are(server: ServerProcess) -> None:
    assert ask(server, JSON, headers={"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}).status == 200
    assert ask(server, gzip.compress(JSON), headers={"Content-Encoding": "gzip"}).status == 400


def test_health_is_readiness(server: ServerProcess) -> None:
    for method in ("GET", "HEAD"):
        assert ask(server, b"", path="/v1/health", method=method).status == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/health", 405),
        ("DELETE", "/v1/health", 405),
        ("GET", "/v1/predict", 405),
        ("PUT", "/v1/predict", 405),
        ("GET", "/v1/health/", 400),
        ("POST", "/v1/predict/", 400),
        ("GET", "/v2/health/ready", 400),
        ("POST", "/v2/models/echo/infer", 400),
        ("POST", "/", 400),
    ],
)
def test_other_methods_and_paths(server: ServerProcess, method: str, path: str, status: int) -> None:
    answer = ask(server, b"", path=path, method=method)
    assert answer.status == status
    assert answer.body == (b'{"error":"Method Not Allowed"}' if status == 405 else b"")


@pytest.mark.parametrize(
    ("redirect", "part"),
    [
        ("v2", b'"name":"triton"'),
        ("v2/health/live", b""),
        ("v2/health/ready", b""),
        ("v2/models/echo", b'"name":"echo"'),
        ("v2/models/echo/versions/1", b'"name":"echo"'),
        ("v2/models/echo/ready", b""),
        ("v2/models/echo/config", b'"backend":"identity"'),
        ("v2/models/echo/stats", b'"model_stats"'),
        ("v2/models/stats", b'"model_stats"'),
        ("v2/repository/index", b'"name":"echo"'),
        ("metrics", b"nv_inference_count"),
    ],
)
def test_other_calls_by_redirection(server: ServerProcess, redirect: str, part: bytes) -> None:
    answer = ask(server, redirect=redirect)
    assert answer.status == 200
    assert part in answer.body


@pytest.mark.parametrize("path", ["v2/models/echo/infer", "v2/models/echo/versions/1/infer"])
def test_inference_by_redirection(server: ServerProcess, path: str) -> None:
    assert json.loads(ask(server, JSON, path).body)["model_name"] == "echo"
    body, headers = binary_request()
    assert ask(server, body, path, headers=headers).body.endswith(VALUES.tobytes())


def test_models_are_loaded_and_unloaded_by_redirection(server: ServerProcess) -> None:
    assert ask(server, redirect="v2/repository/models/echo/unload").status == 200
    answer = ask(server, JSON, "v2/models/echo/infer")
    assert answer.status == 404
    assert b"Request for unknown model: 'echo'" in answer.body
    assert ask(server, redirect="v2/repository/models/echo/load").status == 200
    assert ask(server, JSON, "v2/models/echo/infer").status == 200


@pytest.mark.parametrize(
    "redirect",
    [
        "/v2",
        "v2/",
        "V2",
        "v2/nothing",
        "v2/models/echo/infer?x=1",
        "http://other/v2",
        "v2/models/echo/generate",
        "v2/models/echo/generate_stream",
        "v2/trace/setting",
        "v2/logging",
        "../v2",
        "v1/predict",
        "\x80",
    ],
)
def test_what_cannot_be_meant(server: ServerProcess, redirect: str) -> None:
    answer = ask(server, redirect=redirect)
    assert (answer.status, answer.body) == (400, b"")


def test_redirection_needs_a_post(server: ServerProcess) -> None:
    assert ask(server, b"", "v2", method="GET").status == 405


def test_restricted_calls_need_their_header_by_redirection_too(repository: Path) -> None:
    flags = ("--http-restricted-api=model-repository:key=secret", "--vertex-ai-default-model=echo")
    with serving(repository, *flags) as server:
        answer = ask(server, redirect="v2/repository/index")
        assert answer.status == 403
        assert b"This API is restricted, expecting header 'key'" in answer.body
        assert ask(server, redirect="v2/repository/index", headers={"key": "secret"}).status == 200
        assert ask(server, JSON).status == 200


def test_the_only_model_is_the_default(tmp_path: Path) -> None:
    write_model(tmp_path, "echo", None, ECHO)
    with serving(tmp_path) as server:
        assert json.loads(ask(server, JSON).body)["model_name"] == "echo"


def test_a_model_is_loaded_by_a_prediction(repository: Path) -> None:
    flags = ("--model-control-mode=ondemand", "--vertex-ai-default-model=echo")
    with serving(repository, *flags) as server:
        assert json.loads(ask(server, JSON).body)["model_name"] == "echo"


def test_without_the_metrics_there_is_nothing_to_redirect_to(repository: Path) -> None:
    with serving(repository, "--allow-metrics=false", "--vertex-ai-default-model=echo") as server:
        assert ask(server, redirect="metrics").status == 400


def test_the_environment_turns_it_on(repository: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**ROUTES, "AIP_MODE": "PREDICTION", "AIP_STORAGE_URI": str(repository)}.items():
            patch.setenv(name, value)
        flags = ["--vertex-ai-address=127.0.0.1", "--vertex-ai-port=0", "--metrics-port=0"]
        command = [sys.executable, "-m", "halimede", "serve", *flags, "--vertex-ai-default-model=echo"]
        with running(command, 2, ready=False) as server:
            assert (server.http, server.grpc) == ("", "")
            wait_until(lambda: ask(server, b"", path="/v1/health", method="GET").status == 200, "readiness")
            assert ask(server, JSON).status == 200


def fails_to_start(repository: Path, *flags: str, **environment: str) -> str:
    """What a server writes that does not start."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ROUTES:
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        ports = [f"--{name}-port=0" for name in ("http", "grpc", "metrics", "vertex-ai")]
        ended = run_command("serve", f"--model-repository={repository}", ON, *ports, *flags, timeout=120)
    assert ended.returncode != 0
    return ended.stdout + ended.stderr


@pytest.mark.parametrize("missing", ROUTES)
def test_the_environment_must_name_both_paths(repository: Path, missing: str) -> None:
    environment = {name: value for name, value in ROUTES.items() if name != missing}
    text = f"failed to start Vertex AI service: Invalid argument - {missing} is not defined for Vertex AI endpoint"
    assert text in fails_to_start(repository, "--vertex-ai-default-model=echo", **environment)


def test_the_default_model_must_be_there(repository: Path) -> None:
    text = "failed to start Vertex AI service: Invalid argument - Expect the default model 'none' is loaded"
    assert text in fails_to_start(repository, "--vertex-ai-default-model=none", **ROUTES)


def test_one_of_several_models_must_be_the_default(repository: Path) -> None:
    text = "Expect the model repository contains only a single model if default model is not specified"
    assert text in fails_to_start(repository, **ROUTES)
