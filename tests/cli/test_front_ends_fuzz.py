"""Whatever clients send, a server with two front ends answers as one without, and none of its processes ends."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

import grpc
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from halimede.frontends.grpc.kserve_pb2 import ModelInferResponse
from halimede.frontends.grpc.transport import frames
from tests.cli.echo import REQUEST, write_model
from tests.cli.test_front_ends import front_ends, serving
from tests.frontends.grpc.service_fakes import infer_request
from tests.frontends.http.codec.test_request import DOCUMENT
from tests.support.server import ServerProcess, start_server

_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_many = examples(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class _Client:
    """One connection over each protocol to a server, which are opened again if the server closes them."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.http = http.client.HTTPConnection(server.http, timeout=30)
        self.channel = grpc.insecure_channel(server.grpc)
        self.call = self.channel.unary_unary(_METHOD)

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str | None, bytes]:
        """Status, length of the JSON and body of an answer over HTTP."""
        self.http.request("POST", path, body, headers)
        response = self.http.getresponse()
        return response.status, response.headers["Inference-Header-Content-Length"], response.read()

    def infer(self, message: bytes) -> tuple[Any, ...]:
        """Status and text of a call over gRPC, or its answer."""
        try:
            return "OK", ModelInferResponse.FromString(self.call(message, timeout=30))
        except grpc.RpcError as error:
            return error.code(), error.details()

    def close(self) -> None:
        """Close both."""
        self.http.close()
        self.channel.close()


class Both(NamedTuple):
    """A server with two front ends, and one without."""

    several: _Client
    one: _Client


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Both servers, with the same model."""
    repository = tmp_path_factory.mktemp("models")
    write_model(repository)
    with serving(repository) as several, start_server(repository, "--front-ends=1") as one:
        clients = Both(_Client(several), _Client(one))
        processes = front_ends(several)
        yield clients
        for client in clients:
            client.close()
        assert front_ends(several) == processes


@_many
@given(document=DOCUMENT, behind=st.binary(max_size=20), repeated=st.integers(1, 3))
def test_any_document(both: Both, document: dict[str, Any], behind: bytes, repeated: int) -> None:
    text = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
    headers = {"Inference-Header-Content-Length": str(len(text))} if behind else {}
    for _ in range(repeated):  # what comes again may travel by its form
        answers = [client.post("/v2/models/echo/infer", text + behind, headers) for client in both]
        assert answers[0] == answers[1]


@_many
@given(data=st.data())
def test_damaged_requests_over_http(both: Both, data: st.DataObject) -> None:
    body = bytearray(REQUEST)
    for _ in range(data.draw(st.integers(0, 2))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    length = data.draw(st.none() | st.integers(-1, len(body) + 1).map(str))
    headers = {} if length is None else {"Inference-Header-Content-Length": length}
    for _ in range(2):
        answers = [client.post("/v2/models/echo/infer", bytes(body), headers) for client in both]
        assert answers[0] == answers[1]


@_many
@given(data=st.data())
def test_damaged_requests_over_grpc(both: Both, data: st.DataObject) -> None:
    model, identifier = (
        data.draw(st.sampled_from(["echo", "echo", "none"])),
        data.draw(st.sampled_from(["", "id"])),
    )
    message = infer_request(b"12345678", model=model, identifier=identifier, shape=(2,))
    encoded = bytearray(message.SerializeToString())
    for _ in range(data.draw(st.integers(0, 2))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    for _ in range(2):
        assert both.several.infer(bytes(encoded)) == both.one.infer(bytes(encoded))


_frames = st.builds(
    frames.frame,
    st.integers(0, 10),
    st.integers(0, 255),
    st.sampled_from((0, 1, 3, 5)),
    st.binary(max_size=40),
)


@_many
@given(sent=st.lists(_frames | st.binary(max_size=60), max_size=10), is_grpc=st.booleans())
def test_any_bytes_on_a_connection(both: Both, sent: list[bytes], is_grpc: bool) -> None:
    server = both.several.server
    host, _, port = (server.grpc if is_grpc else server.http).rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        begin = (
            frames.PREFACE + frames.settings({}) if is_grpc else b"POST /v2/models/echo/infer HTTP/1.1\r\n"
        )
        connection.sendall(begin + b"".join(sent))
    message = infer_request(b"12345678", model="echo", shape=(2,))
    assert both.several.post("/v2/models/echo/infer", REQUEST, {})[0] == 200
    assert both.several.infer(message.SerializeToString())[0] == "OK"
