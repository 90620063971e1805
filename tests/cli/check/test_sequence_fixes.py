"""What `halimede check` says of states and control inputs is mended by doing what it suggests."""

from pathlib import Path

import pytest

from halimede.config.parse import read_text
from tests.backends.helpers import floats, load
from tests.backends.sequences import Step, outputs
from tests.cli.check.test_fixes import mend, problems
from tests.support import onnx_models

TENSORS = """
    max_batch_size: 4
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 2 ] }
"""
START = 'control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } }'
STATE = 'state { input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_FP32 dims: [ 2 ] INITIAL }'
INITIAL = 'initial_state { name: "sum" data_type: TYPE_FP32 dims: [ 2 ] data_file: "sum.bin" }'

WRONG = {
    "output that the model does not make": (START, STATE.replace("SUM_OUT", "SUM")),
    "output that the model calls otherwise": (START, STATE.replace("SUM_OUT", "TOTAL")),
    "input that the model does not take": (START, STATE.replace("SUM_IN", "TOTAL")),
    "datatype of a state": (START, STATE.replace("FP32", "INT32")),
    "dims of a state": (START, STATE.replace("[ 2 ]", "[ 3 ]")),
    "number of dims of a state": (START, STATE.replace("[ 2 ]", "[ 1, 2 ]")),
    "name of a control": (START.replace('"START"', '"STRAT"'), STATE),
    "datatype of a control": (START.replace("fp32_", "int32_"), STATE),
    "truth values of a control": (
        START.replace("fp32_false_true: [ 0, 1 ]", "bool_false_true: [ false, true ]"),
        STATE,
    ),
    "control that the model lacks": (
        START
        + 'control_input { name: "END" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] } }',
        STATE,
    ),
    "state that is an input": (START, STATE.replace("SUM_IN", "INPUT")),
    "state without an output": (START, STATE.replace('output_name: "SUM_OUT"', "")),
    "state of no datatype": (START, STATE.replace("data_type: TYPE_FP32", "")),
    "output of two states": (
        START,
        STATE + 'state { input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_FP32 dims: [ 2 ] }',
    ),
    "file that is too short": (START, STATE.replace("INITIAL", INITIAL)),
    "file that is not there": (START, STATE.replace("INITIAL", INITIAL.replace("sum.bin", "other.bin"))),
    "nothing to begin with": (START, STATE.replace("INITIAL", INITIAL.replace('data_file: "sum.bin"', ""))),
}


def write(repository: Path, controls: str, state: str) -> Path:
    text = f"{TENSORS}\nsequence_batching {{\n{controls}\n{state.replace('INITIAL', '')}\n}}"
    directory = onnx_models.write_model(repository, "m", onnx_models.restartable_accumulator(), text)
    (directory / "initial_state").mkdir()
    (directory / "initial_state" / "sum.bin").write_bytes(b"1234567")
    return directory


@pytest.mark.parametrize("what", WRONG)
def test_fixes_of_sequences(tmp_path: Path, what: str) -> None:
    directory = write(tmp_path, *WRONG[what])
    if what == "file that is not there":
        (problem,) = problems(tmp_path)
        path = directory / "initial_state" / "other.bin"
        assert problem["fix"] == f"put the file at {path}"
        path.write_bytes(bytes(8))
    else:
        mend(tmp_path, directory)
    assert problems(tmp_path) == []
    model = load(tmp_path, read_text(directory / "config.pbtxt"), onnx_models.restartable_accumulator())
    for value in (1, 2):
        step = Step(1, {"INPUT": floats([1, 1])}, {"START": floats([value == 1])}, start=value == 1)
        assert outputs(model, step) == [{"OUTPUT": [[value, value]]}]


def test_each_problem_has_its_line(tmp_path: Path) -> None:
    write(tmp_path, START.replace("fp32_", "int32_"), STATE.replace("SUM_OUT", "SUM"))
    found = {problem["field"]: (problem["line"], problem["fix"]) for problem in problems(tmp_path)}
    assert found == {
        "sequence_batching.control_input[0].control[0]": (
            7,
            "control { kind: CONTROL_SEQUENCE_START fp32_false_true: [0.0, 1.0] }",
        ),
        "sequence_batching.state[0].output_name": (8, 'output_name: "SUM_OUT"'),
    }


def test_strings_of_a_file_that_are_cut_off_are_told(tmp_path: Path) -> None:
    text = """
        max_batch_size: 2
        input { name: "INPUT0" data_type: TYPE_STRING dims: [ 1 ] }
        output { name: "OUTPUT1" data_type: TYPE_STRING dims: [ 1 ] }
        sequence_batching { state {
            input_name: "INPUT1" output_name: "OUTPUT0" data_type: TYPE_STRING dims: [ 1 ]
            initial_state { name: "text" data_type: TYPE_STRING dims: [ 1 ] data_file: "text.bin" } } }
    """
    directory = onnx_models.write_model(
        tmp_path, "m", onnx_models.identity(onnx_models.STRING, (1,), count=2), text
    )
    (directory / "initial_state").mkdir()
    (directory / "initial_state" / "text.bin").write_bytes(b"\5\0\0\0ab")
    (problem,) = problems(tmp_path)
    assert "initial_state setting cannot use text.bin: expecting string of 5 bytes" in problem["message"]
    mend(tmp_path, directory)
