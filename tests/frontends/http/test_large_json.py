"""Requests and responses with so much JSON that it is read elsewhere, and written in pieces."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pytest

from halimede.codec import json_sizes
from halimede.codec.json_sizes import LARGE, is_large
from halimede.frontends.decoders import Decoders
from halimede.frontends.http.settings import HttpSettings
from tests.frontends.http.models import ModelServer, serve_models, write_repository
from tests.frontends.http.serving import Answer, post
from tests.support.waiting import wait_until

COUNT = 60_000
VALUES = np.random.default_rng(0).random(COUNT, np.float32)
MAX_OUTPUT = 1_500_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_repository(repository)
    with serve_models(repository, HttpSettings(max_output_size=MAX_OUTPUT), "echo", "strings") as running:
        yield running


@pytest.fixture(autouse=True)
def _numbers_are_soon_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_sizes, "LARGE_NUMBERS", LARGE)


def infer(values: Any, *headers: str, outputs: str = "", path: str = "echo/infer") -> bytes:
    data = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    entry = f'{{"name":"INPUT0","datatype":"FP32","shape":[1,{len(values)}],"data":{data}}}'
    body = f'{{"id":"7","inputs":[{entry}]{outputs}}}'.encode()
    assert is_large(memoryview(body))
    return post(body, f"/v2/models/{path}", *headers)


def ask(server: ModelServer, request: bytes) -> Answer:
    with server.served.client() as client:
        return client.ask(request)


def test_many_numbers_come_and_go_as_json(server: ModelServer) -> None:
    answer = ask(server, infer(VALUES))
    assert answer.status == 200
    document = json.loads(answer.body)
    (output,) = document.pop("outputs")
    assert document["id"] == "7"
    assert (document["model_name"], document["model_version"]) == ("echo", "3")
    assert output.pop("data") == VALUES.astype(float).tolist()
    assert output == {"name": "OUTPUT0", "datatype": "FP32", "shape": [1, COUNT]}


def test_they_may_be_compressed(server: ModelServer) -> None:
    plain = ask(server, infer(VALUES))
    packed = ask(server, infer(VALUES, "Accept-Encoding: deflate"))
    assert packed.headers["content-encoding"] == "deflate"
    assert len(packed.body) < len(plain.body)


def test_an_output_may_be_binary(server: ModelServer) -> None:
    binary = ',"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]'
    answer = ask(server, infer(VALUES, outputs=binary))
    head = int(answer.headers["inference-header-content-length"])
    np.testing.assert_array_equal(np.frombuffer(answer.body[head:], np.float32), VALUES)


def test_generate_reads_them_elsewhere_too(server: ModelServer) -> None:
    body = json.dumps({"INPUT0": "x" * 2 * LARGE}).encode()
    answer = ask(server, post(body, "/v2/models/strings/generate"))
    assert json.loads(answer.body)["OUTPUT0"] == "x" * 2 * LARGE


@pytest.mark.parametrize("text", ["[1,2", '["a"]', "7"])
def test_an_error_is_that_of_small_json(server: ModelServer, text: str) -> None:
    def body(padding: int) -> bytes:
        parameters = json.dumps({"padding": "x" * padding})
        entry = f'{{"name":"INPUT0","datatype":"FP32","shape":[1,1],"data":{text}}}'
        return f'{{"parameters":{parameters},"inputs":[{entry}]}}'.encode()

    small, large = (ask(server, post(body(size), "/v2/models/echo/infer")) for size in (1, LARGE))
    assert large.status == small.status == 400
    if text != "[1,2":  # whose position is told
        assert large.body == small.body


def test_more_than_a_response_may_have_is_refused_and_may_be_had_as_bytes(server: ModelServer) -> None:
    values = np.resize(VALUES, 3 * COUNT)
    answer = ask(server, infer(values))
    assert answer.status == 400
    assert json.loads(answer.body)["error"] == (
        f"the JSON of a response may have {MAX_OUTPUT} bytes, and that of output 'OUTPUT0' has more. Please use the "
        f"binary data format for output 'OUTPUT0', or --http-max-output-size to increase the limit."
    )
    binary = ',"outputs":[{"name":"OUTPUT0","parameters":{"binary_data":true}}]'
    assert ask(server, infer(values, outputs=binary)).status == 200


def test_a_client_that_leaves_while_its_request_is_read_is_not_served(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading: list[asyncio.Future[Any]] = []

    def read(*_: Any) -> asyncio.Future[Any]:
        reading.append(asyncio.get_running_loop().create_future())
        return reading[-1]

    statistics = server.engine.find("echo", -1).statistics
    before = statistics.success.count
    with monkeypatch.context() as patch, server.served.client() as client:
        patch.setattr(Decoders, "decode", read)
        client.send(infer(VALUES))
        wait_until(lambda: bool(reading), "the request to be read")
        client.vanish()
        wait_until(lambda: reading[0].cancelled(), "the reading to be cancelled")
    assert ask(server, infer(VALUES)).status == 200
    assert statistics.success.count == before + 1
