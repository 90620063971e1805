"""The page at `/`, the list of models, and the OpenAPI document."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from openapi_spec_validator import validate

from halimede.frontends.http.openapi import DESCRIBED, openapi
from halimede.frontends.http.routes import Call, find_route
from halimede.frontends.http.settings import HttpSettings
from tests.frontends.http.models import ModelServer, serve_models, write_repository
from tests.frontends.http.serving import get, post


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    directory: Path = tmp_path_factory.mktemp("repository")
    write_repository(directory)
    with serve_models(directory, HttpSettings(), "echo", "half") as running:
        yield running


@pytest.mark.parametrize("accept", ["text/html,application/xhtml+xml", "application/xml, Text/HTML ;q=0.9"])
def test_a_browser_gets_a_page_with_links(server: ModelServer, accept: str) -> None:
    with server.served.client() as client:
        answer = client.ask(get("/", f"Accept: {accept}"))
    page = answer.body.decode()
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    for path in ("/v2/models", "/v2", "/openapi.json"):
        assert f'href="{path}"' in page
        with server.served.client() as client:
            assert client.ask(get(path)).status == 200
    assert 'href="/console"' not in page  # this server has none


def test_a_program_gets_what_it_gets_of_triton(server: ModelServer) -> None:
    with server.served.client() as client:
        for headers in ((), ("Accept: */*",), ("Accept: application/json",)):
            answer = client.ask(get("/", *headers))
            assert (answer.status, answer.body) == (404, b'{"error":"Not Found"}')


def test_the_models_that_are_ready_are_listed(server: ModelServer) -> None:
    with server.served.client() as client:
        document = json.loads(client.ask(get("/v2/models")).body)
        assert [(model["name"], model["versions"]) for model in document["models"]] == [
            ("echo", ["1", "3"]),
            ("half", ["1"]),
        ]
        assert all(model["platform"] for model in document["models"])
        assert client.ask(get("/v2/models/")).status == 404
        assert client.ask(post(b"{}", "/v2/models")).status == 405


def test_the_openapi_document_is_valid_and_names_what_is_served(server: ModelServer) -> None:
    with server.served.client() as client:
        document = json.loads(client.ask(get("/openapi.json")).body)
    validate(document)
    assert "/v2/models/{model}/infer" in document["paths"]
    assert "/v2/console/snapshot" not in document["paths"]
    validate(json.loads(json.dumps(openapi(set(Call)))))


def test_each_call_is_described_with_paths_that_mean_it() -> None:
    assert set(DESCRIBED) == set(Call)
    for call, described in DESCRIBED.items():
        for path in described.paths:
            route = find_route(path.replace("{version}", "1").replace("{", "").replace("}", ""))
            assert route is not None
            assert route.call is call
