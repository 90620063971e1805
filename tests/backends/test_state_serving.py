"""Implicit state as clients of a server see it, over both protocols and with each strategy."""

from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import numpy as np
import onnx
import pytest
from tritonclient.utils import InferenceServerException

from tests.python_models.support import Array, Models, grpc_inputs, http_inputs, kill, serve_models
from tests.support import onnx_models
from tests.support.waiting import wait_until

TENSORS = """
    max_batch_size: 16
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 2 ] }
    instance_group { kind: KIND_CPU count: 1 }
"""
SEQUENCES = """
    sequence_batching {
        STRATEGY
        max_sequence_idle_microseconds: IDLE
        control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } }
        state { input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_FP32 dims: [ 2 ] }
    }
"""
STRATEGIES = {"direct": "direct { }", "oldest": "oldest { max_candidate_sequences: 16 }"}
ISOLATED = 'parameters { key: "isolation" value { string_value: "process" } }'
PYTHON = """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            total = tensors["INPUT"] + (1 - tensors["START"]) * tensors["SUM_IN"]
            outputs = [pb_utils.Tensor("OUTPUT", total), pb_utils.Tensor("SUM_OUT", total)]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
"""
KINDS = ("onnx", "isolated", "python")
Ask = Callable[..., Array]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    with serve_models(tmp_path_factory.mktemp("models")) as models:
        yield models


def load(
    models: Models,
    kind: str,
    strategy: str,
    *,
    text: str = TENSORS + SEQUENCES,
    idle: int = 60_000_000,
    python: str = PYTHON,
    onnx_model: onnx.ModelProto | None = None,
) -> str:
    """A model that adds up what a sequence sends, loaded: its name."""
    text = text.replace("STRATEGY", STRATEGIES[strategy]).replace("IDLE", str(idle))
    if kind == "python":
        return models.load(python, text)
    text = 'backend: "onnxruntime"' + text + (ISOLATED if kind == "isolated" else "")
    name = f"s{len(list(models.repository.iterdir()))}"
    onnx_models.write_model(
        models.repository, name, onnx_model or onnx_models.restartable_accumulator(), text
    )
    models.http.load_model(name)
    return name


def ask(models: Models, protocol: str, model: str) -> Ask:
    """What sends a request of a sequence: its OUTPUT."""

    def over_http(sequence: int | str, value: float, **flags: Any) -> Array:
        array = np.array([[value, -value]], np.float32)
        result = models.http.infer(model, http_inputs(INPUT=array), sequence_id=sequence, **flags)
        output: Array = result.as_numpy("OUTPUT").reshape(2)
        return output

    def over_grpc(sequence: int | str, value: float, **flags: Any) -> Array:
        array = np.array([[value, -value]], np.float32)
        result = models.grpc.infer(model, grpc_inputs(INPUT=array), sequence_id=sequence, **flags)
        output: Array = result.as_numpy("OUTPUT").reshape(2)
        return output

    return over_http if protocol == "http" else over_grpc


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_each_sequence_has_a_state_of_its_own(models: Models, kind: str, strategy: str) -> None:
    model = load(models, kind, strategy)
    for protocol, first, second in (("http", 7, "seven"), ("grpc", 8, "eight")):
        send = ask(models, protocol, model)
        assert send(first, 1, sequence_start=True).tolist() == [1, -1]
        assert send(second, 100, sequence_start=True).tolist() == [100, -100]
        assert send(first, 10).tolist() == [11, -11]
        assert send(second, 1).tolist() == [101, -101]
        assert send(first, 5, sequence_start=True).tolist() == [5, -5]
        assert send(first, 1, sequence_end=True).tolist() == [6, -6]
        assert send(second, 1, sequence_end=True).tolist() == [102, -102]
        assert send(first, 3, sequence_start=True, sequence_end=True).tolist() == [3, -3]
        with pytest.raises(InferenceServerException, match="must specify the START flag"):
            send(first, 1)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_many_sequences_at_once_are_never_mixed_up(models: Models, kind: str, strategy: str) -> None:
    model = load(models, kind, strategy)
    for protocol in ("http", "grpc"):
        totals = dict.fromkeys(range(1, 11), 0.0)
        for step in range(24):
            sent = [key for key in totals if (key + step) % 4]  # others each time
            starts = {key: step == key or not totals[key] for key in sent}
            for key, start in starts.items():
                totals[key] = key + (0 if start else totals[key])
            found = at_once(models, protocol, model, {key: (key, starts[key]) for key in sent})
            assert found == {key: [totals[key], -totals[key]] for key in sent}


def at_once(
    models: Models, protocol: str, model: str, requests: dict[int, tuple[float, bool]]
) -> dict[int, list[float]]:
    """The outputs of requests that are sent at the same time: of each sequence its value, and whether it starts."""
    arrays = {key: np.array([[value, -value]], np.float32) for key, (value, _) in requests.items()}
    flags = {key: {"sequence_id": key, "sequence_start": start} for key, (_, start) in requests.items()}
    if protocol == "http":
        sent = {
            key: models.http.async_infer(model, http_inputs(INPUT=arrays[key]), **flags[key])
            for key in requests
        }
        return {key: each.get_result().as_numpy("OUTPUT")[0].tolist() for key, each in sent.items()}
    outcomes: SimpleQueue[tuple[int, Any, Any]] = SimpleQueue()
    for key in requests:

        def take(result: Any, error: Any, key: int = key) -> None:
            outcomes.put((key, result, error))

        models.grpc.async_infer(model, grpc_inputs(INPUT=arrays[key]), take, **flags[key])
    found = {}
    for _ in requests:
        key, result, error = outcomes.get(timeout=60)
        assert error is None, error
        found[key] = result.as_numpy("OUTPUT")[0].tolist()
    return found


def test_a_state_is_answered_where_it_is_listed_as_output(models: Models) -> None:
    text = TENSORS + 'output { name: "SUM_OUT" data_type: TYPE_FP32 dims: [ 2 ] }' + SEQUENCES
    for kind in KINDS:
        model = load(models, kind, "oldest", text=text)
        result = models.http.infer(
            model, http_inputs(INPUT=np.ones((1, 2), np.float32)), sequence_id=1, sequence_start=True
        )
        assert result.as_numpy("SUM_OUT").tolist() == [[1, 1]]
        metadata = models.http.get_model_metadata(model)
        assert [entry["name"] for entry in metadata["inputs"]] == ["INPUT"]
        assert [entry["name"] for entry in metadata["outputs"]] == ["OUTPUT", "SUM_OUT"]


def test_clients_neither_send_states_nor_controls(models: Models) -> None:
    model = load(models, "onnx", "oldest")
    for name in ("SUM_IN", "START"):
        array = np.ones((1, 2 if name == "SUM_IN" else 1), np.float32)
        inputs = http_inputs(INPUT=np.ones((1, 2), np.float32), **{name: array})
        with pytest.raises(InferenceServerException, match=name):
            models.http.infer(model, inputs, sequence_id=1, sequence_start=True)


def test_states_of_different_lengths_in_one_model(models: Models) -> None:
    text = """
        max_batch_size: 4
        input { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }
        output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] }
        sequence_batching {
            STRATEGY
            state { input_name: "ALL_IN" output_name: "ALL_OUT" data_type: TYPE_FP32 dims: [ -1 ]
                initial_state { name: "empty" data_type: TYPE_FP32 dims: [ 0 ] zero_data: true } }
        }
    """
    for strategy in STRATEGIES:
        model = load(models, "onnx", strategy, text=text, onnx_model=onnx_models.growing())
        sent: dict[int, list[float]] = {}
        for step in range(12):
            keys = [key for key in range(1, 5) if (key + step) % 3]
            asked = {}
            for key in keys:
                start = key not in sent or step == 2 * key
                sent[key] = [*([] if start else sent[key]), 100 * key + step]
                value = np.array([[100 * key + step]], np.float32)
                asked[key] = models.http.async_infer(
                    model, http_inputs(INPUT=value), sequence_id=key, sequence_start=start
                )
            found = {key: each.get_result().as_numpy("OUTPUT").tolist() for key, each in asked.items()}
            assert found == {key: [sent[key]] for key in keys}


HOOKED = (
    PYTHON
    + """
    def on_sequence_end(self, correlation_id, reason):
        with open(os.path.join(os.path.dirname(__file__), "ended"), "a") as file:
            file.write(f"{correlation_id} {reason}\\n")
"""
)


def ended(models: Models, model: str, count: int) -> list[str]:
    """The sequences of which the model was told that they have ended, once there are so many."""
    path = models.repository / model / "1" / "ended"

    def told() -> list[str]:
        lines = path.read_text().splitlines() if path.exists() else []
        return lines if len(lines) >= count else []

    lines: list[str] = wait_until(told, f"{count} ends")
    return lines


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_python_model_is_told_why_each_sequence_ended(models: Models, strategy: str) -> None:
    model = load(models, "python", strategy, idle=300_000, python=HOOKED)
    send = ask(models, "http", model)
    send(1, 1, sequence_start=True)
    send(1, 1, sequence_end=True)
    assert ended(models, model, 1) == ["1 end"]
    send("two", 1, sequence_start=True)
    send("two", 1, sequence_start=True)
    assert ended(models, model, 3)[1:] == ["two restart", "two idle"]
    send(3, 1, sequence_start=True)
    models.http.unload_model(model)
    assert ended(models, model, 4)[3:] == ["3 unload"]


@pytest.mark.parametrize("kind", ["isolated", "python"])
def test_the_state_of_a_worker_that_died_is_never_replaced_by_a_fresh_one(models: Models, kind: str) -> None:
    model = load(models, kind, "oldest")
    send = ask(models, "http", model)
    send(1, 1, sequence_start=True)
    (process,) = models.pids(model)
    kill(process)
    with pytest.raises(InferenceServerException):
        send(1, 1)
    wait_until(lambda: models.pids(model) not in ([], [process]), "a new process")
    assert send(1, 2, sequence_start=True).tolist() == [2, -2]
    assert send(1, 2).tolist() == [4, -4]


def test_states_are_given_back_when_sequences_end(models: Models) -> None:
    many = 1 << 20
    text = f"""
        max_batch_size: 4
        input {{ name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }}
        output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: [ 1 ] }}
        sequence_batching {{
            STRATEGY
            state {{ input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_FP32 dims: [ {many} ] }}
        }}
    """
    model = load(models, "onnx", "oldest", text=text, onnx_model=onnx_models.large_state(many))

    def held() -> float:
        _, body = models.server.get("/metrics", models.server.metrics)
        line = next(
            line
            for line in body.decode().splitlines()
            if line.startswith("halimede_model_memory_bytes{") and f'"{model}"' in line
        )
        return float(line.split()[-1])

    before = held()
    for sequence in range(1, 5):
        models.http.infer(
            model,
            http_inputs(INPUT=np.ones((1, 1), np.float32)),
            sequence_id=sequence,
            sequence_start=True,
        )
    assert held() - before == 4 * 4 * many
    for sequence in range(1, 5):
        models.http.infer(
            model, http_inputs(INPUT=np.ones((1, 1), np.float32)), sequence_id=sequence, sequence_end=True
        )
    wait_until(lambda: held() == before, "the memory of the states")
