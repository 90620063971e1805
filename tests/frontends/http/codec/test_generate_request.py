import json

import numpy as np
import pytest

from halimede.config.signature import Signature, TensorSpec
from halimede.core.datatypes import BOOL, BYTES, FP16, FP32, FP64, INT32, INT64, UINT8, UINT64, Datatype
from halimede.core.errors import Code, HalimedeError
from halimede.frontends.http.codec.generate_request import GenerateRequest, read_generate_request


def spec(name: str, datatype: Datatype, *dims: int) -> TensorSpec:
    return TensorSpec(name, datatype, dims, dims, optional=True)


SPECS = (
    spec("TEXT", BYTES, -1),
    spec("INT", INT32, -1),
    spec("LONG", INT64, -1),
    spec("BYTE", UINT8, -1),
    spec("UNSIGNED", UINT64, -1),
    spec("FLOAT", FP32, -1),
    spec("DOUBLE", FP64, -1),
    spec("HALF", FP16, -1),
    spec("BOOL", BOOL, -1),
    spec("ROWS", INT32, 2, -1),
    spec("MIDDLE", INT32, -1, 2, -1),
    spec("SQUARE", INT32, 2, 2),
    spec("ONE", INT32, 1),
    spec("NONE", INT32, 0, -1),
)
INVALID_PARAMETER = "parameter 'x' has invalid type. It should be either 'int', 'bool', or 'string'."
NO_SHAPE = "The schema can not convert input '{}' to tensor with proper shape"


def read(text: str | bytes, max_batch_size: int = 0, max_bytes: int = 10_000) -> GenerateRequest:
    body = text.encode() if isinstance(text, str) else text
    signature = Signature(max_batch_size, {found.name: found for found in SPECS}, {}, decoupled=False)
    return read_generate_request(memoryview(body), signature, max_bytes)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("TEXT", "grün", ["grün".encode()]),
        ("TEXT", "", [b""]),
        ("TEXT", ["a", "b"], [b"a", b"b"]),
        ("INT", -7, [-7]),
        ("INT", [1, 2], [1, 2]),
        ("INT", [], []),
        ("INT", -(1 << 31), [-(1 << 31)]),
        ("BYTE", 255, [255]),
        ("UNSIGNED", (1 << 64) - 1, [(1 << 64) - 1]),
        ("FLOAT", 1, [1.0]),
        ("FLOAT", [1, 2.5], [1.0, 2.5]),
        ("DOUBLE", 0.1, [0.1]),
        ("BOOL", [True, False], [True, False]),
    ],
)
def test_members_named_like_inputs_are_tensors(name: str, value: object, expected: list[object]) -> None:
    request = read(json.dumps({name: value}))
    assert request.inputs[name].array.tolist() == expected
    assert request.parameters == {}


@pytest.mark.parametrize(
    ("name", "count", "max_batch_size", "shape"),
    [
        ("INT", 3, 0, (3,)),
        ("ROWS", 6, 0, (2, 3)),
        ("MIDDLE", 4, 0, (1, 2, 2)),
        ("MIDDLE", 0, 0, (1, 2, 0)),
        ("SQUARE", 4, 0, (2, 2)),
        ("ONE", 1, 0, (1,)),
        ("NONE", 0, 0, (0, 0)),
        ("INT", 3, 8, (1, 3)),
        ("ONE", 3, 8, (3, 1)),
        ("SQUARE", 8, 8, (2, 2, 2)),
        ("MIDDLE", 4, 8, (1, 1, 2, 2)),
    ],
)
def test_shapes_follow_from_the_number_of_elements(
    name: str, count: int, max_batch_size: int, shape: tuple[int, ...]
) -> None:
    request = read(json.dumps({name: list(range(count))}), max_batch_size)
    assert request.inputs[name].shape == shape
    assert request.inputs[name].array.ravel().tolist() == list(range(count))


@pytest.mark.parametrize(
    ("name", "count", "max_batch_size"),
    [("ROWS", 3, 0), ("SQUARE", 3, 0), ("SQUARE", 0, 0), ("ONE", 2, 0), ("ONE", 0, 0), ("SQUARE", 6, 8)],
)
def test_a_number_of_elements_that_fits_no_shape_is_refused(
    name: str, count: int, max_batch_size: int
) -> None:
    with pytest.raises(HalimedeError, match=NO_SHAPE.format(name)) as caught:
        read(json.dumps({name: list(range(count))}), max_batch_size)
    assert caught.value.code is Code.INVALID_ARG


def test_everything_else_is_a_parameter() -> None:
    request = read('{"a": 1, "b": 1.5, "c": "s", "d": true, "sequence_id": 5, "triton_x": -1, "INT": 1}')
    assert request.parameters == {"a": 1, "b": 1.5, "c": "s", "d": True, "sequence_id": 5, "triton_x": -1}
    assert list(request.inputs) == ["INT"]


@pytest.mark.parametrize("value", [2**63, 2**64, -(2**63) - 1])
def test_integer_parameters_have_64_bits(value: int) -> None:
    assert read('{"x": 9223372036854775807}').parameters == {"x": 2**63 - 1}
    with pytest.raises(
        HalimedeError, match=f"parameter 'x' is out of range: {value}, expected an integer from"
    ):
        read(f'{{"x": {value}}}')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"INT": 3000000000}', "value out of range: input 'INT' of datatype INT32 has 3000000000 at position [0]"),
        ('{"BYTE": [1, 256]}', "input 'BYTE' of datatype UINT8 has 256 at position [1], expected an integer from 0"),
        ('{"FLOAT": 1e39}', "value out of range: input 'FLOAT' of datatype FP32 has 1e+39 at position [0]"),
        ('{"SQUARE": [1, 2, 3]}', "tensor with proper shape: 3 elements do not fill shape [2, 2]"),
    ],
)  # fmt: skip
def test_wrong_number_is_told_by_name(text: str, message: str) -> None:
    with pytest.raises(HalimedeError) as caught:
        read(text)
    assert message in caught.value.message
    assert caught.value.code is Code.INVALID_ARG


def test_members_of_parameters_are_treated_alike() -> None:
    request = read('{"parameters": {"INT": [1, 2], "x": 3, "id": "nested"}, "id": "mine"}')
    assert request.id == "mine"
    assert request.inputs["INT"].array.tolist() == [1, 2]
    assert request.parameters == {"x": 3, "id": "nested"}


def test_the_first_of_equal_parameters_counts() -> None:
    request = read('{"x": 1, "id": "a", "x": 2, "id": "b", "parameters": {"x": 3}}')
    assert (request.id, request.parameters) == ("a", {"x": 1, "id": "a"})


def test_bare_tokens_are_read() -> None:
    values = read('{"FLOAT": [NaN, Infinity, -Inf, 1], "x": "a NaN", "FLOATS": NaN}')
    assert np.array_equal(
        values.inputs["FLOAT"].array, np.array([np.nan, np.inf, -np.inf, 1], np.float32), equal_nan=True
    )


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ('{"TEXT": 1}', Code.INVALID_ARG, "Unable to parse JSON bytes array: attempt to access JSON non-string as"),
        ('{"TEXT": ["a", 1]}', Code.INVALID_ARG, "attempt to access JSON non-string as string"),
        ('{"BOOL": 1}', Code.INVALID_ARG, "Unable to parse 'data': attempt to access JSON non-boolean as boolean"),
        ('{"INT": 1.5}', Code.INVALID_ARG, "attempt to access JSON non-signed-integer as signed-integer"),
        ('{"INT": true}', Code.INVALID_ARG, "attempt to access JSON non-signed-integer as signed-integer"),
        ('{"INT": null}', Code.INVALID_ARG, "attempt to access JSON non-signed-integer as signed-integer"),
        ('{"INT": {}}', Code.INVALID_ARG, "attempt to access JSON non-signed-integer as signed-integer"),
        ('{"LONG": 9223372036854775808}', Code.INVALID_ARG, "non-signed-integer as signed-integer"),
        ('{"BYTE": -1}', Code.INVALID_ARG, "attempt to access JSON non-unsigned-integer as unsigned-integer"),
        ('{"FLOAT": "x"}', Code.INVALID_ARG, "attempt to access JSON non-number as double"),
        ('{"HALF": 1}', Code.INVALID_ARG, "receiving FP16 data via JSON is not supported"),
        ('{"INT": [[1, 2], [3]]}', Code.INVALID_ARG, "Shape does not match true shape of 'data' field"),
        ('{"INT": 1, "INT": 2}', Code.INVALID_ARG, "[request id: <id_unknown>] input 'INT' already exists in request"),
        ('{"INT": 1, "INT": 2, "id": "7"}', Code.INVALID_ARG, "[request id: 7] input 'INT' already exists"),
        (
            '{"INT": 1, "parameters": {"INT": 1}}',
            Code.INVALID_ARG,
            "Converting keyword: 'parameters': [request id: <id_unknown>] input 'INT' already exists in request",
        ),
        ('{"parameters": [1]}', Code.INVALID_ARG, "Expected JSON object for keyword: 'parameters'"),
        ('{"parameters": null}', Code.INVALID_ARG, "Expected JSON object for keyword: 'parameters'"),
        ('{"x": {}}', Code.INVALID_ARG, INVALID_PARAMETER),
        ('{"x": [1]}', Code.INVALID_ARG, INVALID_PARAMETER),
        ('{"x": null}', Code.INVALID_ARG, INVALID_PARAMETER),
        ('{"parameters": {"x": {}}}', Code.INVALID_ARG, f"Converting keyword: 'parameters': {INVALID_PARAMETER}"),
        (
            '{"parameters": {"TEXT": 1}}',
            Code.INVALID_ARG,
            "Converting keyword: 'parameters': Unable to parse JSON bytes array: attempt to access JSON non-string",
        ),
        (
            '{"parameters": {"parameters": {}}}',
            Code.INVALID_ARG,
            "Converting keyword: 'parameters': parameter 'parameters' has invalid type.",
        ),
        ('{"id": 1}', Code.INVALID_ARG, "Unable to parse 'id': attempt to access JSON non-string as string"),
        ("[1]", Code.INVALID_ARG, "attempt to get members for non-object"),
        ("", Code.INVALID_ARG, "failed to parse the request JSON buffer: "),
        ('{"INT": ', Code.INVALID_ARG, "failed to parse the request JSON buffer: "),
        ('{"INT": 1} more', Code.INVALID_ARG, "failed to parse the request JSON buffer: "),
        ('{"x": ' + "9" * 5000 + "}", Code.INVALID_ARG, "failed to parse the request JSON buffer: "),
        ('{"x": ' + "[" * 2000 + "]" * 2000 + "}", Code.INVALID_ARG, "JSON nesting depth exceeds"),
        ('{"x": ' + "[" * 1010 + "]" * 1010 + "}", Code.INVALID_ARG, "JSON nesting depth exceeds"),
        ('{"INT": ' + "[" * 150 + "]" * 150 + "}", Code.INVALID_ARG, "JSON nesting depth exceeds"),
        ('{"x": "' + "y" * 10_000 + '"}', Code.INVALID_ARG, "the maximum allowed input size. It is 10000 bytes"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(text: str, code: Code, message: str) -> None:
    with pytest.raises(HalimedeError) as caught:
        read(text)
    assert message in caught.value.message
    assert caught.value.code is code


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"y": 1, "INT": "b", "x": {}}', "non-signed-integer"),
        ('{"x": {}, "INT": "b"}', "parameter 'x'"),
        ('{"TEXT": 1, "BOOL": 1}', "non-string"),
        ('{"BOOL": 1, "TEXT": 1}', "non-boolean"),
    ],
)
def test_what_is_wrong_first_is_told(text: str, message: str) -> None:
    with pytest.raises(HalimedeError, match=message):
        read(text)


def test_an_input_named_id_is_also_the_identifier() -> None:
    signature = Signature(0, {"id": spec("id", BYTES, 1)}, {}, decoupled=False)
    request = read_generate_request(memoryview(b'{"id": "a"}'), signature, 100)
    assert request.id == "a"
    assert request.inputs["id"].array.tolist() == [b"a"]
