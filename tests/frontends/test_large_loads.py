"""While a large request to load a model is handled, the event loop goes on: no callback of it does much."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from halimede.config import override as overrides
from halimede.config.parse import MAX_VALUES
from halimede.config.validate.ensembles import MAX_STEPS
from halimede.frontends.grpc import kserve_pb2 as pb
from halimede.frontends.grpc.service import ServiceSettings, methods
from halimede.frontends.grpc.transport.call import UnaryMethod
from tests.frontends.grpc.service_fakes import FakeCall
from tests.frontends.http.models import ModelServer, serve_models
from tests.frontends.http.serving import get, post
from tests.support.callbacks import counted_callbacks
from tests.support.waiting import wait_until

MOST_CALLS = 6 * MAX_STEPS
"""Function calls of a callback, of a millisecond or two: a few for each step of the largest ensemble."""

NUMBERS: dict[str, Any] = {"data_type": "TYPE_FP32", "dims": [-1]}
IDENTITY: dict[str, Any] = {
    "backend": "identity",
    "input": [{"name": "IN", **NUMBERS}],
    "output": [{"name": "OUT", **NUMBERS}],
}


def ensemble(steps: int) -> dict[str, Any]:
    """An ensemble in which each step reads what the one before it has written."""
    made = [
        {
            "model_name": "m",
            "model_version": -1,
            "input_map": {"IN": f"t{n}"},
            "output_map": {"OUT": f"t{n + 1}"},
        }
        for n in range(steps)
    ]
    made[0]["input_map"], made[-1]["output_map"] = {"IN": "IN"}, {"OUT": "OUT"}
    return {**IDENTITY, "backend": "", "platform": "ensemble", "ensemble_scheduling": {"step": made}}


LOADS: dict[str, tuple[dict[str, Any], str]] = {
    "an ensemble of as many steps as there may be": (ensemble(MAX_STEPS), ""),
    "an ensemble of more": (ensemble(MAX_STEPS + 1), f"1025 steps, and the maximum is {MAX_STEPS}"),
    "an ensemble of very many": (ensemble(20_000), f"more than {MAX_VALUES} values"),
    "many inputs": (
        {**IDENTITY, "input": [{"name": f"I{n}", **NUMBERS} for n in range(3000)]},
        "as many outputs as inputs",
    ),
    "many parameters": (
        {**IDENTITY, "parameters": {f"p{n}": {"string_value": ""} for n in range(8000)}},
        "",
    ),
    "many groups": ({**IDENTITY, "instance_group": [{}] * 5000}, "1025 instances"),
    "a mistake at its end": (
        {**IDENTITY, "parameters": {f"p{n}": {} for n in range(8000)}, "x": 1},
        "'x' is not",
    ),
}
"""What is loaded, and why it is not; "" if it is."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ModelServer]:
    for name in ("m", "large"):
        (tmp_path / name / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(
        'backend: "identity" input { name: "IN" data_type: TYPE_FP32 dims: -1 } '
        'output { name: "OUT" data_type: TYPE_FP32 dims: -1 }'
    )
    with serve_models(tmp_path, None, "m") as running:
        yield running


def over_http(server: ModelServer, config: str) -> tuple[bool, str]:
    """Whether the load succeeds, and the error."""
    body = json.dumps({"parameters": {"config": config}}).encode()
    with server.served.client() as client:
        client.socket.settimeout(60)
        answer = client.ask(post(body, "/v2/repository/models/large/load"))
    return answer.status == 200, answer.body.decode()


def over_grpc(server: ModelServer, config: str) -> tuple[bool, str]:
    """The same."""
    request = pb.RepositoryModelLoadRequest(model_name="large")
    request.parameters["config"].string_param = config
    method = methods(server.engine, ServiceSettings())["/inference.GRPCInferenceService/RepositoryModelLoad"]
    assert isinstance(method, UnaryMethod)
    call = FakeCall("/inference.GRPCInferenceService/RepositoryModelLoad", None)
    call.peer = "127.0.0.1"
    server.served.loop.call(method.handler, call, memoryview(request.SerializeToString()))
    wait_until(lambda: call.status is not None, "the load")
    return call.status == 0, call.text


@pytest.mark.parametrize("over", [over_http, over_grpc])
@pytest.mark.parametrize("case", LOADS)
def test_others_go_on_while_a_large_configuration_is_loaded(
    server: ModelServer, case: str, over: Callable[[ModelServer, str], tuple[bool, str]]
) -> None:
    config, problem = LOADS[case]
    text = json.dumps(config)
    with counted_callbacks(server.served.loop) as callbacks:
        loaded, error = over(server, text)
    assert loaded is (not problem), error
    assert problem in error
    assert callbacks.most_calls < MOST_CALLS, callbacks.longest


def test_others_go_on_while_a_large_configuration_is_written(server: ModelServer) -> None:
    config = {**IDENTITY, "parameters": {f"p{n}": {"string_value": ""} for n in range(8000)}}
    assert over_http(server, json.dumps(config))[0]
    with counted_callbacks(server.served.loop) as callbacks, server.served.client() as client:
        answer = client.ask(get("/v2/models/large/config"), "GET")
    assert len(json.loads(answer.body)["parameters"]) == 8000
    assert callbacks.most_calls < MOST_CALLS, callbacks.longest


@pytest.mark.parametrize("over", [over_http, over_grpc])
def test_a_large_configuration_is_not_parsed_by_the_server(
    server: ModelServer,
    over: Callable[[ModelServer, str], tuple[bool, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[str] = []

    def parse(text: str) -> Any:
        parsed.append(text)
        raise AssertionError

    monkeypatch.setattr(overrides, "parse_json", parse)
    assert over(server, json.dumps(ensemble(MAX_STEPS)))[0]
    assert not parsed
