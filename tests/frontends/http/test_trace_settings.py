import json
from collections.abc import Iterator
from typing import Any

import pytest

from halimede.engine.tracing.settings import TraceConfig
from tests.frontends.http.models import ModelServer, serve_models, write_repository
from tests.frontends.http.serving import get, post

ALL = "/v2/trace/setting"
ECHO = "/v2/models/echo/trace/setting"
AT_START = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "FILE",
    "trace_mode": "triton",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelServer]:
    directory = tmp_path_factory.mktemp("repository")
    write_repository(directory)
    tracing = TraceConfig(file=str(tmp_path_factory.mktemp("traces") / "trace.json"))
    with serve_models(directory, None, "echo", tracing=tracing) as server:
        yield server


@pytest.fixture
def server(running: ModelServer) -> Iterator[ModelServer]:
    """The server, whose settings are as at the start."""
    yield running
    back = dict.fromkeys(("trace_level", "trace_rate", "trace_count", "log_frequency"))
    for path in (ALL, ECHO):
        assert change(running, path, back) == AT_START


def read(server: ModelServer, path: str) -> Any:
    with server.served.client() as client:
        answer = client.ask(get(path))
    assert answer.status == 200
    return shown(server, answer.body)


def shown(server: ModelServer, body: bytes) -> Any:
    """What a body says; the server's file is FILE."""
    return json.loads(body.replace(server.engine.tracing.config.file.encode(), b"FILE"))


def change(server: ModelServer, path: str, changes: Any, status: int = 200) -> Any:
    body = changes if isinstance(changes, bytes) else json.dumps(changes).encode()
    with server.served.client() as client:
        answer = client.ask(post(body, path))
    assert answer.status == status
    return shown(server, answer.body)


def test_settings_have_the_protocols_names_in_its_order(server: ModelServer) -> None:
    assert list(read(server, ALL).items()) == list(AT_START.items())
    assert read(server, ECHO) == AT_START


def test_settings_of_all_models_are_changed(server: ModelServer) -> None:
    changes = {"trace_level": ["TENSORS", "TIMESTAMPS"], "trace_rate": "1", "log_frequency": "5"}
    changed = AT_START | changes | {"trace_level": ["TIMESTAMPS", "TENSORS"]}
    assert change(server, ALL, changes) == changed
    assert read(server, ALL) == read(server, ECHO) == changed


def test_settings_of_a_model_go_before_those_of_all(server: ModelServer) -> None:
    assert change(server, ECHO, {"trace_rate": "77"}) == AT_START | {"trace_rate": "77"}
    change(server, ALL, {"trace_rate": "33", "trace_count": "5"})
    assert read(server, ECHO) == AT_START | {"trace_rate": "77", "trace_count": "5"}
    assert change(server, ECHO, {"trace_rate": None}) == AT_START | {"trace_rate": "33", "trace_count": "5"}


def test_null_makes_a_setting_of_all_models_what_it_was_at_the_start(server: ModelServer) -> None:
    change(server, ALL, {"trace_rate": "5", "trace_level": ["TIMESTAMPS"]})
    assert change(server, ALL, {"trace_rate": None, "trace_level": None}) == AT_START


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"trace_level": []},
        {"trace_mode": "opentelemetry"},
        {"unknown": "5"},
        {"unknown": None},
        b"[]",
        b"null",
        b'"text"',
    ],
)
def test_what_is_no_setting_changes_nothing(server: ModelServer, changes: Any) -> None:
    for path in (ALL, ECHO):
        assert change(server, path, changes) == AT_START


RATES = "value is out of range [ 0, 4294967295 ]"
COUNTS = "value is out of range [ -1, 2147483647 ]"
INVALID = "Attempting to set invalid trace setting :"
FILE = "trace file location can not be updated through network protocol"
ONE_OFF = "Expect only one trace level 'OFF' is specified"


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        ({"trace_level": "TIMESTAMPS"}, 400, "attempt to access JSON non-array as array"),
        ({"trace_level": [1]}, 400, "attempt to access JSON non-string as string"),
        ({"trace_level": [None]}, 400, "attempt to access JSON non-string as string"),
        ({"trace_level": ["OFF", "TIMESTAMPS"]}, 400, ONE_OFF),
        ({"trace_level": ["OFF", "OFF"]}, 400, ONE_OFF),
        (
            {"trace_level": ["NONSENSE"]},
            400,
            "unknown trace level 'NONSENSE'; known are TIMESTAMPS, TENSORS and OFF",
        ),
        (
            {"trace_level": ["TENSORS", "timestamps"]},
            400,
            "unknown trace level 'timestamps'; known are TIMESTAMPS, TENSORS and OFF",
        ),
        ({"trace_rate": 5}, 400, "attempt to access JSON non-string as string"),
        ({"trace_rate": ["5"]}, 400, "attempt to access JSON non-string as string"),
        ({"trace_rate": True}, 400, "attempt to access JSON non-string as string"),
        ({"trace_rate": "abc"}, 400, "Unable to parse 'trace_rate', got: abc"),
        ({"trace_rate": ""}, 400, "Unable to parse 'trace_rate', got: "),
        ({"trace_rate": "5x"}, 400, "Unable to parse 'trace_rate', got: 5x"),
        ({"trace_rate": "٣"}, 400, "Unable to parse 'trace_rate', got: ٣"),
        ({"trace_rate": "-1"}, 400, f"Unable to parse 'trace_rate', {RATES}, got: -1"),
        ({"trace_rate": "99999999999"}, 400, f"Unable to parse 'trace_rate', {RATES}, got: 99999999999"),
        ({"trace_rate": "9" * 5000}, 400, f"Unable to parse 'trace_rate', {RATES}, got: {'9' * 64}"),
        ({"trace_count": "-2"}, 400, "Unable to parse 'trace_count'. Expecting value >= -1, got:-2"),
        ({"trace_count": "x"}, 400, "Unable to parse 'trace_count', got: x"),
        ({"trace_count": "99999999999"}, 400, f"Unable to parse 'trace_count', {COUNTS}, got: 99999999999"),
        ({"log_frequency": "x"}, 400, "Unable to parse 'log_frequency', got: x"),
        ({"log_frequency": "1e3"}, 400, "Unable to parse 'log_frequency', got: 1e3"),
        ({"trace_file": "/tmp/x"}, 501, FILE),
        ({"trace_file": None}, 501, FILE),
        ({"trace_rate": "7", "trace_file": 1}, 501, FILE),
        ({"trace_level": ["TIMESTAMPS"], "trace_rate": "0"}, 400, f"{INVALID}sample rate must be non-zero"),
        ({"trace_level": ["TENSORS"], "trace_count": "0"}, 400, f"{INVALID}trace count must be non-zero"),
        ({"trace_rate": "7", "trace_count": "x"}, 400, "Unable to parse 'trace_count', got: x"),
        (b"", 400, "failed to parse the request JSON buffer: The document is empty. at 0"),
        (b"{bad", 400, "failed to parse the request JSON buffer: Missing a name for object member. at 1"),
    ],
)
def test_a_wrong_value_changes_nothing(server: ModelServer, changes: Any, status: int, text: str) -> None:
    for path in (ALL, ECHO):
        assert change(server, path, changes, status) == {"error": text}
        assert read(server, path) == AT_START


@pytest.mark.parametrize("model", ["strings", "nobody"])
def test_a_model_that_is_not_loaded_has_no_settings(server: ModelServer, model: str) -> None:
    path, refusal = f"/v2/models/{model}/trace/setting", {"error": f"Request for unknown model : {model}"}
    with server.served.client() as client:
        answer = client.ask(get(path))
    assert (answer.status, json.loads(answer.body)) == (400, refusal)
    assert change(server, path, {"trace_rate": "5"}, 400) == refusal
