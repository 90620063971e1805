import json
from typing import Any

import numpy as np
import orjson
import pytest

from halimede.codec.json_tensors import json_from_tensor, tensor_from_json
from halimede.core.datatypes import (
    BF16,
    BOOL,
    BYTES,
    FP16,
    FP32,
    FP64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    Datatype,
)
from halimede.core.errors import HalimedeError, InvalidArgumentError
from halimede.core.tensors import Tensor, decode_bytes, encode_bytes

LIMIT = 1 << 26


def read(datatype: Datatype, shape: tuple[int, ...], data: object, limit: int = LIMIT) -> Any:
    tensor = tensor_from_json("IN", datatype, shape, data, limit)
    assert tensor.shape == tensor.array.shape == shape
    assert tensor.array.dtype == datatype.numpy
    return tensor.array.tolist()


def write(datatype: Datatype, values: object) -> str:
    tensor = Tensor.from_array(datatype, np.array(values, dtype=datatype.numpy))
    return orjson.dumps(json_from_tensor("OUT", tensor), option=orjson.OPT_SERIALIZE_NUMPY).decode()


@pytest.mark.parametrize(
    ("datatype", "data", "values"),
    [
        (FP32, [1, 2.5, -3e3, 4], [1, 2.5, -3000, 4]),
        (FP32, [-3.4e38, 0, float("-inf"), 2**64], [float(np.float32(-3.4e38)), 0, float("-inf"), 2**64]),
        (FP64, [0.1, 1, 2, 3], [0.1, 1, 2, 3]),
        (INT8, [127, -128, 0, 1], [127, -128, 0, 1]),
        (INT64, [2**63 - 1, -(2**63), 0, 1], [2**63 - 1, -(2**63), 0, 1]),
        (UINT8, [255, 1, 2, 0], [255, 1, 2, 0]),
        (UINT64, [2**64 - 1, 0, 1, 2], [2**64 - 1, 0, 1, 2]),
        (BOOL, [True, False, True, True], [True, False, True, True]),
        (BYTES, ["a", "", "ü", "\n"], [b"a", b"", "ü".encode(), b"\n"]),
    ],
)
def test_elements_are_read_whatever_the_nesting(
    datatype: Datatype, data: list[Any], values: list[Any]
) -> None:
    assert read(datatype, (4,), data) == values
    square = [values[:2], values[2:]]
    assert read(datatype, (2, 2), data) == square
    assert read(datatype, (2, 2), [data[:2], data[2:]]) == square
    assert read(datatype, (2, 2), [data[0], [[data[1]], data[2]], [[[]]], data[3]]) == square


def test_empty_tensor_is_read() -> None:
    assert read(FP32, (0, 3), []) == []


@pytest.mark.parametrize(
    ("datatype", "data", "text"),
    [
        (FP32, [1, True], "non-number as double"),
        (FP32, [1, "2"], "non-number as double"),
        (FP32, [1, None], "non-number as double"),
        (INT32, [1, 2.0], "non-signed-integer as signed-integer"),
        (INT32, [1, False], "non-signed-integer as signed-integer"),
        (INT64, [1, 2**63], "non-signed-integer as signed-integer"),
        (UINT8, [1, -1], "non-unsigned-integer as unsigned-integer"),
        (BOOL, [1, 0], "non-boolean as boolean"),
        (FP32, 5, "non-array as array"),
        (BYTES, "ab", "non-array as array"),
    ],
)
def test_element_of_another_type_is_refused(datatype: Datatype, data: object, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"Unable to parse 'data': attempt to access JSON {text}"):
        read(datatype, (2,), data)


@pytest.mark.parametrize("element", [1, None, {}])
def test_element_that_is_no_string_is_refused(element: object) -> None:
    text = "Unable to parse JSON bytes array: attempt to access JSON non-string as string"
    with pytest.raises(InvalidArgumentError, match=text):
        read(BYTES, (2,), ["a", element])


INTEGERS = (INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64)


@pytest.mark.parametrize("datatype", INTEGERS)
def test_integers_are_read_up_to_their_limits_and_refused_beyond(datatype: Datatype) -> None:
    limits = np.iinfo(datatype.numpy)
    low, high = int(limits.min), int(limits.max)
    assert read(datatype, (2,), [low, high]) == [low, high]
    for value in (low - 1, high + 1, low - 2**70, high + 2**70):
        with pytest.raises(InvalidArgumentError) as error:
            read(datatype, (2, 2), [[0, 0], [value, 0]])
        assert error.value.message.endswith(
            f": input 'IN' of datatype {datatype} has {value} at position [1,0], "
            f"expected an integer from {low} to {high}"
        )


@pytest.mark.parametrize("value", [1e39, -1e39, 3.4028235677973366e38, 2**128])
def test_float_beyond_its_datatype_is_no_infinity(value: float) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        read(FP32, (3,), [0, value, float("inf")])
    assert error.value.message == (
        f"value out of range: input 'IN' of datatype FP32 has {json.dumps(value)} at position [1], "
        "expected a number from -3.4028234663852886e+38 to 3.4028234663852886e+38"
    )


def test_integer_beyond_a_double_is_refused() -> None:
    with pytest.raises(
        InvalidArgumentError, match="value out of range: input 'IN' of datatype FP64 has 1000"
    ):
        read(FP64, (1,), [10**400])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_read_as_they_are(value: float) -> None:
    assert np.array_equal(read(FP32, (1,), [value]), [value], equal_nan=True)


@pytest.mark.parametrize(
    ("datatype", "data", "text"),
    [
        (
            INT32,
            [1, "two"],
            "input 'IN' of datatype INT32 has \"two\" at position [1], expected an integer from -2",
        ),
        (FP32, [1, "x" * 1000], 'has "' + "x" * 63 + "… at position [1], expected a number from -3.4"),
        (FP32, [1, {"a": 1}], "has an object at position [1]"),
        (BOOL, [True, 0], "has 0 at position [1], expected true or false"),
        (BYTES, ["a", None], "input 'IN' of datatype BYTES has null at position [1], expected a string"),
        (FP32, 5, "input 'IN' takes an array of 2 elements, got 5"),
        (FP32, {}, "input 'IN' takes an array of 2 elements, got an object"),
    ],
)
def test_unexpected_value_is_told_with_its_place(datatype: Datatype, data: object, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        read(datatype, (2,), data)
    assert text in error.value.message


@pytest.mark.parametrize(("shape", "data"), [((2,), [1, 2, 3]), ((4,), [[1, 2], [3]])])
def test_wrong_count_is_refused(shape: tuple[int, ...], data: object) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        read(FP32, shape, data)
    assert error.value.message == (
        "Unable to parse 'data': Shape does not match true shape of 'data' field: "
        f"input 'IN' of shape {list(shape)} takes {shape[0]} elements, got 3"
    )


def test_wrong_type_is_told_before_a_wrong_count() -> None:
    with pytest.raises(InvalidArgumentError, match="non-number as double"):
        read(FP32, (2,), [1, "x", 3])
    with pytest.raises(InvalidArgumentError, match="Shape does not match"):
        read(FP32, (2,), [1, 2, "x"])


@pytest.mark.parametrize("strings", [["a"], ["a", "b", "c"]])
def test_wrong_count_of_strings_is_left_to_the_models_validation(strings: list[str]) -> None:
    tensor = tensor_from_json("IN", BYTES, (1, 2), strings, 1000)
    assert decode_bytes(tensor.data) == [text.encode() for text in strings]


@pytest.mark.parametrize("datatype", [INT32, FP16, BYTES])
def test_data_of_a_shape_without_elements_do_not_matter(datatype: Datatype) -> None:
    tensor = tensor_from_json("IN", datatype, (2, 0), [1, "x"], 1000)
    assert (tensor.shape, bytes(tensor.data)) == ((2, 0), b"")


def nested(depth: int, value: object = 1) -> object:
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("extra", [[], [2]])
def test_nesting_is_allowed_to_depth_100(extra: list[int]) -> None:
    count = 1 + len(extra)
    assert read(INT32, (count,), [*extra, nested(99)]) == [*extra, 1]
    with pytest.raises(InvalidArgumentError, match=r"depth exceeds maximum allowed limit \(100\)"):
        read(INT32, (count,), [*extra, nested(100)])


@pytest.mark.parametrize("datatype", [FP16, BF16])
def test_half_precision_needs_binary_data(datatype: Datatype) -> None:
    text = f"receiving {datatype} data via JSON is not supported. Please use the binary data format for input"
    with pytest.raises(InvalidArgumentError, match=text):
        read(datatype, (1,), [1])
    text = f"sending {datatype} data via JSON is not supported. Please use the binary data format for output"
    with pytest.raises(InvalidArgumentError, match=text):
        write(datatype, [1])


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "text"),
    [
        (FP32, (1,) * 65, [1], "has 65 dimensions, and"),
        (FP32, (2**32, 2**32), [1], "causes total element count to exceed maximum size of"),
        (FP32, (2**61,), [1], "byte size overflow for input 'IN'"),
        (FP32, (26,), [1], "input 'IN' of 104 bytes exceeds the maximum allowed value of 100 bytes"),
        (BYTES, (26,), [""] * 26, "input 'IN' of 104 bytes exceeds the maximum allowed value of 100 bytes"),
        (BYTES, (1,), ["x" * 100], "input 'IN' of 104 bytes exceeds the maximum allowed value of 100 bytes"),
    ],
)
def test_oversized_tensor_is_refused(
    datatype: Datatype, shape: tuple[int, ...], data: object, text: str
) -> None:
    with pytest.raises(HalimedeError, match=text):
        read(datatype, shape, data, limit=100)


@pytest.mark.parametrize(
    ("datatype", "values", "text"),
    [
        (FP32, [[0.1, 1], [-2, 3]], "[0.10000000149011612,1.0,-2.0,3.0]"),
        (FP64, [0.1], "[0.1]"),
        (FP32, [float("nan"), float("inf"), -float("inf"), 0.5], "[NaN,Infinity,-Infinity,0.5]"),
        (INT8, [-1, 127], "[-1,127]"),
        (UINT64, [2**64 - 1], "[18446744073709551615]"),
        (BOOL, [[True], [False]], "[true,false]"),
        (BYTES, ["ü".encode(), b'"'], '["ü","\\""]'),
        (FP32, [], "[]"),
        (FP32, 3, "[3.0]"),
    ],
)
def test_outputs_are_written_flat(datatype: Datatype, values: object, text: str) -> None:
    assert write(datatype, values) == text


@pytest.mark.parametrize(("datatype", "dtype"), [(FP32, np.float32), (FP64, np.float64)])
def test_numbers_that_are_not_finite_keep_their_places(datatype: Datatype, dtype: type) -> None:
    values: Any = np.random.default_rng(0).standard_normal(1000).astype(dtype)
    values[[0, 1, 500, 999]] = [np.nan, np.inf, -np.inf, np.nan]
    found = np.array(json.loads(write(datatype, values)), np.float64)
    assert np.array_equal(found, values.astype(np.float64), equal_nan=True)


def test_transposed_output_is_written_row_major() -> None:
    tensor = Tensor.from_array(INT8, np.array([[1, 2], [3, 4]], dtype=np.int8).T)
    assert json_from_tensor("OUT", tensor).tolist() == [1, 3, 2, 4]


def test_strings_of_python_models_are_written_as_they_are() -> None:
    tensor = Tensor.from_array(BYTES, np.array(["ü", b"a", 5], dtype=object))
    assert json_from_tensor("OUT", tensor) == ["ü", "a", "5"]


def test_string_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="has a string that is not UTF-8"):
        write(BYTES, [b"\xff"])


def test_remembered_tensors_cannot_be_changed() -> None:
    for datatype, data in ((FP32, [1]), (BYTES, ["a"])):
        array = tensor_from_json("IN", datatype, (1,), data, LIMIT).array
        assert not array.flags.writeable


@pytest.mark.parametrize("last", [b"b", b'"', b"", "ü".encode()])
def test_many_strings_are_written_like_few(last: bytes) -> None:
    elements = [b"a"] * 1000 + [last]
    tensor = Tensor(BYTES, (7, 143), encode_bytes(elements))
    written = orjson.dumps(json_from_tensor("OUT", tensor), option=orjson.OPT_SERIALIZE_NUMPY)
    assert written == orjson.dumps([element.decode() for element in elements])


def test_one_of_many_strings_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="output 'OUT' has a string that is not UTF-8"):
        json_from_tensor("OUT", Tensor(BYTES, (1001,), encode_bytes([b"a"] * 1000 + [b"\xff"])))
