"""Requests that have neither tensors nor files nor texts are small: the event loop reads each in a millisecond."""

import json
from collections.abc import Iterator

import pytest

from halimede.core.errors import InvalidArgumentError
from halimede.frontends.http.settings import HttpSettings
from halimede.frontends.request_bounds import MAX_SMALL_BYTES
from halimede.frontends.sagemaker.load_request import read_load_request
from halimede.frontends.shared_memory.registry import Regions
from tests.frontends.http.models import ModelServer, serve_models, write_repository
from tests.frontends.http.serving import post

CALLS = [
    "/v2/repository/index",
    "/v2/repository/models/echo/unload",
    "/v2/logging",
    "/v2/trace/setting",
    "/v2/models/echo/trace/setting",
    "/v2/systemsharedmemory/region/r/register",
    "/v2/cudasharedmemory/region/r/register",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    directory = tmp_path_factory.mktemp("repository")
    write_repository(directory)
    settings = HttpSettings(max_input_size=4 * MAX_SMALL_BYTES, regions=Regions(allowed=True))
    with serve_models(directory, settings, "echo") as running:
        yield running


@pytest.mark.parametrize("path", CALLS)
def test_larger_ones_are_refused(server: ModelServer, path: str) -> None:
    body = json.dumps({"x": "y" * MAX_SMALL_BYTES}).encode()
    with server.served.client() as client:
        answer = client.ask(post(body, path))
    assert answer.status == 400
    text = (
        f"the JSON of the request has {len(body)} bytes, and the maximum for this call is {MAX_SMALL_BYTES}"
    )
    assert json.loads(answer.body) == {"error": text}


def test_the_limit_of_all_json_is_told_first(server: ModelServer) -> None:
    body = json.dumps({"x": "y" * 4 * MAX_SMALL_BYTES}).encode()
    with server.served.client() as client:
        answer = client.ask(post(body, "/v2/logging"))
    assert (
        f"exceeds the maximum allowed input size. It is {4 * MAX_SMALL_BYTES} bytes." in answer.body.decode()
    )


def test_larger_requests_of_sagemaker_are_refused() -> None:
    body = json.dumps({"model_name": "m", "url": "/" * MAX_SMALL_BYTES}).encode()
    with pytest.raises(InvalidArgumentError, match=f"the maximum for this call is {MAX_SMALL_BYTES}"):
        read_load_request(memoryview(body), {}, 4 * MAX_SMALL_BYTES)
