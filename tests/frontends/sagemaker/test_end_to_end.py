"""A real server that speaks to SageMaker, and clients that know nothing but the container contract."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from onnx import helper

from halimede.codec.sagemaker_media_type import BINARY
from tests.frontends.http.serving import Answer, Client, get, post
from tests.support.onnx_models import FLOAT, build, write_model
from tests.support.server import ServerProcess, start_server

ECHO = """
backend: "identity"
input [{ name: "INPUT0" data_type: TYPE_STRING dims: [ 1 ] }]
output [{ name: "OUTPUT0" data_type: TYPE_STRING dims: [ 1 ] }]
"""
REPEAT = """
backend: "repeat" model_transaction_policy { decoupled: true }
input [
  { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] },
  { name: "DELAY" data_type: TYPE_UINT32 dims: [ -1 ] },
  { name: "WAIT" data_type: TYPE_UINT32 dims: [ 1 ] }
]
output [
  { name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "IDX" data_type: TYPE_UINT32 dims: [ 1 ] }
]
"""
A, B = np.array([[[1.5, -2, 0.25]], [[1, 2, 3]]], np.float32)


def write_sum(repository: Path, name: str) -> Path:
    """An ONNX model whose C is A + B; its directory."""
    ports = {"A": (FLOAT, ("n", 3)), "B": (FLOAT, ("n", 3))}
    model = build([helper.make_node("Add", ["A", "B"], ["C"])], ports, {"C": (FLOAT, ("n", 3))})
    return write_model(repository, name, model, "max_batch_size: 8\n")


def connect(server: ServerProcess) -> Client:
    return Client(int(server.sagemaker.rpartition(":")[2]))


def ask(server: ServerProcess, request: bytes) -> Answer:
    with connect(server) as client:
        return client.ask(request)


@contextmanager
def serving(repository: Path, *flags: str, ready: bool = True, **environment: str) -> Iterator[ServerProcess]:
    """A server with these variables, whose names are short of SAGEMAKER_TRITON_."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(f"SAGEMAKER_TRITON_{name}", value)
        with start_server(repository, "--allow-sagemaker=true", *flags, ready=ready) as server:
            yield server


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("repository")
    write_sum(directory, "sum")
    write_model(directory, "echo", None, ECHO)
    write_model(directory, "repeat", None, REPEAT)
    return directory


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[ServerProcess]:
    with serving(repository, DEFAULT_MODEL_NAME="sum") as running:
        yield running


def tensors(binary: bool) -> list[triton.InferInput]:
    inputs = []
    for name, values in (("A", A), ("B", B)):
        tensor = triton.InferInput(name, list(values.shape), "FP32")
        tensor.set_data_from_numpy(values, binary_data=binary)
        inputs.append(tensor)
    return inputs


def infer(server: ServerProcess, path: str, binary_in: bool, binary_out: bool) -> triton.InferResult:
    """What a client gets that packs its body with tritonclient and sends it as SageMaker would."""
    body, length = triton.InferenceServerClient.generate_request_body(
        tensors(binary_in), outputs=[triton.InferRequestedOutput("C", binary_data=binary_out)]
    )
    content_type = "application/json" if length is None else f"{BINARY}{length}"
    answer = ask(server, post(body, path, f"Content-Type: {content_type}"))
    assert answer.status == 200, answer.body
    label = answer.headers["content-type"]
    assert label.startswith(BINARY) if binary_out else label == "application/json"
    return triton.InferenceServerClient.parse_response_body(
        answer.body, header_length=int(label.removeprefix(BINARY)) if binary_out else None
    )


def test_ping_tells_that_the_server_is_ready(server: ServerProcess) -> None:
    answer = ask(server, get("/ping"))
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("binary_in", [False, True])
@pytest.mark.parametrize("binary_out", [False, True])
def test_invocations_infer(server: ServerProcess, binary_in: bool, binary_out: bool) -> None:
    result = infer(server, "/invocations", binary_in, binary_out)
    assert result.as_numpy("C").tolist() == (A + B).tolist()
    assert result.get_response()["model_name"] == "sum"


def test_a_connection_serves_many_requests(server: ServerProcess) -> None:
    with connect(server) as client:
        for status, request in (
            (200, get("/ping")),
            (400, post(b"nonsense", "/invocations")),
            (405, get("/invocations")),
            (404, get("/models/x")),
            (400, get("/v2")),
            (200, get("/ping")),
        ):
            assert client.ask(request).status == status


def test_beside_it_http_speaks_its_own_dialect(server: ServerProcess) -> None:
    with triton.InferenceServerClient(server.http) as client:
        assert client.infer("sum", tensors(binary=True)).as_numpy("C").tolist() == (A + B).tolist()


def test_too_many_chunks_end_the_connection(server: ServerProcess) -> None:
    with connect(server) as client:
        head = b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.send(head + b"1\r\n{\r\n" * 65_537)
        answer = client.read()
        assert (answer.status, list(json.loads(answer.body))) == (400, ["error"])
        assert answer.headers["connection"] == "close"


def test_alone_it_is_enough_for_sagemaker(repository: Path) -> None:
    closed = [f"--allow-{name}=false" for name in ("http", "grpc", "metrics")]
    with serving(repository, *closed, "--model-control-mode=explicit", "--load-model=sum") as server:
        assert (server.http, server.grpc, server.metrics) == ("", "", "")
        # no variable names the model, but there is only one
        assert infer(server, "/invocations", True, True).as_numpy("C").tolist() == (A + B).tolist()


def test_generate(repository: Path) -> None:
    with serving(repository, DEFAULT_MODEL_NAME="echo", INFERENCE_TYPE="generate") as server:
        answer = ask(server, post(b'{"INPUT0": "hello", "id": "7"}', "/invocations"))
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        document = json.loads(answer.body)
        assert (document["id"], document["model_name"], document["OUTPUT0"]) == ("7", "echo", "hello")


def test_generate_stream(repository: Path) -> None:
    with serving(repository, DEFAULT_MODEL_NAME="repeat", INFERENCE_TYPE="generate_stream") as server:
        body = json.dumps({"IN": [5, 7, 9], "DELAY": [0, 0, 0], "WAIT": 0}).encode()
        answer = ask(server, post(body, "/invocations", "Content-Type: application/json"))
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        *events, end = answer.body.split(b"\n\n")
        found: list[Any] = [json.loads(event.removeprefix(b"data: ")) for event in events]
        assert ([(event["OUT"], event["IDX"]) for event in found], end) == ([(5, 0), (7, 1), (9, 2)], b"")


def test_one_broken_model_leaves_the_server_live(repository: Path, tmp_path: Path) -> None:
    write_model(tmp_path, "broken", None, 'backend: "none"')
    flags = ("--exit-on-error=false",)
    with serving(tmp_path, *flags, ready=False, PING_MODE="live") as server:
        server.wait_for("failed to load")
        assert ask(server, get("/ping")).status == 200
        assert server.get("/v2/health/ready")[0] == 400


def test_models_are_loaded_listed_invoked_and_unloaded(repository: Path, tmp_path: Path) -> None:
    key, alias = "0123456789abcdef0123456789abcdef", "company_a/sum.tar.gz"
    place = tmp_path / key / "model"
    write_sum(place, "sum")
    flags = ("--model-control-mode=explicit", f"--sagemaker-model-directory={tmp_path}")
    with serving(repository, *flags) as server:
        assert json.loads(ask(server, get("/models")).body) == {"models": []}
        body = json.dumps({"model_name": key, "url": str(place)}).encode()
        load = post(body, "/models", f"X-Amzn-SageMaker-Target-Model: {alias}")
        for _ in range(2):
            answer = ask(server, load)
            assert (answer.status, answer.body) == (200, b"")
            assert ask(server, load).status == 409
            listed = json.loads(ask(server, get("/models")).body)
            assert listed == {"models": [{"modelName": key, "modelUrl": str(place)}]}
            assert json.loads(ask(server, get(f"/models/{key}")).body) == listed["models"][0]
            for binary in (False, True):
                result = infer(server, f"/models/{key}/invoke", binary, binary)
                assert result.as_numpy("C").tolist() == (A + B).tolist()
                assert result.get_response()["model_name"] == alias
            assert ask(server, get(f"/models/{key}").replace(b"GET", b"DELETE", 1)).status == 200
            assert ask(server, post(b"{}", f"/models/{key}/invoke")).status == 404
        outside = json.dumps({"model_name": key, "url": "/etc"}).encode()
        assert ask(server, post(outside, "/models")).status == 400
