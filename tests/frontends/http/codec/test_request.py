import json
from codecs import BOM_UTF8
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.config.signature import Signature, TensorSpec
from halimede.core.datatypes import ALL, BYTES, FP32, INT8, Datatype
from halimede.core.errors import HalimedeError, InvalidArgumentError, UnsupportedError
from halimede.frontends.http.codec.request import Decoded, RequestDecoder
from halimede.frontends.http.codec.request_plan import OutputPlan
from halimede.frontends.shared_memory.registry import Place
from halimede.frontends.shared_memory.requests import Places

LIMIT = 10_000
SEQUENCE_ID = "Unable to parse 'sequence_id': attempt to access JSON non-string as string"


def signature(*inputs: tuple[str, Datatype, tuple[int, ...]], max_batch_size: int = 0) -> Signature:
    specs = {name: TensorSpec(name, datatype, dims, dims) for name, datatype, dims in inputs}
    return Signature(max_batch_size, specs, {}, decoupled=False)


SIGNATURE = signature(("IN", FP32, (2,)))


def decode(document: Any, data: bytes = b"", length: str | None = "", to: Signature = SIGNATURE) -> Decoded:
    text = document if isinstance(document, bytes) else orjson.dumps(document)
    header = str(len(text)) if length == "" else length
    return RequestDecoder(LIMIT).decode(memoryview(text + data), header, "m", to)


def binary(name: str = "IN", size: int = 8, shape: tuple[int, ...] = (2,), datatype: str = "FP32") -> Any:
    return {"name": name, "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": size}}


def test_binary_inputs_are_views_of_the_body_in_order() -> None:
    values = np.arange(6, dtype="<f4").tobytes()
    body = orjson.dumps({"inputs": [binary("A"), binary("B", 16, (4,))]})
    wire = bytearray(body + values)
    _, _, inputs = RequestDecoder(LIMIT).decode(memoryview(wire), str(len(body)), "m", SIGNATURE)
    assert inputs["A"].array.tolist() == [0, 1]
    assert inputs["B"].array.tolist() == [2, 3, 4, 5]
    wire[-1] = 0xFF
    assert inputs["B"].array[3] != 5


def test_json_and_binary_inputs_mix() -> None:
    document = {"inputs": [{"name": "A", "shape": [1], "datatype": "BYTES", "data": ["x"]}, binary("B")]}
    _, _, inputs = decode(document, bytes(8))
    assert inputs["A"].array.tolist() == [b"x"]
    assert inputs["B"].array.tolist() == [0, 0]


def test_whole_body_is_json_without_the_header() -> None:
    document = {"inputs": [{"name": "IN", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}
    plan, identifier, inputs = decode(document, length=None)
    assert inputs["IN"].array.tolist() == [1, 2]
    assert (identifier, plan.outputs, plan.unlisted.binary) == ("", (), False)


def test_parameters_are_sorted_by_what_they_mean() -> None:
    parameters = {
        "sequence_id": "abc", "sequence_start": True, "sequence_end": True, "priority": 2,
        "timeout": 1000, "binary_data_output": True, "a": 1, "b": "x", "c": 1.5, "d": False,
    }  # fmt: skip
    plan, _, _ = decode({"parameters": parameters, "inputs": []})
    assert plan.scheduling == (2, 1000, "abc", True, True)
    assert plan.unlisted.binary
    assert plan.parameters == {"a": 1, "b": "x", "c": 1.5, "d": False}


def test_outputs_say_how_they_are_wanted() -> None:
    outputs = [
        {"name": "A"},
        {"name": "B", "parameters": {"binary_data": True}},
        {"name": "C", "parameters": {"classification": 3}},
    ]
    plan, _, _ = decode({"inputs": [], "outputs": outputs})
    assert plan.outputs == ("A", "B", "C")
    assert plan.output_plans == {
        "A": OutputPlan(binary=False),
        "B": OutputPlan(binary=True),
        "C": OutputPlan(binary=False, classes=3),
    }


@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        (b'{"id":"a1","inputs":[]}', "a1"),
        (b'{"id":"","inputs":[]}', ""),
        (b'{"id": "b-2", "inputs":[]}', "b-2"),
        (b'{"inputs":[],"id":"c"}', "c"),
        (b'{"id":"a","id":"d","inputs":[]}', "d"),
        (b'{"id":"\\u00fc\\"","inputs":[]}', 'ü"'),
    ],
)
def test_identifier_is_read_wherever_it_stands(text: bytes, identifier: str) -> None:
    assert decode(text)[1] == identifier


def test_json_that_differs_in_its_identifier_only_is_read_once() -> None:
    decoder = RequestDecoder(LIMIT)

    def plan(identifier: bytes) -> object:
        text = b'{"id":"%b","inputs":[]}' % identifier
        return decoder.decode(memoryview(text), None, "m", SIGNATURE)[0]

    assert plan(b"1") is plan(b"2")


@pytest.mark.parametrize("text", [b'{"id":"1"}', b'{"id":"1",}', b'{"id":"1",,"inputs":[]}', b'{"id":"1'])
def test_broken_json_after_an_identifier_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidArgumentError):
        decode(text)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        (b"{", "failed to parse the request JSON buffer"),
        ([], "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"),
        ({}, "attempt to access non-existing object member 'inputs'"),
        ({"inputs": {}}, "Unable to parse 'inputs': attempt to access JSON non-array as array"),
        ({"inputs": [1]}, "Input must set only one of the following fields"),
        ({"inputs": [], "id": 1}, "Unable to parse 'id': attempt to access JSON non-string as string"),
        ({"inputs": [], "outputs": 1}, "Unable to parse 'outputs'"),
        ({"inputs": [], "outputs": [{}]}, "non-existing object member 'name'"),
        ({"inputs": [], "outputs": [1]}, "non-existing object member 'name'"),
        (
            {"inputs": [], "outputs": [{"name": "O", "parameters": {"classification": -1}}]},
            "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            {"inputs": [], "outputs": [{"name": "O", "parameters": {"classification": True}}]},
            "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        ({"inputs": [], "parameters": []}, "failed to get request params.: attempt to get members for non-object"),
        ({"inputs": [], "parameters": None}, "failed to get request params.: attempt to get members for non-object"),
        ({"inputs": [], "parameters": {"priority": -1}}, "Unable to parse 'priority'"),
        ({"inputs": [], "parameters": {"priority": True}}, "Unable to parse 'priority'"),
        ({"inputs": [], "parameters": {"timeout": "1"}}, "Unable to parse 'timeout'"),
        ({"inputs": [], "parameters": {"sequence_id": 1.5}}, SEQUENCE_ID),
        ({"inputs": [], "parameters": {"sequence_id": -1}}, SEQUENCE_ID),
        ({"inputs": [], "parameters": {"sequence_id": True}}, SEQUENCE_ID),
        (
            {"inputs": [], "parameters": {"sequence_start": 1}},
            "Unable to parse 'sequence_start': attempt to access JSON non-boolean as boolean",
        ),
        (
            {"inputs": [], "parameters": {"binary_data_output": 1}},
            "Unable to parse 'binary_data_output': attempt to access JSON non-boolean as boolean",
        ),
        (
            {"inputs": [{**binary(), "name": 1}]},
            "Unable to parse 'name': attempt to access JSON non-string as string",
        ),
        (
            {"inputs": [], "parameters": {"triton_x": 1}},
            "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
        ),
        (
            {"inputs": [], "parameters": {"x": []}},
            "parameter 'x' has invalid type. It should be either 'int', 'bool', or 'string'.",
        ),
        (
            {"inputs": [], "parameters": {"x": None}},
            "parameter 'x' has invalid type. It should be either 'int', 'bool', or 'string'.",
        ),
        (
            {"inputs": [], "outputs": [{"name": "O"}, {"name": "P"}, {"name": "O"}]},
            "[request id: <id_unknown>] output 'O' already exists in request",
        ),
        (
            {"id": "a", "inputs": [], "outputs": [
                {"name": "O"}, {"name": "O", "parameters": {"shared_memory_region": "r"}}
            ]},
            "[request id: a] output 'O' already exists in request",
        ),
        ({"inputs": [binary(), binary()]}, "[request id: <id_unknown>] input 'IN' already exists in request"),
        ({"id": "a", "inputs": [binary(), binary()]}, "[request id: a] input 'IN' already exists in request"),
        (
            {"inputs": [binary(), binary(datatype="FP31")]},
            "[request id: <id_unknown>] input 'IN' already exists in request",
        ),
        ({"inputs": [binary(datatype="FP31")]}, "invalid datatype for input IN: 'FP31' is none of BOOL, "),
        (
            {"inputs": [{**binary(datatype="FP31"), "shape": 1}]},
            "Unable to parse 'shape': attempt to access JSON non-array as array",
        ),
        ({"inputs": [binary(size=-1)]}, "Unable to parse 'binary_data_size'"),
        ({"inputs": [binary(shape=(2**62, 4))]}, "causes total element count to exceed maximum size of"),
        (
            {"inputs": [{"name": "IN", "shape": [1], "datatype": "FP32"}]},
            "'shared_memory_region' in 'parameters'. But no field is set",
        ),
        ({"inputs": [{**binary(), "data": []}]}, "But set 'data' 'binary_data_size'"),
        (
            {"inputs": [], "outputs": [
                {"name": "O", "parameters": {"shared_memory_region": "r", "classification": 1}}
            ]},
            "Output can't set both 'shared_memory_region' and 'classification'",
        ),
        (
            {"inputs": [], "outputs": [
                {"name": "O", "parameters": {"shared_memory_region": "r", "binary_data": True}}
            ]},
            "Output can't set both 'shared_memory_region' and 'binary_data'",
        ),
    ],
)  # fmt: skip
def test_malformed_request_is_refused(document: object, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        decode(document)
    assert text in error.value.message


@pytest.mark.parametrize("parameters", [1, [], None, "x"])
def test_parameters_of_tensors_that_are_no_object_are_none(parameters: object) -> None:
    document = {
        "inputs": [
            {"name": "IN", "shape": [2], "datatype": "FP32", "data": [1, 2], "parameters": parameters}
        ],
        "outputs": [{"name": "O", "parameters": parameters}],
    }
    plan, _, inputs = decode(document)
    assert inputs["IN"].array.tolist() == [1, 2]
    assert plan.output_plans == {"O": OutputPlan(binary=False)}


def test_an_empty_sequence_id_is_told_apart_from_none() -> None:
    plan, _, _ = decode({"inputs": [], "parameters": {"sequence_id": ""}})
    assert plan.scheduling is not None
    assert plan.scheduling.sequence_id == ""
    plan, _, _ = decode({"inputs": [], "parameters": {"sequence_id": 0}})
    assert plan.scheduling is None


def test_a_long_sequence_id_is_refused() -> None:
    plan, _, _ = decode({"inputs": [], "parameters": {"sequence_id": "ü" * 64}})
    assert plan.scheduling is not None
    with pytest.raises(UnsupportedError) as error:
        decode({"inputs": [], "parameters": {"sequence_id": "ü" * 64 + "x"}})
    assert error.value.message == "string correlation ID cannot be longer than 128 characters"


def test_integer_parameters_have_64_bits() -> None:
    parameters = {"a": 2**63 - 1, "b": -(2**63), "c": 1e19, "headers": 1}
    plan, _, _ = decode({"inputs": [], "parameters": parameters})
    assert plan.parameters == parameters
    assert {key: type(value) for key, value in plan.parameters.items()} == {
        "a": int, "b": int, "c": float, "headers": int,
    }  # fmt: skip


@pytest.mark.parametrize("value", [2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**40])
@pytest.mark.parametrize("more", ["", ',"t":"NaN"', ',"t":NaN', ',"t":+Inf', ',"t":1e300'])
@pytest.mark.parametrize("mark", [b"", BOM_UTF8])
def test_larger_integer_parameter_is_refused(value: int, more: str, mark: bytes) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        decode(mark + b'{"inputs":[],"parameters":{"x":%d%b}}' % (value, more.encode()))
    assert error.value.message == (
        f"parameter 'x' is out of range: {value}, "
        "expected an integer from -9223372036854775808 to 9223372036854775807, or a string"
    )


def test_integer_parameter_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        decode(b'{"inputs":[],"parameters":{"x":1e20,"y":' + b"9" * 300 + b"}}")
    with pytest.raises(InvalidArgumentError):
        decode(b'{"inputs":[],"parameters":{"x":' + b"9" * 5000 + b"}}")


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (-1, "-1"),
        (1.5, "1.5"),
        (True, "true"),
        ("2", '"2"'),
        (None, "null"),
        (2**64, "1.8446744073709552e+19"),
    ],
)
def test_dimension_that_is_no_size_is_refused_by_name(size: object, shown: str) -> None:
    text = b'{"inputs":[{"name":"IN","datatype":"FP32","data":[1],"shape":[1,%b]}]}'
    with pytest.raises(InvalidArgumentError) as error:
        decode(text % json.dumps(size).encode())
    assert error.value.message == (
        "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer: "
        f"dimension 1 of input 'IN' is {shown}, expected an integer from 0 to 18446744073709551615"
    )


def test_tensors_in_regions_have_their_places_in_the_plan() -> None:
    parameters = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    entry = {"name": "IN", "shape": [2], "datatype": "FP32", "parameters": parameters}
    further = parameters | {"shared_memory_offset": 16}
    outputs = [{"name": "O", "parameters": further}, {"name": "P"}]
    plan, _, inputs = decode({"inputs": [entry], "outputs": outputs})
    assert plan.places == Places({"IN": Place("r", 0, 8)}, {"O": Place("r", 16, 8)})
    assert inputs["IN"].shape == (2,)
    assert [plan.output_plans[name].placed for name in ("O", "P")] == [True, False]


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"shared_memory_region": 5}, "'shared_memory_region': attempt to access JSON non-string as string"),
        (
            {"shared_memory_region": "r", "shared_memory_byte_size": -1},
            "'shared_memory_byte_size': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
        (
            {"shared_memory_region": "r", "shared_memory_byte_size": 8, "shared_memory_offset": "0"},
            "'shared_memory_offset': attempt to access JSON non-unsigned-integer as unsigned-integer",
        ),
    ],
)
def test_wrong_place_in_a_region_is_refused(parameters: dict[str, object], text: str) -> None:
    entry = {"name": "T", "shape": [2], "datatype": "FP32", "parameters": parameters}
    for document in ({"inputs": [entry]}, {"inputs": [], "outputs": [entry]}):
        with pytest.raises(InvalidArgumentError) as error:
            decode(document)
        assert error.value.message == f"Unable to parse {text}"


@pytest.mark.parametrize(
    ("length", "text"),
    [
        ("-1", "inference header size should be in range (0, 10), got: -1"),
        ("11", "inference header size should be in range (0, 10), got: 11"),
        ("9" * 50, "inference header size should be in range (0, 10), got: 9999"),
        ("9" * 5000, "inference header size should be in range (0, 10), got: 9999"),
        ("00", "inference header size should be in range (0, 10), got: 00"),
        ("x", "Unable to parse Inference-Header-Content-Length, got: x"),
        ("1.5", "Unable to parse Inference-Header-Content-Length"),
        ("", "Unable to parse Inference-Header-Content-Length"),
        ("²", "Unable to parse Inference-Header-Content-Length"),
    ],
)
def test_impossible_header_length_is_refused(length: str, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        RequestDecoder(LIMIT).decode(memoryview(b"x" * 10), length, "m", SIGNATURE)
    assert text in error.value.message
    assert len(error.value.message) < 100


def test_binary_section_has_to_have_the_right_size() -> None:
    document = {"inputs": [binary("A"), binary("B")]}
    with pytest.raises(
        InvalidArgumentError, match="unexpected size for input 'B', expecting 3 additional bytes"
    ):
        decode(document, bytes(13))
    with pytest.raises(
        InvalidArgumentError, match="unexpected size for input 'A', expecting 1 additional bytes"
    ):
        decode(document, bytes(7))
    with pytest.raises(InvalidArgumentError, match="unexpected additional input data for model 'm'"):
        decode(document, bytes(17))
    with pytest.raises(
        InvalidArgumentError,
        match="unexpected size for input 'A', expecting 8 additional bytes for model 'm'",
    ):
        decode(document, length=None)


def test_small_json_above_a_small_limit_is_refused() -> None:
    text = b'{"inputs":[]}'
    decoder = RequestDecoder(len(text))
    decoder.decode(memoryview(text), None, "m", SIGNATURE)
    for header in (None, "14"):
        with pytest.raises(InvalidArgumentError) as error:
            decoder.decode(memoryview(text + b" "), header, "m", SIGNATURE)
        assert error.value.message == (
            "Request JSON size of 14 bytes exceeds the maximum allowed value of 13 bytes. "
            "Use --http-max-input-size to increase the limit."
        )


def test_json_above_the_limit_is_refused_but_not_binary_data() -> None:
    text = b'{"inputs":[]' + b" " * LIMIT + b"}"
    with pytest.raises(
        InvalidArgumentError, match="Request JSON size of 10013 bytes exceeds the maximum allowed value"
    ):
        decode(text)
    _, _, inputs = decode({"inputs": [binary(size=40_000, shape=(10_000,))]}, bytes(40_000))
    assert len(inputs["IN"].data) == 40_000


def raw(body: bytes, to: Signature) -> Any:
    plan, identifier, inputs = RequestDecoder(LIMIT).decode(memoryview(body), "0", "m", to)
    assert (plan.unlisted.binary, plan.outputs, identifier) == (True, (), "")
    (tensor,) = inputs.values()
    return tensor


def test_raw_body_is_the_only_input() -> None:
    assert raw(bytes(8), SIGNATURE).shape == (2,)
    assert raw(bytes(8), signature(("IN", FP32, (2,)), max_batch_size=4)).shape == (1, 2)
    assert raw(bytes(24), signature(("IN", FP32, (2, -1)))).shape == (2, 3)
    assert raw(b"", signature(("IN", FP32, (0, -1)))).shape == (0, 0)


def test_no_body_is_no_request() -> None:
    with pytest.raises(InvalidArgumentError, match="request JSON buffer: The document is empty"):
        decode(b"", length=None, to=signature(("IN", FP32, (-1,))))


def test_raw_string_gets_its_length() -> None:
    tensor = raw(b"hello", signature(("IN", BYTES, (1,)), max_batch_size=4))
    assert tensor.array.tolist() == [[b"hello"]]


@pytest.mark.parametrize(
    ("to", "size", "text"),
    [
        (
            signature(("A", FP32, (1,)), ("B", FP32, (1,))),
            4,
            "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'm' model configuration",
        ),
        (
            signature(("IN", FP32, (-1, -1))),
            4,
            "The shape of the raw input 'IN' can not be deduced because there are more than one variable-sized",
        ),
        (
            signature(("IN", BYTES, (2,))),
            4,
            "For BYTE datatype raw input 'IN', the model must have input shape [1]",
        ),
        (
            signature(("IN", BYTES, (-1, -1))),
            4,
            "The shape of the raw input 'IN' can not be deduced",
        ),
        (
            signature(("IN", FP32, (-1,))),
            7,
            "input byte size mismatch for input 'raw_input' for model 'm'. Expected 4, got 7",
        ),
        (
            signature(("IN", FP32, (2,)), max_batch_size=4),
            0,
            "input byte size mismatch for input 'raw_input' for model 'm'. Expected 8, got 0",
        ),
    ],
)
def test_raw_body_that_fits_no_input_is_refused(to: Signature, size: int, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        raw(bytes(size), to)
    assert error.value.message.startswith("[request id: <id_unknown>] " + text)


def test_raw_body_above_the_limit_is_refused() -> None:
    text = "Raw request size of 10001 bytes exceeds the maximum allowed value of 10000 bytes"
    with pytest.raises(InvalidArgumentError, match=text):
        raw(bytes(LIMIT + 1), signature(("IN", INT8, (-1,))))


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANYTHING = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
INPUT = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["A", "B", 5]),
        "datatype": st.sampled_from([datatype.name for datatype in ALL] + ["X", None]),
        "shape": st.lists(st.integers(-1, 2**64), max_size=3) | ANYTHING,
        "data": ANYTHING,
        "parameters": st.dictionaries(
            st.sampled_from(["binary_data_size", "shared_memory_region", "x"]), st.integers(0, 9) | ANYTHING
        ),
    },
)
DOCUMENT = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text(max_size=3) | SCALARS,
        "inputs": st.lists(INPUT, max_size=3) | ANYTHING,
        "outputs": st.lists(st.dictionaries(st.sampled_from(["name", "parameters"]), ANYTHING)) | ANYTHING,
        "parameters": st.dictionaries(
            st.sampled_from(["priority", "timeout", "sequence_id", "x"]), ANYTHING, max_size=3
        ),
    },
)


@given(DOCUMENT, st.binary(max_size=20))
@settings(max_examples=200)
def test_arbitrary_documents_are_decoded_or_refused(document: dict[str, Any], data: bytes) -> None:
    text = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
    outcome: object = None
    try:
        outcome = decode(text, data)
    except HalimedeError as error:
        outcome = orjson.dumps(error.message)  # it can be sent
    assert outcome


@given(st.binary(max_size=100), st.none() | st.text(max_size=5) | st.integers(-5, 120).map(str))
@settings(max_examples=150)
def test_arbitrary_bytes_are_decoded_or_refused(body: bytes, length: str | None) -> None:
    for to in (SIGNATURE, signature(("IN", BYTES, (1,))), signature(("IN", FP32, (-1, 0)))):
        outcome: object = None
        try:
            outcome = RequestDecoder(LIMIT).decode(memoryview(body), length, "m", to)
        except HalimedeError as error:
            outcome = orjson.dumps(error.message)  # it can be sent
        assert outcome


def test_front_ends_share_no_raw_plan() -> None:
    plans = [RequestDecoder(LIMIT).decode(memoryview(bytes(8)), "0", "m", SIGNATURE)[0] for _ in range(2)]
    assert plans[0] is not plans[1]  # each remembers how its front end labels responses
