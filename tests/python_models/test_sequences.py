"""Sequences of Python models, over HTTP, gRPC and from other models."""

import threading
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.python_models.support import (
    DECOUPLED,
    Models,
    Stream,
    executing,
    grpc_inputs,
    http_inputs,
    kill,
)
from tests.support.waiting import wait_until

IN_SERVER_TOO = True

CONTROLS = """
control_input [
  { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
  { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] },
  { name: "END" control [ { kind: CONTROL_SEQUENCE_END int32_false_true: [ 0, 1 ] } ] },
  { name: "ID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } ] }
]
"""

DIRECT = "direct { }"
OLDEST = "oldest { max_candidate_sequences: 4 }"

SUM = """
class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}
        self.hold = os.path.join(args["model_repository"], "hold")
        self.calls = open(os.path.join(args["model_repository"], "calls"), "a", buffering=1)

    def execute(self, requests):
        responses = []
        rows = []
        for request in requests:
            def of(name):
                return pb_utils.get_input_tensor_by_name(request, name).as_numpy().reshape(-1)[0]
            key = of("ID").decode()
            rows.append(key)
            if of("READY"):
                assert key == str(request.correlation_id())
                if of("START"):
                    self.sums[key] = 0
                self.sums[key] += of("IN")
            value = np.array([[self.sums.get(key, -1)]], np.float32)
            if of("END"):
                del self.sums[key]
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]))
        self.calls.write(" ".join(row or "-" for row in rows) + "\\n")
        while os.path.exists(self.hold):
            time.sleep(0.01)
        return responses
"""
"""Answers with the sum of its sequence so far."""


def config(strategy: str, rows: int = 4, idle_us: int = 30_000_000, further: str = "") -> str:
    return (
        f"max_batch_size: {rows} "
        'input [{ name: "IN" data_type: TYPE_FP32 dims: [1] }] '
        'output [{ name: "OUT" data_type: TYPE_FP32 dims: [1] }] '
        "instance_group [{ count: 1 kind: KIND_CPU }] "
        f"sequence_batching {{ {strategy} max_sequence_idle_microseconds: {idle_us} {CONTROLS} }} {further}"
    )


def one(value: float) -> Any:
    return np.array([[value]], np.float32)


class Client:
    """Sends requests of sequences over HTTP or gRPC."""

    def __init__(self, models: Models, protocol: str) -> None:
        self._models = models
        self._protocol = protocol

    def send(self, model: str, name: int | str, value: float, flags: str = "") -> float:
        """The sum that the model answers with."""
        options = {"sequence_id": name, "sequence_start": "S" in flags, "sequence_end": "E" in flags}
        if self._protocol == "http":
            result: Any = self._models.http.infer(model, http_inputs(IN=one(value)), **options)
        else:
            result = self._models.grpc.infer(model, grpc_inputs(IN=one(value)), **options)
        return float(result.as_numpy("OUT").reshape(-1)[0])

    def error(self, model: str, name: int | str, value: float, flags: str = "") -> str:
        with pytest.raises(InferenceServerException) as caught:
            self.send(model, name, value, flags)
        return str(caught.value.message())


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, models: Models) -> Client:
    return Client(models, request.param)


@pytest.mark.parametrize("strategy", [DIRECT, OLDEST], ids=["direct", "oldest"])
def test_sequences_have_sums_of_their_own(models: Models, client: Client, strategy: str) -> None:
    name = models.load(SUM, config(strategy))
    for step in range(5):
        flags = "S" if step == 0 else "E" if step == 4 else ""
        for sequence in (7, 8, "nine"):
            factor = 100 if sequence == "nine" else int(sequence)
            assert client.send(name, sequence, factor, flags) == factor * (step + 1)
    assert "must specify the START flag" in client.error(name, 7, 1)


def test_rows_without_a_request_are_null_requests(models: Models) -> None:
    name = models.load(SUM, config(DIRECT))
    http = Client(models, "http")
    for sequence in (1, 2, 3):
        http.send(name, sequence, 1, "S")
    assert http.send(name, 3, 1) == 2
    calls = (models.repository / name / "calls").read_text().splitlines()
    assert calls[-1] == "- - 3"
    statistics = models.statistics(name)
    assert statistics["inference_count"] == 4
    assert statistics["execution_count"] == 4
    assert [entry["batch_size"] for entry in statistics["batch_stats"]] == [1, 2, 3]


def test_requests_of_a_sequence_over_a_stream_are_answered_in_order(models: Models) -> None:
    name = models.load(SUM, config(OLDEST))
    answers: list[tuple[str, float]] = []
    done = threading.Semaphore(0)

    def take(result: Any, error: Any) -> None:
        assert error is None
        answers.append((result.get_response().id, float(result.as_numpy("OUT").reshape(-1)[0])))
        done.release()

    grpc = models.grpc
    grpc.start_stream(take)
    for step in range(50):
        for sequence in (1, 2, 3, 4, 5, 6):
            grpc.async_stream_infer(
                name,
                grpc_inputs(IN=one(sequence)),
                request_id=f"{sequence}",
                sequence_id=sequence,
                sequence_start=step == 0,
                sequence_end=step == 49,
            )
    for _ in range(300):
        assert done.acquire(timeout=60)
    grpc.stop_stream()
    for sequence in range(1, 7):
        sums = [value for number, value in answers if number == str(sequence)]
        assert sums == [sequence * (step + 1) for step in range(50)]


@pytest.mark.needs_process
@pytest.mark.parametrize("strategy", [DIRECT, OLDEST], ids=["direct", "oldest"])
def test_a_sequence_is_lost_with_its_process(models: Models, client: Client, strategy: str) -> None:
    name = models.load(SUM, config(strategy))
    client.send(name, 5, 1, "S")
    (pid,) = models.pids(name)
    kill(pid)
    wait_until(lambda: models.pids(name) not in ([], [pid]), "another process")
    assert client.error(name, 5, 1) == (
        f"sequence 5 of model '{name}' is lost: the instance that kept its state has ended. Begin it again with a "
        f"request that has the START flag"
    )
    assert client.send(name, 5, 3, "S") == 3
    assert client.send(name, 5, 3, "E") == 6


def test_a_silent_sequence_is_over(models: Models, client: Client) -> None:
    name = models.load(SUM, config(OLDEST, idle_us=1000))
    client.send(name, 5, 1, "S")
    wait_until(lambda: _is_over(client, name), "the end of the sequence")


def _is_over(client: Client, name: str) -> bool:
    try:
        client.send(name, 5, 0)
    except InferenceServerException as error:
        return "must specify the START flag" in str(error.message())
    return False


@pytest.mark.needs_process
def test_running_sequences_go_on_while_the_model_is_loaded_again(models: Models, client: Client) -> None:
    name = models.load(SUM, config(DIRECT))
    client.send(name, 5, 1, "S")
    (before,) = models.pids(name)
    model = models.repository / name / "1" / "model.py"
    model.write_text(model.read_text().replace("self.sums[key] = 0", "self.sums[key] = 100"))
    models.http.load_model(name)
    assert client.send(name, 6, 1, "S") == 101
    assert client.send(name, 5, 1) == 2
    assert before in models.pids(name)
    assert client.send(name, 5, 1, "E") == 3
    wait_until(lambda: before not in models.pids(name), "the end of the old version")
    assert client.send(name, 6, 1) == 102
    assert client.send(name, 5, 1, "S") == 101


def test_at_an_unload_sequences_end_with_the_requests_that_they_have(models: Models) -> None:
    name = models.load(SUM, config(DIRECT))
    grpc = Client(models, "grpc")
    grpc.send(name, 5, 1, "S")
    hold = models.repository / name / "hold"
    hold.write_text("")
    sums: list[float] = []
    thread = threading.Thread(target=lambda: sums.append(grpc.send(name, 5, 1)))
    thread.start()
    calls = models.repository / name / "calls"
    wait_until(lambda: len(calls.read_text().splitlines()) == 2, "the second execution")
    models.http.unload_model(name)
    assert "has no available versions" in Client(models, "http").error(name, 5, 1)
    hold.unlink()
    thread.join(60)
    assert sums == [2]
    wait_until(lambda: not models.pids(name), "no process")


def test_decoupled_models_have_sequences_too(models: Models) -> None:
    source = """
    class TritonPythonModel:
        def initialize(self, args):
            self.sums = {}

        def execute(self, requests):
            for request in requests:
                def of(name):
                    return pb_utils.get_input_tensor_by_name(request, name).as_numpy().reshape(-1)[0]
                if not of("READY"):
                    request.get_response_sender().send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                    continue
                key = of("ID")
                if of("START"):
                    self.sums[key] = 0
                self.sums[key] += of("IN")
                sender = request.get_response_sender()
                thread = threading.Thread(target=self.answer, args=(sender, self.sums[key]))
                thread.start()

        def answer(self, sender, value):
            for step in range(3):
                out = pb_utils.Tensor("OUT", np.array([[value]], np.float32))
                sender.send(pb_utils.InferenceResponse([out]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
    """
    name = models.load(source, config(DIRECT, further=DECOUPLED))
    values: list[tuple[str, float | None]] = []
    done = threading.Semaphore(0)

    def take(result: Any, error: Any) -> None:
        assert error is None, error
        array = result.as_numpy("OUT")
        values.append((result.get_response().id, None if array is None else float(array.reshape(-1)[0])))
        if array is None:
            done.release()

    grpc = models.grpc
    grpc.start_stream(take)
    for step in range(5):
        for sequence in (1, 2):
            grpc.async_stream_infer(
                name,
                grpc_inputs(IN=one(sequence)),
                request_id=str(sequence),
                sequence_id=sequence,
                sequence_start=step == 0,
                sequence_end=step == 4,
                enable_empty_final_response=True,
            )
    for _ in range(10):
        assert done.acquire(timeout=60)
    grpc.stop_stream()
    for sequence in (1, 2):
        seen = [value for number, value in values if number == str(sequence)]
        expected: list[float | None] = []
        for step in range(5):
            expected += [sequence * (step + 1.0)] * 3 + [None]
        assert seen == expected


def test_a_client_that_goes_away_cancels_its_sequence(models: Models) -> None:
    name = models.load(SUM, config(OLDEST))
    hold = models.repository / name / "hold"
    hold.write_text("")
    calls = models.repository / name / "calls"
    stream = Stream(models)
    grpc = stream.client
    for step in range(3):
        grpc.async_stream_infer(
            name, grpc_inputs(IN=one(1)), sequence_id=5, sequence_start=step == 0, sequence_end=False
        )
    wait_until(lambda: calls.exists() and calls.read_text().splitlines() == ["5"], "the first execution")

    def metrics() -> str:
        return models.server.get("/metrics", models.server.metrics)[1].decode()

    pending = f'nv_inference_pending_request_count{{model="{name}",version="1"}} 2'
    wait_until(lambda: pending in metrics(), "the two others, which the client sends by and by")
    stream.close(cancel=True)
    http = Client(models, "http")
    cancelled = f'nv_inference_request_failure{{model="{name}",reason="CANCELED",version="1"}} 2'
    wait_until(lambda: cancelled in metrics(), "two cancelled")
    hold.unlink()
    assert http.send(name, 5, 4, "S") == 4
    assert calls.read_text().splitlines()[:2] == ["5", "5"]
    assert len(calls.read_text().splitlines()) == 2


def test_a_model_calls_another_in_a_sequence(models: Models) -> None:
    called = models.load(SUM, config(DIRECT))
    caller = models.load(
        executing(f"""
            responses = []
            for request in requests:
                for step in range(3):
                    answer = pb_utils.InferenceRequest(
                        model_name="{called}", requested_output_names=["OUT"], correlation_id="own",
                        flags=pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START * (step == 0)
                        + pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END * (step == 2),
                        inputs=[pb_utils.Tensor("IN", np.array([[2]], np.float32))],
                    ).exec()
                    assert not answer.has_error(), answer.error().message()
                responses.append(pb_utils.InferenceResponse(answer.output_tensors()))
            return responses
        """)
    )
    assert models.infer(caller).tolist() == [[6]]
    assert models.infer(caller).tolist() == [[6]]


def test_an_ensemble_passes_sequences_on_to_its_models(models: Models, client: Client) -> None:
    inner = models.load(SUM, config(DIRECT))
    outer = models.load_config(
        'platform: "ensemble" max_batch_size: 4 '
        'input [{ name: "X" data_type: TYPE_FP32 dims: [1] }] output [{ name: "OUT" data_type: TYPE_FP32 dims: [1] }] '
        "ensemble_scheduling { step [{ "
        f'model_name: "{inner}" model_version: -1 '
        'input_map { key: "IN" value: "X" } output_map { key: "OUT" value: "OUT" } }] }'
    )
    options = [{"sequence_start": True}, {}, {"sequence_end": True}]
    for step, flags in enumerate(options):
        result = models.http.infer(outer, http_inputs(X=one(5)), sequence_id=9, **flags)
        assert result.as_numpy("OUT").tolist() == [[5.0 * (step + 1)]]
    with pytest.raises(InferenceServerException, match="must specify the START flag"):
        models.http.infer(outer, http_inputs(X=one(5)), sequence_id=9)
