"""Large requests to load models are decoded elsewhere, over both protocols."""

import asyncio
import base64
import json
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halimede.config.override import ConfigOverride
from halimede.core.tensors import Buffer
from halimede.core.uploads import CodeUpload
from halimede.frontends.decoders import Decoders
from halimede.frontends.grpc import kserve_pb2 as pb
from halimede.frontends.grpc.management import read_load_request as read_grpc
from halimede.frontends.grpc.service import ServiceSettings
from halimede.frontends.http.codec.load_parameters import read_load_request as read_http
from halimede.frontends.http.settings import HttpSettings
from halimede.frontends.load_request import LARGE, LoadRequest
from halimede.frontends.request_bounds import MAX_SMALL_BYTES
from tests.frontends.grpc.service_fakes import FakeEngine
from tests.frontends.grpc.test_service import ask
from tests.frontends.http.models import ModelServer, serve_models, write_repository
from tests.frontends.http.serving import post

CONFIG = '{"backend": "identity"}'
CONTENT = os.urandom(2 * LARGE)


class CountingDecoders(Decoders):
    """Remembers what it was asked for.

    Attributes:
        asked: the functions that it called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[object] = []

    def decode(self, function: Callable[..., Any], data: Buffer, *arguments: Any) -> asyncio.Future[Any]:
        self.asked.append(function)
        return super().decode(function, data, *arguments)


def over_http(content: bytes) -> bytes:
    parameters = {"config": CONFIG, "file:1/any": base64.b64encode(content).decode()}
    return json.dumps({"parameters": parameters}).encode()


def over_grpc(content: bytes) -> pb.RepositoryModelLoadRequest:
    request = pb.RepositoryModelLoadRequest(model_name="m")
    request.parameters["config"].string_param = CONFIG
    request.parameters["file:1/any"].bytes_param = content
    return request


def loading() -> tuple[FakeEngine, list[Any]]:
    """An engine, and the loads that it is asked for."""
    loads: list[Any] = []

    async def load(name: str, parameters: Any) -> None:
        loads.append((name, parameters))

    return FakeEngine(load=load), loads


@pytest.fixture
def decoders() -> CountingDecoders:
    return CountingDecoders()


@pytest.fixture
def server(tmp_path: Path, decoders: CountingDecoders) -> Iterator[ModelServer]:
    write_repository(tmp_path)
    settings = HttpSettings(decoders=decoders, code_upload=CodeUpload.LOOPBACK)
    with serve_models(tmp_path, settings) as running:
        yield running


@pytest.mark.parametrize("content", [b"small", CONTENT])
def test_files_arrive_over_http(
    server: ModelServer, decoders: CountingDecoders, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Any] = []

    async def load(name: str, parameters: Any) -> None:
        loads.append((name, parameters))

    monkeypatch.setattr(server.engine.lifecycle, "load", load)
    with server.served.client() as client:
        answer = client.ask(post(over_http(content), "/v2/repository/models/m/load"))
    assert answer.status == 200
    assert loads == [("m", {"config": ConfigOverride(CONFIG), "file:1/any": content})]
    assert decoders.asked == ([read_http] if content is CONTENT else [])


def test_what_is_wrong_with_a_large_request_is_told_as_of_a_small_one(server: ModelServer) -> None:
    def refusal(padding: int) -> tuple[int, bytes]:
        body = json.dumps({"parameters": {"file:1/any": "%", "padding": "x" * padding}}).encode()
        with server.served.client() as client:
            answer = client.ask(post(body, "/v2/repository/models/m/load"))
        return answer.status, answer.body

    assert refusal(2 * LARGE) == refusal(1)
    assert refusal(1)[0] == 400


def test_a_stranger_may_not_send_large_files(server: ModelServer) -> None:
    with server.served.client() as client:
        assert client.ask(post(b"", "/v2/repository/index")).status == 200
        for connection in server.served.connections:
            connection.peer = "10.0.0.2"
        assert client.ask(post(over_http(CONTENT), "/v2/repository/models/m/load")).status == 403


@pytest.mark.parametrize("content", [b"small", CONTENT])
def test_files_arrive_over_grpc(decoders: CountingDecoders, content: bytes) -> None:
    engine, loads = loading()
    settings = ServiceSettings(decoders=decoders)
    assert ask(engine, "RepositoryModelLoad", over_grpc(content), settings, peer="127.0.0.1").status == 0
    assert loads == [("m", {"config": ConfigOverride(CONFIG), "file:1/any": content})]
    assert decoders.asked == ([read_grpc] if content is CONTENT else [])


def test_a_stranger_may_not_send_large_files_over_grpc(decoders: CountingDecoders) -> None:
    engine, loads = loading()
    settings = ServiceSettings(decoders=decoders)
    call = ask(engine, "RepositoryModelLoad", over_grpc(CONTENT), settings, peer="10.0.0.2")
    assert call.status == 7
    assert not loads


def test_other_messages_are_small() -> None:
    request = pb.ModelStatisticsRequest(name="x" * MAX_SMALL_BYTES)
    call = ask(FakeEngine(), "ModelStatistics", request)
    assert (call.status, call.text) == (
        3,
        f"a ModelStatisticsRequest has {request.ByteSize()} bytes, and the maximum is {MAX_SMALL_BYTES}",
    )


def test_files_are_not_copied_on_their_way() -> None:
    request = LoadRequest.of("m", {"config": CONFIG, "file:1/any": CONTENT})
    buffers: list[pickle.PickleBuffer] = []
    written = pickle.dumps(request, pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
    assert len(written) < LARGE
    assert pickle.loads(written, buffers=[bytes(each.raw()) for each in buffers]) == request
