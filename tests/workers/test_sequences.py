"""Sequences in worker processes: their states, and the hook of Python models that tells that one has ended."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from halimede.core.errors import InternalError
from halimede.core.sequences import CANCELLED, IDLE
from tests.backends.helpers import floats
from tests.backends.sequences import Step, values
from tests.support.onnx_models import accumulator, write_model
from tests.workers.instances import Running, running

TENSORS = """
    max_batch_size: 4
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 2 ] }
"""
STATE = 'state { input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_FP32 dims: [ 2 ] }'
SUM = f"{TENSORS} sequence_batching {{ {STATE} }}"

ACCUMULATOR = """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            total = tensors["SUM_IN"]
            total += tensors["INPUT"]
            if total[0, 0] > 1000:
                raise ValueError("too much")
            outputs = [pb_utils.Tensor("OUTPUT", total), pb_utils.Tensor("SUM_OUT", total)]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
"""


def add(key: int, value: float, *, start: bool = False, wanted: tuple[str, ...] = ()) -> Step:
    return Step(key, {"INPUT": floats([value, -value])}, start=start, outputs=wanted)


def sums(model: Running, *steps: Step) -> list[object]:
    """The first element of each OUTPUT, which is the only output."""
    found = [values(response) for response in model.run(*steps)]
    assert all(list(each) == ["OUTPUT"] for each in found)
    return [each["OUTPUT"][0][0] for each in found]  # type: ignore[index]


def check_sums(model: Running) -> None:
    assert sums(model, add(1, 1, start=True), add(2, 2, start=True)) == [1, 2]
    assert sums(model, add(2, 10), add(1, 10)) == [12, 11]
    assert sums(model, add(1, 1, start=True), add(0, 7), add(2, 1)) == [1, 7, 13]
    assert sums(model, add(1, 1), add(2, 1), add(0, 7)) == [2, 14, 7]
    model.end(1)
    assert sums(model, add(1, 5), add(2, 1)) == [5, 15]


def test_the_state_of_a_python_model_is_an_input_and_an_output_that_only_it_sees(tmp_path: Path) -> None:
    with running(tmp_path, SUM, ACCUMULATOR) as model:
        check_sums(model)


def test_the_state_of_a_model_in_a_process_of_its_own(tmp_path: Path) -> None:
    write_model(tmp_path, "m", accumulator())
    count = 'state { input_name: "COUNT_IN" output_name: "COUNT_OUT" data_type: TYPE_INT32 dims: [ 1 ] }'
    text = f'backend: "onnxruntime" {TENSORS} sequence_batching {{ {STATE} {count} }}'
    with running(tmp_path, text) as model:
        check_sums(model)


def test_a_state_of_a_python_model_that_is_listed_as_output_is_answered_to_who_wants_it(
    tmp_path: Path,
) -> None:
    text = SUM + 'output { name: "SUM_OUT" data_type: TYPE_FP32 dims: [ 2 ] }'
    with running(tmp_path, text, ACCUMULATOR) as model:
        (response,) = model.run(add(1, 1, start=True))
        assert values(response) == {"OUTPUT": [[1, -1]], "SUM_OUT": [[1, -1]]}
        assert sums(model, add(1, 1, wanted=("OUTPUT",))) == [2]


def test_a_failed_execution_of_a_python_model_changes_no_state(tmp_path: Path) -> None:
    with running(tmp_path, SUM, ACCUMULATOR) as model:
        model.run(add(1, 1, start=True))
        with pytest.raises(InternalError, match="too much"):
            model.run(add(1, 5000))
        assert sums(model, add(1, 1)) == [2]


def test_a_python_model_begins_with_what_the_file_holds(tmp_path: Path) -> None:
    directory = tmp_path / "m" / "initial_state"
    directory.mkdir(parents=True)
    (directory / "begin").write_bytes(np.array([100, 200, 300], np.float32).tobytes())
    initial = 'initial_state { name: "begin" data_type: TYPE_FP32 dims: [ 2 ] data_file: "begin" }'
    with running(tmp_path, SUM.replace('"SUM_OUT"', f'"SUM_OUT" {initial}'), ACCUMULATOR) as model:
        assert sums(model, add(1, 1, start=True)) == [101]
        assert sums(model, add(1, 1), add(0, 1)) == [102, 1]


TEXTS = """
class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()
            before = pb_utils.get_input_tensor_by_name(request, "TEXT_IN").as_numpy()
            after = np.array([[before[0, 0] + text[0, 0]]], np.object_)
            number = pb_utils.get_input_tensor_by_name(request, "LIST_IN").as_numpy()
            numbers = np.append(number, [[number.shape[1]]], 1).astype(np.int64)
            outputs = [
                pb_utils.Tensor("OUTPUT", after), pb_utils.Tensor("TEXT_OUT", after),
                pb_utils.Tensor("LIST_OUT", numbers),
            ]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
"""


def test_strings_and_states_of_any_length(tmp_path: Path) -> None:
    text = """
        max_batch_size: 4
        input { name: "INPUT" data_type: TYPE_STRING dims: [ 1 ] }
        output { name: "OUTPUT" data_type: TYPE_STRING dims: [ 1 ] }
        output { name: "LIST_OUT" data_type: TYPE_INT64 dims: [ -1 ] }
        sequence_batching {
            state { input_name: "LIST_IN" output_name: "LIST_OUT" data_type: TYPE_INT64 dims: [ -1 ] }
            state { input_name: "TEXT_IN" output_name: "TEXT_OUT" data_type: TYPE_STRING dims: [ 1 ] }
        }
    """

    def say(key: int, word: bytes, *, start: bool = False) -> Step:
        return Step(key, {"INPUT": np.array([[word]], np.object_)}, start=start)

    with running(tmp_path, text, TEXTS) as model:
        model.run(say(1, b"a", start=True), say(2, b"x", start=True))
        model.run(say(1, b"b"))
        found = [values(each) for each in model.run(say(1, b"c"), say(2, b"y"))]
        assert found == [
            {"OUTPUT": [[b"abc"]], "LIST_OUT": [[0, 1, 2, 3]]},
            {"OUTPUT": [[b"xy"]], "LIST_OUT": [[0, 1, 2]]},
        ]


SENDER = """
class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            tensors = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
            total = tensors["SUM_IN"] + tensors["INPUT"]
            outputs = [pb_utils.Tensor("OUTPUT", total), pb_utils.Tensor("SUM_OUT", total)]
            request.get_response_sender().send(
                pb_utils.InferenceResponse(outputs), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
            )
"""


@pytest.mark.parametrize("policy", ["", "model_transaction_policy { decoupled: true }"])
def test_states_of_responses_that_the_model_sends_itself(tmp_path: Path, policy: str) -> None:
    with running(tmp_path, SUM + policy, SENDER) as model:
        check_sums(model)


WRONG = """
class TritonPythonModel:
    def execute(self, requests):
        wrong = np.zeros((1, 3), np.float32)
        right = np.ones((1, 2), np.float32)
        responses = []
        for request in requests:
            value = pb_utils.get_input_tensor_by_name(request, "INPUT").as_numpy()[0, 0]
            total = pb_utils.get_input_tensor_by_name(request, "SUM_IN").as_numpy()
            outputs = [pb_utils.Tensor("OUTPUT", total), pb_utils.Tensor("SUM_OUT", right if value else wrong)]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
"""


def test_a_state_of_another_shape_is_an_error_of_its_request_alone(tmp_path: Path) -> None:
    with running(tmp_path, SUM, WRONG) as model:
        model.run(add(1, 1, start=True), add(2, 1, start=True))
        good, bad = model.run(add(1, 1), add(2, 0))
        assert values(good) == {"OUTPUT": [[1, 1]]}
        assert bad.error is not None
        assert "state output 'SUM_OUT' has datatype number 11 and shape [1, 3]" in bad.error.message
        assert sums(model, add(2, 1)) == [1]


ENDS = """
class TritonPythonModel:
    def initialize(self, args):
        self.ended = []

    HOOK

    def execute(self, requests):
        text = repr(self.ended).encode()
        outputs = [pb_utils.Tensor("OUTPUT", np.array([[text]], np.object_))]
        return [pb_utils.InferenceResponse(outputs) for _ in requests]
"""
PLAIN_HOOK = """def on_sequence_end(self, correlation_id, reason):
        main = threading.current_thread() is threading.main_thread()
        self.ended.append((correlation_id, reason, main))"""
COROUTINE_HOOK = "async " + PLAIN_HOOK
FAILING_HOOK = """def on_sequence_end(self, correlation_id, reason):
        self.ended.append(correlation_id)
        raise ValueError(f"cannot forget {correlation_id}")"""
TOLD = """
    max_batch_size: 4
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] }
    output { name: "OUTPUT" data_type: TYPE_STRING dims: [ 1 ] }
    sequence_batching {}
"""


def told(model: Running) -> object:
    (response,) = model.run(add(99, 0))
    return values(response)["OUTPUT"]


@pytest.mark.parametrize(("hook", "main"), [(PLAIN_HOOK, True), (COROUTINE_HOOK, False)])
def test_a_python_model_is_told_of_the_end_of_each_sequence_that_it_has_seen(
    tmp_path: Path, hook: str, main: bool
) -> None:
    with running(tmp_path, TOLD, ENDS.replace("HOOK", hook)) as model:
        model.run(add(1, 0, start=True), add(2, 0, start=True), add(0, 0))
        model.end(2, "who", IDLE)
        model.end(3, 3)  # of another instance
        model.end(1, 1 << 63, CANCELLED)
        expected = [("who", "idle", main), (1 << 63, "cancelled", main)]
        assert told(model) == [[repr(expected).encode()]]
        model.end(2, "who", IDLE)
        assert told(model) == [[repr(expected).encode()]]


def test_a_hook_that_fails_is_logged_and_changes_nothing(tmp_path: Path) -> None:
    with running(tmp_path, TOLD, ENDS.replace("HOOK", FAILING_HOOK)) as model:
        model.run(add(1, 0, start=True), add(2, 0, start=True))
        model.end(1)
        model.end(2)
        assert told(model) == [[b"[1, 2]"]]
        assert "on_sequence_end of model 'm_0' failed: ValueError: cannot forget 2" in model.next_log()


def test_a_process_that_was_started_again_knows_no_sequence(tmp_path: Path) -> None:
    with running(tmp_path, TOLD, ENDS.replace("HOOK", PLAIN_HOOK)) as model:
        model.run(add(1, 0, start=True))
        (process,) = model.instance.processes
        model.restarted(lambda: os.kill(process, signal.SIGKILL))
        model.end(1)
        assert told(model) == [[b"[]"]]


def test_sequences_that_ended_leave_nothing_behind(tmp_path: Path) -> None:
    code = (
        ACCUMULATOR
        + """
    def on_sequence_end(self, correlation_id, reason):
        pass
"""
    )
    with running(tmp_path, SUM.replace("max_batch_size: 4", "max_batch_size: 64"), code) as model:

        def memory() -> int:
            (process,) = model.instance.processes
            pages = Path(f"/proc/{process}/statm").read_text().split()[1]
            return int(pages) * os.sysconf("SC_PAGE_SIZE")

        def serve(first: int, count: int) -> None:
            for begin in range(first, first + count, 64):
                model.run(*[add(key, 1, start=True) for key in range(begin, begin + 64)])
                for key in range(begin, begin + 64):
                    model.end(key)

        serve(1, 3200)
        before = memory()
        serve(10_000, 16_000)
        assert memory() - before < 2 << 20
