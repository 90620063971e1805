"""ONNX models whose sequences have states and control inputs."""

from pathlib import Path

import numpy as np
import pytest

from halimede.core.errors import InternalError, InvalidArgumentError
from halimede.core.tensors import Array
from tests.backends.helpers import Loaded, floats, load, strings
from tests.backends.sequences import Step, outputs, run
from tests.support import onnx_models

STATES = """
    state { input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_FP32 dims: [ 2 ] }
    state { input_name: "COUNT_IN" output_name: "COUNT_OUT" data_type: TYPE_INT32 dims: [ 1 ] }
"""
TENSORS = """
    input { name: "INPUT" data_type: TYPE_FP32 dims: [ 2 ] }
    output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 2 ] }
"""


def accumulator(directory: Path, *, tensors: str = TENSORS, states: str = STATES, size: int = 4) -> Loaded:
    text = f"max_batch_size: {size} {tensors} sequence_batching {{ {states} }}"
    return load(directory, text, onnx_models.accumulator(batching=size > 0))


def add(key: int, value: float, *, start: bool = False, wanted: tuple[str, ...] = (), size: int = 4) -> Step:
    row = [value, -value]
    return Step(key, {"INPUT": floats(row) if size else floats(row)[0]}, start=start, outputs=wanted)


@pytest.mark.parametrize("size", [0, 4])
def test_a_state_goes_from_request_to_request_of_its_sequence(tmp_path: Path, size: int) -> None:
    model = accumulator(tmp_path, size=size)
    for key in (1, 2):
        (first,) = outputs(model, add(key, 1, start=True, size=size))
        (second,) = outputs(model, add(key, 10, size=size))
        (again,) = outputs(model, add(key, 100, size=size))
        assert [first, second, again] == [
            {"OUTPUT": [[value, -value]] if size else [value, -value]} for value in (1, 11, 111)
        ]


def test_sequences_of_one_batch_keep_their_own_states_in_any_order(tmp_path: Path) -> None:
    model = accumulator(tmp_path)
    outputs(model, *[add(key, key, start=True) for key in (1, 2, 3)])
    found = outputs(model, add(3, 10), add(1, 10))
    assert [each["OUTPUT"] for each in found] == [[[13, -13]], [[11, -11]]]
    found = outputs(model, *[add(key, 100) for key in (1, 2, 3)])
    assert [each["OUTPUT"] for each in found] == [[[111, -111]], [[102, -102]], [[113, -113]]]


def test_a_state_that_is_listed_as_output_is_answered(tmp_path: Path) -> None:
    tensors = TENSORS + 'output { name: "COUNT_OUT" data_type: TYPE_INT32 dims: [ 1 ] }'
    model = accumulator(tmp_path, tensors=tensors)
    outputs(model, add(1, 1, start=True))
    assert outputs(model, add(1, 1)) == [{"OUTPUT": [[2, -2]], "COUNT_OUT": [[2]]}]
    assert outputs(model, add(1, 1, wanted=("COUNT_OUT",))) == [{"COUNT_OUT": [[3]]}]
    # which was not left uncomputed, as nobody wanted it
    assert outputs(model, add(1, 1, wanted=("OUTPUT",))) == [{"OUTPUT": [[4, -4]]}]


def test_large_states_are_not_run_between_bound_buffers(tmp_path: Path) -> None:
    many = 8192
    tensors = f"""
        input {{ name: "INPUT" data_type: TYPE_FP32 dims: [ {many} ] }}
        output {{ name: "OUTPUT" data_type: TYPE_FP32 dims: [ {many} ] }}
    """
    states = f"""
        state {{ input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_FP32 dims: [ {many} ] }}
        state {{ input_name: "COUNT_IN" output_name: "COUNT_OUT" data_type: TYPE_INT32 dims: [ 1 ] }}
    """
    text = f"max_batch_size: 4 {tensors} sequence_batching {{ {states} }}"
    model = load(tmp_path, text, onnx_models.accumulator(dims=(many,)))
    for value in (1, 2, 3):
        rows = [Step(key, {"INPUT": np.full((1, many), key, np.float32)}, start=value == 1) for key in (1, 2)]
        found = [response.outputs["OUTPUT"].array for response in run(model, *rows)]
        assert [set(each.reshape(-1).tolist()) for each in found] == [{value}, {2 * value}]


def test_inputs_and_outputs_are_completed_without_controls_and_states(tmp_path: Path) -> None:
    model = accumulator(tmp_path, tensors="")
    assert [entry.name for entry in model.config.input] == ["INPUT"]
    assert [entry.name for entry in model.config.output] == ["OUTPUT"]
    assert outputs(model, add(1, 5, start=True)) == [{"OUTPUT": [[5, -5]]}]


def test_sequences_whose_states_differ_in_shape_run_one_after_the_other(tmp_path: Path) -> None:
    text = """
        max_batch_size: 4
        input { name: "INPUT" data_type: TYPE_FP32 dims: [ 1 ] }
        output { name: "OUTPUT" data_type: TYPE_FP32 dims: [ -1 ] }
        sequence_batching { state { input_name: "ALL_IN" output_name: "ALL_OUT" data_type: TYPE_FP32 dims: [ -1 ] } }
    """
    model = load(tmp_path, text, onnx_models.growing())

    def give(key: int, value: float, *, start: bool = False) -> Step:
        return Step(key, {"INPUT": floats([value])}, start=start)

    outputs(model, give(1, 1, start=True), give(2, 2, start=True))
    outputs(model, give(1, 3))
    found = outputs(model, give(2, 4), give(0, 0), give(1, 5), give(3, 6, start=True))
    assert [each["OUTPUT"] for each in found if len(each["OUTPUT"][0]) != 0][0::2] == [  # type: ignore[arg-type]
        [[0, 2, 4]],
        [[0, 1, 3, 5]],
    ]
    assert found[3]["OUTPUT"] == [[0, 6]]


def test_strings_are_states_too(tmp_path: Path) -> None:
    text = """
        max_batch_size: 2
        input { name: "INPUT0" data_type: TYPE_STRING dims: [ 1 ] }
        output { name: "OUTPUT1" data_type: TYPE_STRING dims: [ 1 ] }
        sequence_batching { state { input_name: "INPUT1" output_name: "OUTPUT0" data_type: TYPE_STRING dims: [ 1 ] } }
    """
    model = load(tmp_path, text, onnx_models.identity(onnx_models.STRING, (1,), count=2))

    def say(key: int, word: bytes, *, start: bool = False) -> Step:
        return Step(key, {"INPUT0": strings([word])}, start=start)

    assert outputs(model, say(1, b"a", start=True), say(2, b"b", start=True)) == [{"OUTPUT1": [[b""]]}] * 2
    assert outputs(model, say(2, b"c"), say(1, b"d")) == [{"OUTPUT1": [[b"b"]]}, {"OUTPUT1": [[b"a"]]}]


CONTROLS = """
    control_input { name: "START" control { kind: CONTROL_SEQUENCE_START bool_false_true: [ false, true ] } }
    control_input { name: "READY" control { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } }
    control_input { name: "END" control { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] } }
    control_input { name: "CORRID" control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } }
"""
KINDS = {
    "START": onnx_models.BOOL,
    "READY": onnx_models.INT32,
    "END": onnx_models.FLOAT,
    "CORRID": onnx_models.STRING,
}


@pytest.mark.parametrize("size", [0, 4])
def test_control_inputs_reach_the_model(tmp_path: Path, size: int) -> None:
    text = f"max_batch_size: {size} sequence_batching {{ {CONTROLS} }}"
    model = load(tmp_path, text, onnx_models.controls(KINDS, batching=size > 0))
    assert [entry.name for entry in model.config.input] == ["VALUE"]
    given: dict[str, Array] = {
        "START": np.array([[True]]),
        "READY": np.array([[1]], np.int32),
        "END": np.array([[0]], np.float32),
        "CORRID": strings([b"who"]),
    }
    if not size:
        given = {name: array[0] for name, array in given.items()}
    value = floats([7.0]) if size else floats([7.0])[0]
    steps = [Step(key, {"VALUE": value}, {**given}, start=True) for key in ((1, 2) if size else (1,))]
    for found in outputs(model, *steps):
        assert found == {
            "RESULT": value.tolist(),
            **{f"{name}_SEEN": array.tolist() for name, array in given.items()},
        }


@pytest.mark.parametrize(
    ("control", "error"),
    [
        (
            'name: "STRAT" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }',
            "configuration specified sequence control 'STRAT', but model does not provide that input",
        ),
        (
            'name: "READY" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] }',
            "the model expects data-type TYPE_INT32 but the model configuration specifies data-type TYPE_FP32",
        ),
    ],
)
def test_a_control_that_the_model_takes_otherwise_is_refused(
    tmp_path: Path, control: str, error: str
) -> None:
    text = f"""
        max_batch_size: 4
        input {{ name: "VALUE" data_type: TYPE_FP32 dims: [ 1 ] }}
        output {{ name: "RESULT" data_type: TYPE_FP32 dims: [ 1 ] }}
        sequence_batching {{ control_input {{ {control} }} }}
    """
    with pytest.raises((InternalError, InvalidArgumentError)) as caught:
        load(tmp_path, text, onnx_models.controls({"READY": onnx_models.INT32}))
    assert error in caught.value.message


def test_a_control_of_more_than_one_element_is_refused(tmp_path: Path) -> None:
    text = """
        max_batch_size: 4
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 2 ] }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 2 ] }
        sequence_batching { control_input { name: "INPUT1"
            control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } } }
    """
    with pytest.raises(InvalidArgumentError) as caught:
        load(tmp_path, text, onnx_models.identity(dims=(2,), count=2))
    assert (
        "unable to load model 'm', sequence control 'INPUT1' in model has dims [2] but dims [1] is expected"
        in caught.value.message
    )


@pytest.mark.parametrize(
    ("wrong", "right", "error"),
    [
        ('output_name: "SUM_OUT"', 'output_name: "TOTAL"', "unexpected inference output 'TOTAL'"),
        ('input_name: "SUM_IN"', 'input_name: "TOTAL"', "unexpected inference input 'TOTAL'"),
        ("TYPE_INT32", "TYPE_INT64", "configuration expects datatype TYPE_INT64 for input 'COUNT_IN'"),
        ("dims: [ 2 ]", "dims: [ 3 ]", "tensor 'SUM_IN': the model expects 2 dimensions (shape [-1,2])"),
    ],
)
def test_a_state_that_the_model_has_otherwise_is_refused(
    tmp_path: Path, wrong: str, right: str, error: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        accumulator(tmp_path, states=STATES.replace(wrong, right))
    assert error in caught.value.message


def test_a_batch_that_fails_changes_no_state_and_is_not_applied_twice(tmp_path: Path) -> None:
    text = """
        max_batch_size: 4
        input { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] }
        input { name: "INDEX" data_type: TYPE_INT64 dims: [ 1 ] }
        output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 1 ] }
        sequence_batching { state { input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_FP32 dims: [ 4 ] } }
    """
    model = load(tmp_path, text, onnx_models.accumulated_by_index())

    def pick(key: int, index: int, *, start: bool = False) -> Step:
        return Step(key, {"INPUT0": floats([1, 1, 1, 1]), "INDEX": np.array([[index]])}, start=start)

    outputs(model, pick(1, 0, start=True), pick(2, 0, start=True))
    good, bad = run(model, pick(1, 0), pick(2, 9))
    assert good.error is None
    assert good.outputs["OUTPUT0"].array.tolist() == [[2]]
    assert bad.error is not None
    found = outputs(model, pick(1, 0), pick(2, 0))
    assert [each["OUTPUT0"] for each in found] == [[[3]], [[2]]]
