"""A request may have so many inputs, outputs and parameters, and its JSON so many values, by any protocol."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from halimede.codec import json_text
from halimede.codec.json_text import (
    MAX_DOCUMENT_ELEMENTS,
    MAX_DOCUMENT_VALUES,
    MAX_OBJECTS,
    check_values,
    parse_document,
    parse_json,
)
from halimede.config.signature import Signature
from halimede.core.element_counts import MAX_DIMS
from halimede.core.errors import InvalidArgumentError
from halimede.frontends.grpc.codec_request import RequestDecoder, read_id
from halimede.frontends.grpc.kserve_pb2 import ModelInferRequest
from halimede.frontends.http.codec.generate_request import read_generate_request
from halimede.frontends.http.codec.request_plan import read_plan
from halimede.frontends.request_bounds import MAX_ENTRIES

MAX_BYTES = 64 << 20
NO_INPUTS = Signature(0, {}, {}, decoupled=False)
PARAMETERS = {f"p{number}": 1 for number in range(MAX_ENTRIES)}


def over_http(**members: Any) -> None:
    read_plan(json.dumps({"inputs": [], **members}).encode(), MAX_BYTES)


def http_inputs(count: int) -> None:
    over_http(
        inputs=[{"name": f"i{n}", "datatype": "FP32", "shape": [1], "data": [1.0]} for n in range(count)]
    )


def http_outputs(count: int) -> None:
    over_http(outputs=[{"name": f"o{number}"} for number in range(count)])


def http_parameters(count: int) -> None:
    over_http(parameters={f"p{number}": 1 for number in range(count)})


def generate(document: dict[str, Any]) -> None:
    read_generate_request(json.dumps(document).encode(), NO_INPUTS, MAX_BYTES)


def generate_members(count: int) -> None:
    generate({f"p{number}": 1 for number in range(count)})


def generate_parameters(count: int) -> None:
    generate({"parameters": {f"p{number}": 1 for number in range(count)}})


def over_grpc(message: ModelInferRequest) -> None:
    read_message(message.SerializeToString())


def read_message(encoded: bytes) -> None:
    decoded = RequestDecoder().decode(memoryview(encoded))
    assert isinstance(decoded, tuple)
    plan, identifier, tensors = decoded
    plan.request(identifier, tensors, lambda *_: None, 0, None)


def grpc_inputs(count: int) -> None:
    message = ModelInferRequest(model_name="m", raw_input_contents=[b"1234"] * count)
    for number in range(count):
        message.inputs.add(name=f"i{number}", datatype="FP32", shape=[1])
    over_grpc(message)


def grpc_outputs(count: int) -> None:
    message = ModelInferRequest(model_name="m")
    for number in range(count):
        message.outputs.add(name=f"o{number}")
    over_grpc(message)


def grpc_parameters(count: int) -> None:
    message = ModelInferRequest(model_name="m")
    for number in range(count):
        message.parameters[f"p{number}"].int64_param = 1
    over_grpc(message)


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (http_inputs, "inputs"),
        (http_outputs, "outputs"),
        (http_parameters, "parameters"),
        (generate_members, "members"),
        (generate_parameters, "parameters"),
        (grpc_inputs, "inputs"),
        (grpc_outputs, "outputs"),
        (grpc_parameters, "parameters"),
    ],
)
def test_a_request_may_have_so_many_entries_and_one_more_is_refused(
    read: Callable[[int], None], what: str
) -> None:
    read(MAX_ENTRIES)
    with pytest.raises(InvalidArgumentError) as refused:
        read(MAX_ENTRIES + 1)
    assert (
        f"the request has {MAX_ENTRIES + 1} {what}, and the maximum is {MAX_ENTRIES}" in refused.value.message
    )


@pytest.mark.parametrize("field", [b"\x3a\x00", b"\x2a\x00", b"\x32\x00", b"\x0a\x00"])
@pytest.mark.parametrize("start", [b"", b"\x8a\x00\x00"])  # which only protobuf reads
def test_a_message_with_a_million_fields_is_refused(field: bytes, start: bytes) -> None:
    encoded = start + field * 1_000_000
    if start and field == b"\x0a\x00":  # a million times the model's name, of which the last counts
        read_message(encoded)
        return
    with pytest.raises(InvalidArgumentError, match="the maximum"):
        read_message(encoded)


def test_the_identifier_of_a_message_with_a_million_fields_is_not_looked_for() -> None:
    assert read_id(memoryview(b"\x1a\x01a" * 1_000_000)) == ""


def test_a_shape_over_either_protocol_has_as_many_dimensions_as_arrays_have() -> None:
    expected = f"shape of input 'i' has 1000000 dimensions, and the maximum is {MAX_DIMS}"
    shape = [1] * 1_000_000
    with pytest.raises(InvalidArgumentError, match=expected):
        over_http(inputs=[{"name": "i", "datatype": "FP32", "shape": shape, "data": [1.0]}])
    message = ModelInferRequest(model_name="m", raw_input_contents=[b"1234"])
    message.inputs.add(name="i", datatype="FP32", shape=shape)
    with pytest.raises(InvalidArgumentError, match=expected):
        over_grpc(message)


def test_nested_values_of_parameters_are_refused() -> None:
    for value in ([1], {"a": 1}, None):
        with pytest.raises(InvalidArgumentError, match="parameter 'p' has invalid type"):
            over_http(parameters={"p": value})
        with pytest.raises(InvalidArgumentError, match="parameter 'p' has invalid type"):
            generate({"p": value})


@pytest.fixture
def few_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "MAX_ARRAYS", 3)
    monkeypatch.setattr(json_text, "MAX_STRINGS", 3)
    monkeypatch.setattr(json_text, "COUNTED_BYTES", 0)


@pytest.mark.usefixtures("few_values")
@pytest.mark.parametrize(
    "text", [b'[["[[[["], []]', b'["a", "b", "\\"\\"\\"\\""]', b'{"a":[{}]}', b'"\\\\[[[["', b"[1, 2, 3, 4]"]
)
def test_json_with_as_many_values_as_it_may_have_is_read(text: bytes) -> None:
    assert parse_json(text) == json.loads(text)


@pytest.mark.usefixtures("few_values")
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"[[],[],[]]", "arrays and objects"),
        (b"[{},{},{}]", "arrays and objects"),
        (b'["]",[],[],[]]', "arrays and objects"),
        (b'["","","",""]', "strings"),
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        check_values,
        parse_json,
        lambda text: read_plan(text, MAX_BYTES),
        lambda text: read_generate_request(text, NO_INPUTS, MAX_BYTES),
    ],
)
def test_json_with_more_values_is_refused(text: bytes, kind: str, read: Callable[[bytes], Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=f"more than the maximum of 3 {kind}"):
        read(text)


def test_json_that_simdjson_reads_is_counted_too() -> None:
    numbers = b",".join([b"[1,2,3,4,5]"] * (json_text.MAX_ARRAYS + 1))
    entry = b'{"name":"i","datatype":"FP32","shape":[1],"data":[%b]}' % numbers
    with pytest.raises(InvalidArgumentError, match="arrays and objects"):
        read_plan(b'{"inputs":[%b]}' % entry, MAX_BYTES)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b"[" + b"[]," * MAX_DOCUMENT_VALUES + b"[]]", "arrays and objects"),
        (b"[" + b'"",' * MAX_DOCUMENT_VALUES + b'""]', "strings"),
        (b"[" + b"1," * MAX_DOCUMENT_ELEMENTS + b"1]", "elements and members"),
    ],
)
def test_documents_without_tensors_have_few_values(text: bytes, kind: str) -> None:
    with pytest.raises(InvalidArgumentError, match=kind):
        parse_document(text)
    assert parse_json(text)


def test_documents_without_tensors_may_have_long_strings() -> None:
    text = json.dumps({"text": "[{," * MAX_DOCUMENT_ELEMENTS + '\\"'})
    assert parse_document(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    ("entry", "what"),
    [(b"{}", "objects"), (b'{"name":"o"}', "objects"), (b'[{"a":1,"b":2,"c":3}]', "members of objects")],
)
def test_objects_and_members_that_no_request_has_are_refused_before_they_are_made(
    entry: bytes, what: str
) -> None:
    count = MAX_OBJECTS // 3 + 1 if what != "objects" else MAX_OBJECTS + 1
    text = b'{"outputs":[' + b",".join([entry] * count) + b"]}"
    with pytest.raises(InvalidArgumentError) as refused:
        check_values(text)
    assert (
        refused.value.message == f"the JSON of the request has more than the maximum of {MAX_OBJECTS} {what}"
    )


def test_braces_and_colons_in_strings_are_no_objects_and_members() -> None:
    text = json.dumps({"data": ["{:" * 2 * MAX_OBJECTS, '"{:' * MAX_OBJECTS]}).encode()
    assert parse_json(text)["data"][0] == "{:" * 2 * MAX_OBJECTS


def test_as_many_inputs_outputs_and_parameters_as_a_request_may_have_are_within_all_bounds() -> None:
    padding = "x" * json_text.COUNTED_BYTES
    numbers = range(MAX_ENTRIES)
    place = {"shared_memory_region": padding[:9], "shared_memory_offset": 0, "shared_memory_byte_size": 4}
    inputs = [{"name": f"i{n}", "datatype": "FP32", "shape": [1], "parameters": place} for n in numbers]
    outputs = [{"name": f"o{n}", "parameters": place} for n in numbers]
    over_http(id=padding, inputs=inputs, outputs=outputs, parameters=PARAMETERS)
