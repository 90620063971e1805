"""What sequences begin with."""

from pathlib import Path

import pytest

from halimede.backends import initial_states
from halimede.backends.initial_states import refuse_states
from halimede.config.parse import parse_text
from halimede.core.errors import HalimedeError, OutOfMemoryError, UnsupportedError
from halimede.core.tensors import Array, encode_bytes
from tests.backends.helpers import floats, load
from tests.backends.sequences import Step, outputs
from tests.support import onnx_models


def begins(directory: Path, state: str) -> Array:
    """What sequences of a model with that state begin with."""
    config = parse_text(
        f'name: "m" sequence_batching {{ state {{ input_name: "s" output_name: "t" {state} }} }}', "test"
    )
    return initial_states.initial_states(config, directory)["s"]


def initial(data: str, datatype: str = "TYPE_FP32", dims: str = "[ 2 ]") -> str:
    return f"""
        data_type: {datatype} dims: {dims}
        initial_state {{ name: "begin" data_type: {datatype} dims: {dims} {data} }}
    """


def write(directory: Path, content: bytes, name: str = "begin.bin") -> None:
    (directory / "initial_state").mkdir(exist_ok=True)
    (directory / "initial_state" / name).write_bytes(content)


def test_zeros_where_nothing_is_said_with_one_for_sizes_that_vary(tmp_path: Path) -> None:
    made = begins(tmp_path, "data_type: TYPE_INT64 dims: [ 2, -1 ]")
    assert made.tolist() == [[0], [0]]
    assert made.dtype.name == "int64"
    assert begins(tmp_path, initial("zero_data: true")).tolist() == [0, 0]
    assert begins(tmp_path, "data_type: TYPE_STRING dims: [ -1 ]").tolist() == [b""]


def test_sizes_that_vary_have_those_that_the_initial_state_gives(tmp_path: Path) -> None:
    text = initial("zero_data: true", dims="[ 3 ]").replace("dims: [ 3 ]", "dims: [ -1 ]", 1)
    assert begins(tmp_path, text).tolist() == [0, 0, 0]


def test_a_file_may_be_longer_than_the_state(tmp_path: Path) -> None:
    write(tmp_path, floats([1, 2, 3]).tobytes())
    assert begins(tmp_path, initial('data_file: "begin.bin"')).tolist() == [1, 2]
    write(tmp_path, encode_bytes([b"one", b"", b"three"]))
    made = begins(tmp_path, initial('data_file: "begin.bin"', "TYPE_STRING"))
    assert made.tolist() == [b"one", b""]


@pytest.mark.parametrize(
    ("content", "text", "error"),
    [
        (
            b"1234567",
            initial('data_file: "begin.bin"'),
            "initial_state setting expects 8 bytes, but the data provided from begin.binonly has 7 bytes.",
        ),
        (b"", initial('data_file: "other"'), "failed to open text file for read "),
        (b"", initial('data_file: "../../x"'), "it must stay inside the model's directory 'initial_state'"),
        (b"", initial('data_file: "."'), "Is a directory"),
        (b"", initial(""), "initial_state setting expects state's' to have state_data set"),
        (
            b"\5\0\0\0ab",
            initial('data_file: "begin.bin"', "TYPE_STRING"),
            "initial_state setting cannot use begin.bin: expecting string of 5 bytes but only 2 bytes available",
        ),
        (
            b"\2\0\0\0ab",
            initial('data_file: "begin.bin"', "TYPE_STRING"),
            "initial_state setting expects 2 strings, but the data provided from begin.bin only has 1",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error(
    tmp_path: Path, content: bytes, text: str, error: str
) -> None:
    write(tmp_path, content)
    with pytest.raises(HalimedeError) as caught:
        begins(tmp_path, text)
    assert error in caught.value.message


def test_a_state_larger_than_the_memory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        OutOfMemoryError, match="state 's' takes 4000000000000000 bytes a sequence, more than"
    ):
        begins(tmp_path, "data_type: TYPE_FP32 dims: [ 1000000000000000 ]")


def test_a_model_begins_each_sequence_with_its_file(tmp_path: Path) -> None:
    text = """
        max_batch_size: 4
        sequence_batching {
            state { input_name: "COUNT_IN" output_name: "COUNT_OUT" data_type: TYPE_INT32 dims: [ 1 ] }
            state {
                input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_FP32 dims: [ 2 ]
                initial_state { name: "sum" data_type: TYPE_FP32 dims: [ 2 ] data_file: "begin.bin" }
            }
        }
    """
    (tmp_path / "m").mkdir()
    write(tmp_path / "m", floats([100, 200]).tobytes())
    model = load(tmp_path, text, onnx_models.accumulator())
    (tmp_path / "m" / "initial_state" / "begin.bin").unlink()  # it was read when the model was loaded
    for key in (1, 2):
        assert outputs(model, Step(key, {"INPUT": floats([1, 2])}, start=True)) == [{"OUTPUT": [[101, 202]]}]
        assert outputs(model, Step(key, {"INPUT": floats([1, 2])})) == [{"OUTPUT": [[102, 204]]}]
        assert outputs(model, Step(key, {"INPUT": floats([1, 2])}, start=True)) == [{"OUTPUT": [[101, 202]]}]


def test_a_backend_without_states_refuses_them() -> None:
    config = parse_text(
        'name: "m" backend: "fil" sequence_batching { state { input_name: "s" output_name: "t" } }', "test"
    )
    with pytest.raises(UnsupportedError, match="the backend 'fil' keeps no states of sequences; remove the"):
        refuse_states(config)
