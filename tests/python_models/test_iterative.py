"""Requests that a Python model asks to get again: continuous batching."""

import json
from http.client import HTTPConnection
from typing import Any

import numpy as np
import pytest

from tests.python_models.support import DECOUPLED, Models, Stream, grpc_inputs
from tests.support.waiting import wait_until

IN_SERVER_TOO = True

ITERATIVE = "sequence_batching { iterative_sequence: true oldest { max_candidate_sequences: 8 } }"

CONFIG = f"""
max_batch_size: 8
input [{{ name: "IN" data_type: TYPE_FP32 dims: [1] }}]
output [{{ name: "OUT" data_type: TYPE_FP32 dims: [1] }}]
instance_group [{{ count: 1 kind: KIND_CPU }}]
{ITERATIVE}
"""

START = """
class TritonPythonModel:
    def initialize(self, args):
        self.steps = {}
        self.directory = args["model_repository"]
        self.calls = open(os.path.join(self.directory, "calls"), "a", buffering=1)

    def begin(self, requests):
        self.calls.write(" ".join(f"{request.request_id()}:{request.flags()}" for request in requests) + "\\n")
        while os.path.exists(os.path.join(self.directory, "hold")):
            time.sleep(0.01)

    def step(self, request):
        key = request.correlation_id()
        self.steps[key] = self.steps.get(key, 0) + 1
        wanted = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0, 0]
        more = self.steps[key] < wanted and not request.is_cancelled()
        if more:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        return more, np.array([[self.steps[key] if more else self.steps.pop(key)]], np.float32)
"""

ONE_ANSWER = (
    START
    + """
    def execute(self, requests):
        self.begin(requests)
        responses = []
        for request in requests:
            more, value = self.step(request)
            responses.append(None if more else pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]))
        return responses
"""
)
"""Takes as many steps as its input says, and answers with their number."""

TOKENS = (
    START
    + """
    def execute(self, requests):
        self.begin(requests)
        for request in requests:
            more, value = self.step(request)
            sender = request.get_response_sender()
            sender.send(
                pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]),
                flags=0 if more else pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL,
            )
"""
)
"""Answers with a response for each step."""


def one(value: float) -> Any:
    return np.array([[value]], np.float32)


def calls(models: Models, name: str) -> list[str]:
    path = models.repository / name / "calls"
    return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(
    params=[TOKENS, TOKENS.replace("def execute", "async def execute")], ids=["plain", "coroutine"]
)
def tokens(request: pytest.FixtureRequest, models: Models) -> str:
    """A decoupled model."""
    return models.load(request.param, CONFIG + DECOUPLED)


@pytest.mark.parametrize(
    "source", [ONE_ANSWER, ONE_ANSWER.replace("def execute", "async def execute")], ids=["plain", "coroutine"]
)
def test_a_request_comes_again_until_it_is_answered(models: Models, source: str) -> None:
    name = models.load(source, CONFIG)
    assert models.infer(name, one(3), request_id="r").tolist() == [[3]]
    assert calls(models, name) == ["r:1", "r:0", "r:0"]
    assert models.statistics(name)["execution_count"] == 3
    assert models.statistics(name)["inference_stats"]["success"]["count"] == 1


def test_a_response_comes_with_each_step(models: Models, tokens: str) -> None:
    stream = Stream(models)
    stream.send(tokens, one(4), "r", final=True)
    values = [stream.take().value for _ in range(4)]
    stream.close()
    assert values == [1, 2, 3, 4]
    assert calls(models, tokens) == ["r:1", "r:0", "r:0", "r:0"]


def test_callers_join_and_leave_between_steps(models: Models, tokens: str) -> None:
    hold = models.repository / tokens / "hold"
    hold.write_text("")
    streams = [Stream(models) for _ in range(3)]
    streams[0].send(tokens, one(3), "a")
    wait_until(lambda: calls(models, tokens) == ["a:1"], "the first step")
    streams[1].send(tokens, one(1), "b")
    streams[2].send(tokens, one(2), "c")
    pending = f'nv_inference_pending_request_count{{model="{tokens}",version="1"}} 2'
    wait_until(
        lambda: pending in models.server.get("/metrics", models.server.metrics)[1].decode(), "two that wait"
    )
    hold.unlink()
    assert [streams[0].take().value for _ in range(3)] == [1, 2, 3]
    assert streams[1].take().value == 1
    assert [streams[2].take().value for _ in range(2)] == [1, 2]
    for stream in streams:
        stream.close()
    steps = [sorted(line.split()) for line in calls(models, tokens)]
    assert steps == [["a:1"], ["a:0", "b:1", "c:1"], ["a:0", "c:0"]]


def test_generate_stream_sends_each_step(models: Models, tokens: str) -> None:
    connection = HTTPConnection(models.server.http, timeout=60)
    body = json.dumps({"IN": 3, "id": "r"})
    connection.request("POST", f"/v2/models/{tokens}/generate_stream", body)
    response = connection.getresponse()
    assert response.status == 200
    events = [
        json.loads(line[6:]) for line in response.read().decode().splitlines() if line.startswith("data: ")
    ]
    connection.close()
    assert [event["OUT"] for event in events] == [1, 2, 3]


def test_a_cancelled_caller_leaves(models: Models, tokens: str) -> None:
    stream = Stream(models)
    stream.client.async_stream_infer(tokens, grpc_inputs(IN=one(1e9)), request_id="endless")
    wait_until(lambda: len(calls(models, tokens)) > 3, "some steps")
    stream.close(cancel=True)
    wait_until(lambda: _ended(models, tokens) == 1, "the end of the request")
    steps = len(calls(models, tokens))
    after = Stream(models)
    after.send(tokens, one(2), "next")
    assert [after.take().value for _ in range(2)] == [1, 2]
    after.close()
    assert calls(models, tokens)[steps:] == ["next:1", "next:0"]


def _ended(models: Models, name: str) -> int:
    """Requests that are over: cancelled between two steps, or answered when the model saw it."""
    counts = models.statistics(name)["inference_stats"]
    return int(counts["fail"]["count"]) + int(counts["success"]["count"])


def test_rescheduling_without_iterative_sequences_is_an_error_of_that_request(models: Models) -> None:
    name = models.load(TOKENS, CONFIG.replace(ITERATIVE, "") + DECOUPLED)
    stream = Stream(models)
    stream.send(name, one(2))
    assert stream.take().value == 1
    error = stream.take().error
    assert error.startswith(
        "Request is released with TRITONSERVER_REQUEST_RELEASE_RESCHEDULE, while the model is not configured to handle"
    )
    stream.close()
    after = Stream(models)
    after.send(name, one(1))
    assert after.take().value == 2
    after.close()


def test_warming_up_an_iterative_model_takes_one_step(models: Models) -> None:
    warm_up = (
        'model_warmup [{ name: "w" batch_size: 1 inputs { key: "IN" value: { data_type: TYPE_FP32 dims: [1] '
    )
    for source, further in ((ONE_ANSWER, ""), (TOKENS, DECOUPLED)):
        model = source.replace("wanted = ", "wanted = 5 + ")
        name = models.load(model, CONFIG + further + warm_up + "zero_data: true } } }]")
        assert calls(models, name) == [":0"]
        assert models.ready(name)
