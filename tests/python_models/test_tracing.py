"""Traces of Python models' requests, and of the calls that they make, in Triton's file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.python_models.cancelling import BY_REQUEST, ROWS, cancel_by_grpc, cancel_by_http, pending, said
from tests.python_models.support import (
    BATCHED,
    DECOUPLED,
    FLOATS,
    ONES,
    Models,
    Stream,
    answering,
    executing,
    serve_models,
)
from tests.python_models.test_iterative import CONFIG, ONE_ANSWER, TOKENS
from tests.support.traces import COMPUTED, RUN, ReadTrace, await_traces
from tests.support.waiting import wait_until

CALLING = executing("""
    responses = []
    for request in requests:
        inputs = request.inputs()
        named = pb_utils.InferenceRequest(
            model_name="echo", requested_output_names=["OUT"], inputs=inputs,
            request_id=request.request_id() + "-call", trace=request.trace())
        unnamed = pb_utils.InferenceRequest(
            model_name="echo", requested_output_names=["OUT"], inputs=inputs, request_id="unnamed")
        outputs = [call.exec().output_tensors() for call in (named, unnamed)]
        responses.append(pb_utils.InferenceResponse(outputs[0]))
    return responses
""")
STREAMING = executing("""
    for request in requests:
        x = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        sender = request.get_response_sender()
        for i in range(3):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", x + i)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
""")


class Traced:
    """A server of Python models that traces every request."""

    def __init__(self, models: Models, path: Path) -> None:
        self.models = models
        self.path = path

    def of(self, *request_ids: str) -> list[ReadTrace]:
        """The traces of requests, once each has one; in the order of these ids."""

        def found(traces: list[ReadTrace]) -> dict[str, ReadTrace]:
            return {trace.request_id: trace for trace in traces}

        traces = found(await_traces(self.path, lambda traces: set(request_ids) <= found(traces).keys()))
        return [traces[each] for each in request_ids]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    path = tmp_path_factory.mktemp("traces") / "trace.json"
    settings = ("level=TIMESTAMPS", "level=TENSORS", "rate=1", f"triton,file={path}")
    flags = [f"--trace-config={setting}" for setting in settings]
    with serve_models(tmp_path_factory.mktemp("repository"), *flags) as models:
        models.load(answering("x"), name="echo")
        yield Traced(models, path)


pytestmark = pytest.mark.timeout(120)


def test_an_execution_in_a_worker_is_traced(traced: Traced) -> None:
    request_id = f"worker-{traced.models.new_name()}"
    traced.models.infer("echo", request_id=request_id)
    (trace,) = traced.of(request_id)
    assert trace.names(*RUN) == list(RUN)
    assert trace.at("COMPUTE_INPUT_END") < trace.at("COMPUTE_OUTPUT_START")
    outputs = [each for each in trace.tensors if each.activity == "TENSOR_BACKEND_OUTPUT"]
    assert [(each.name, each.data, each.shape, each.dtype) for each in outputs] == [
        ("OUT", "1,1,1,1", "4", "FP32")
    ]


def test_requests_of_a_batch_have_its_execution_each(traced: Traced) -> None:
    name = traced.models.load(answering("x"), BATCHED)
    arrays = [np.full((1, 2), value, np.float32) for value in range(4)]
    traced.models.infer_at_once(name, arrays)
    traces = await_traces(traced.path, lambda traces: sum(t.model == (name, 1) for t in traces) == 4)
    batch = [each for each in traces if each.model == (name, 1)]
    assert len({each.at("COMPUTE_START") for each in batch}) == 1
    inputs = [
        tensor.data for each in batch for tensor in each.tensors if tensor.activity == "TENSOR_BACKEND_INPUT"
    ]
    assert sorted(inputs) == ["0,0", "1,1", "2,2", "3,3"]


def test_a_call_that_names_a_trace_is_traced_below_it_and_others_are_not(traced: Traced) -> None:
    name = traced.models.load(CALLING)
    traced.models.infer(name, request_id=name)
    outer, call = traced.of(name, f"{name}-call")
    assert (call.model, call.parent) == (("echo", 1), outer.number)
    assert call.names() == list(RUN)
    assert (
        outer.at("COMPUTE_START")
        < call.at("REQUEST_START")
        < call.at("REQUEST_END")
        < outer.at("COMPUTE_END")
    )
    traces = await_traces(traced.path, bool)
    assert "unnamed" not in [each.request_id for each in traces]


def test_a_decoupled_request_is_traced_to_the_end_of_its_execution(traced: Traced) -> None:
    name = traced.models.load(STREAMING, FLOATS + DECOUPLED)
    stream = Stream(traced.models)
    stream.send(name, ONES[:2], f"streaming-{name}")
    assert [answer.final for answer in stream.take_all(4)] == [False, False, False, True]
    stream.close()
    (trace,) = traced.of(f"streaming-{name}")
    assert trace.names(*COMPUTED) == list(COMPUTED)
    assert trace.names().count("GRPC_SEND_END") == 4
    outputs = [each.data for each in trace.tensors if each.activity == "TENSOR_BACKEND_OUTPUT"]
    assert outputs == ["1,1", "2,2", "3,3"]


@pytest.mark.parametrize("strategy", ["direct { }", "oldest { max_candidate_sequences: 4 }"])
def test_each_request_of_a_sequence_is_traced_as_any_other(traced: Traced, strategy: str) -> None:
    name = traced.models.load(answering("x"), FLOATS + f"sequence_batching {{ {strategy} }}")
    ids = [f"{name}-{number}" for number in range(3)]
    for number, request_id in enumerate(ids):
        options: dict[str, Any] = {"sequence_start": number == 0, "sequence_end": number == 2}
        traced.models.infer(name, request_id=request_id, sequence_id=5, **options)
    for trace in traced.of(*ids):
        assert (trace.model, trace.parent) == ((name, 1), 0)
        assert trace.names("HTTP_RECV_START", "HTTP_RECV_END", *RUN, "HTTP_SEND_START", "HTTP_SEND_END") == [
            "HTTP_RECV_START", "HTTP_RECV_END", *RUN, "HTTP_SEND_START", "HTTP_SEND_END",
        ]  # fmt: skip


def test_a_request_whose_model_is_unloaded_meanwhile_is_traced_to_its_end(traced: Traced) -> None:
    models = traced.models
    name = models.load(BY_REQUEST, ROWS)
    release = cancel_by_grpc(models, name, f"outlives {name}")
    wait_until(lambda: said(models, name, f"began outlives {name}"), "the execution")
    models.http.unload_model(name)
    assert not models.ready(name)
    release()
    (trace,) = traced.of(f"outlives {name}")
    assert trace.names(*RUN) == list(RUN)


@pytest.mark.parametrize(
    ("source", "config", "responses"), [(ONE_ANSWER, CONFIG, 1), (TOKENS, CONFIG + DECOUPLED, 3)]
)
def test_an_iterative_request_has_each_of_its_executions(
    traced: Traced, source: str, config: str, responses: int
) -> None:
    name = traced.models.load(source, config)
    stream = Stream(traced.models)
    stream.send(name, np.full((1, 1), 3, np.float32), f"three-{name}")
    assert [answer.value for answer in stream.take_all(responses)][-1] == 3
    stream.close()
    (trace,) = traced.of(f"three-{name}")
    assert trace.names(*COMPUTED) == [*COMPUTED, *COMPUTED, *COMPUTED]
    assert trace.names("REQUEST_START", "QUEUE_START", "REQUEST_END").count("REQUEST_END") == 1


@pytest.mark.parametrize("config", [FLOATS, FLOATS + DECOUPLED])
def test_a_request_whose_worker_dies_is_traced(traced: Traced, config: str) -> None:
    name = traced.models.load(executing("os._exit(3)"), config)
    stream = Stream(traced.models)
    stream.send(name, request_id=f"dead-{name}")
    assert f"Stub process '{name}_0' is not healthy" in stream.take().error
    stream.close()
    (trace,) = traced.of(f"dead-{name}")
    ends = ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
    assert trace.names(*ends) == ends
    assert [each for each in trace.tensors if each.activity == "TENSOR_BACKEND_OUTPUT"] == []


def test_requests_that_clients_give_up_are_traced_to_their_end(traced: Traced) -> None:
    models = traced.models
    name = models.load(BY_REQUEST, ROWS)
    running = cancel_by_grpc(models, name, f"running-{name}")
    wait_until(lambda: said(models, name, f"began running-{name}"), "the execution")
    waiting = cancel_by_http(models, name, f"waiting-{name}")
    wait_until(lambda: pending(models, name) == 1, "the request to wait")
    waiting()
    (waited,) = traced.of(f"waiting-{name}")
    assert waited.names(*RUN) == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
    running()
    (ran,) = traced.of(f"running-{name}")
    assert ran.names(*RUN) == list(RUN)


@pytest.mark.parametrize("config", [FLOATS, FLOATS + DECOUPLED])
def test_a_request_that_its_model_fails_is_traced(traced: Traced, config: str) -> None:
    name = traced.models.load(executing("raise ValueError('no')"), config)
    stream = Stream(traced.models)
    stream.send(name, request_id=f"failed-{name}")
    assert "ValueError: no" in stream.take().error
    stream.close()
    (trace,) = traced.of(f"failed-{name}")
    assert trace.names(*RUN) == list(RUN)
