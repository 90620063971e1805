"""Requests over HTTP that are wrong."""

import gzip
import struct
from typing import Any

from tests.conformance.asking import binary, infer, post, strings, tensor
from tests.conformance.case import Case, case
from tests.conformance.cases.http_infer import ADD_SUB, PATH
from tests.conformance.differences import (
    BAD_COMPRESSION,
    CONTENT_LENGTH_AND_CHUNKED,
    EMPTY_BODY,
    LENGTH_OF_JSON,
    MALFORMED_HTTP,
    OUT_OF_RANGE,
    OUTPUT_NAMED,
    OUTPUT_TWICE,
    OVERFLOW,
)
from tests.conformance.steps import Bytes, Step

INT32 = tensor("X", "INT32", [1])
RAW = {"Inference-Header-Content-Length": "0"}


def member(**members: Any) -> Step:
    """An inference of `asked` with those members in the request."""
    return infer("asked", INT32, **members)


def of_input(**members: Any) -> Step:
    """An inference of `asked` with those members in its input; None leaves one out."""
    described = {**INT32, **members}
    return infer("asked", {name: value for name, value in described.items() if value is not ...})


def of_output(output: Any) -> Step:
    """An inference of `add_sub` with that output."""
    return infer("add_sub", *ADD_SUB, outputs=[output])


def sized(size: Any, part: bytes, shape: list[int] | None = None, **more: Any) -> Step:
    """An inference of `asked` in binary."""
    described = {
        "name": "X",
        "datatype": "INT32",
        "shape": shape or [2],
        "parameters": {"binary_data_size": size},
    }
    return binary("asked", {"inputs": [described]}, part, **more)


def cut(part: bytes, shape: list[int]) -> Step:
    """An inference of `upper` with those bytes for strings."""
    described = {
        "name": "S",
        "datatype": "BYTES",
        "shape": shape,
        "parameters": {"binary_data_size": len(part)},
    }
    return binary("upper", {"inputs": [described]}, part)


BODIES = (
    " ",
    "{",
    "[]",
    "null",
    "3",
    '"text"',
    "{}",
    "nonsense",
    '{"inputs":[]}',
    '{"inputs":{}}',
    '{"inputs":null}',
    '{"inputs":3}',
    '{"inputs":[3]}',
    '{"inputs":["x"]}',
    '{"inputs":[[]]}',
    '{"inputs":[{}]}',
    '{"inputs":[null]}',
    '{"inputs":[]} trailing',
    '{"inputs":[],}',
    "{'inputs':[]}",
    '{"inputs":[{"name":"X"}]}',
    '{"inputs":[{"name":3,"datatype":"INT32","shape":[1],"data":[1]}]}',
    '{"inputs":[{"datatype":"INT32","shape":[1],"data":[1]}]}',
    '{"outputs":[]}',
    '{"inputs":[' + "[" * 120 + "]" * 120 + "]}",
    "\xff",
)
INPUTS: dict[str, dict[str, Any]] = {
    "no name": {"name": ...},
    "an unknown name": {"name": "Y"},
    "an empty name": {"name": ""},
    "no datatype": {"datatype": ...},
    "an unknown datatype": {"datatype": "INT33"},
    "a lower-case datatype": {"datatype": "int32"},
    "datatype TYPE_INT32": {"datatype": "TYPE_INT32"},
    "an empty datatype": {"datatype": ""},
    "datatype 3": {"datatype": 3},
    "another datatype": {"datatype": "INT64"},
    "datatype BF16": {"datatype": "BF16"},
    "datatype STRING": {"datatype": "STRING"},
    "no shape": {"shape": ...},
    "shape 1": {"shape": 1},
    "shape of text": {"shape": "1"},
    "shape of strings": {"shape": ["1"]},
    "a negative shape": {"shape": [-1]},
    "a shape of fractions": {"shape": [1.5]},
    "a shape of 1.0": {"shape": [1.0]},
    "shape []": {"shape": []},
    "shape [1,1]": {"shape": [1, 1]},
    "shape [2]": {"shape": [2]},
    "shape [0]": {"shape": [0]},
    "a shape too large": {"shape": [2**62, 4]},
    "a shape of 2^63": {"shape": [2**63]},
    "a shape of 2^64": {"shape": [2**64]},
    "a shape of null": {"shape": None},
    "no data": {"data": ...},
    "data 1": {"data": 1},
    "data {}": {"data": {}},
    "data null": {"data": None},
    "data of text": {"data": "1"},
    "data of strings": {"data": ["1"]},
    "data of booleans": {"data": [True]},
    "data of null": {"data": [None]},
    "data of objects": {"data": [{}]},
    "data []": {"data": []},
    "too much data": {"data": [1, 2]},
    "data nested unevenly": {"data": [[1], 2], "shape": [2]},
    "data [[]]": {"data": [[]]},
    "parameters 3": {"parameters": 3},
    "parameters []": {"parameters": []},
    "parameters null": {"parameters": None},
    "binary_data_size and data": {"parameters": {"binary_data_size": 4}},
    "shared memory and data": {"parameters": {"shared_memory_region": "r", "shared_memory_byte_size": 4}},
    "a binary size without header": {"data": ..., "parameters": {"binary_data_size": 4}},
    "a parameter that is a list": {"parameters": {"x": []}},
}
LARGE: tuple[dict[str, Any], ...] = ({"large": 2**63}, {"larger": 2**64})
TOO_LARGE = ("a shape too large", "a shape of 2^63")
MEMBERS: dict[str, dict[str, Any]] = {
    "id 3": {"id": 3},
    "id null": {"id": None},
    "id []": {"id": []},
    "parameters 3": {"parameters": 3},
    "parameters []": {"parameters": []},
    "parameters text": {"parameters": "x"},
    "parameters {}": {"parameters": {}},
    "outputs 3": {"outputs": 3},
    "outputs {}": {"outputs": {}},
    "outputs [3]": {"outputs": [3]},
    "outputs [{}]": {"outputs": [{}]},
    "outputs null": {"outputs": None},
}
PARAMETERS: tuple[dict[str, Any], ...] = (
    {"sequence_id": "text"},
    {"sequence_id": 7},
    {"sequence_id": -1},
    {"sequence_id": 1.5},
    {"sequence_id": True},
    {"sequence_id": []},
    {"sequence_id": None},
    {"sequence_id": ""},
    {"sequence_start": 1},
    {"sequence_start": True},
    {"sequence_start": "true"},
    {"sequence_end": 0},
    {"sequence_end": None},
    {"sequence_id": 7, "sequence_start": True, "sequence_end": True},
    {"priority": 1},
    {"priority": -1},
    {"priority": "1"},
    {"priority": 1.5},
    {"priority": True},
    {"priority": 2**63},
    {"timeout": 1},
    {"timeout": -1},
    {"timeout": "1"},
    {"timeout": 1000000},
    {"binary_data_output": 1},
    {"binary_data_output": "true"},
    {"binary_data_output": False},
    {"binary_data_output": None},
    {"headers": "x"},
    {"headers": {"a": "b"}},
    {"triton_x": 1},
    {"triton_enable_empty_final_response": True},
    {"triton_enable_empty_final_response": 1},
    {"triton_": "x"},
    {"Triton_x": "y"},
    {"text": "value"},
    {"number": 3},
    {"negative": -3},
    {"large": 2**63},
    {"larger": 2**64},
    {"half": 0.5},
    {"yes": True},
    {"list": [1]},
    {"object": {}},
    {"nothing": None},
    {"": "empty key"},
    {"b": 1, "a": "2", "c": False},
)
OUTPUTS: dict[str, Any] = {
    "unknown": {"name": "OTHER"},
    "no name": {},
    "name 3": {"name": 3},
    "classification -1": {"name": "OUTPUT0", "parameters": {"classification": -1}},
    "classification text": {"name": "OUTPUT0", "parameters": {"classification": "2"}},
    "classification true": {"name": "OUTPUT0", "parameters": {"classification": True}},
    "classification 1.5": {"name": "OUTPUT0", "parameters": {"classification": 1.5}},
    "binary_data 1": {"name": "OUTPUT0", "parameters": {"binary_data": 1}},
    "binary_data text": {"name": "OUTPUT0", "parameters": {"binary_data": "true"}},
    "parameters 3": {"name": "OUTPUT0", "parameters": 3},
    "parameters []": {"name": "OUTPUT0", "parameters": []},
    "an unknown parameter": {"name": "OUTPUT0", "parameters": {"other": 1}},
    "an empty name": {"name": ""},
}
CHUNKS = b"POST /v2/models/asked/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"

CASES: list[Case] = [
    *(case(f"body {body[:40]!r}", post("/v2/models/asked/infer", body.encode("latin-1"))) for body in BODIES),
    *(
        case(f"input: {name}", of_input(**members), differs=OVERFLOW if name in TOO_LARGE else None)
        for name, members in INPUTS.items()
    ),
    *(case(f"request: {name}", member(**members)) for name, members in MEMBERS.items()),
    *(
        case(
            f"parameters {parameters!r}",
            member(parameters=parameters),
            differs=OUT_OF_RANGE if parameters in LARGE else None,
        )
        for parameters in PARAMETERS
    ),
    *(case(f"output: {name}", of_output(output)) for name, output in OUTPUTS.items()),
    case("an unknown model", infer("unknown", INT32)),
    case("an unknown version", infer("asked/versions/7", INT32)),
    case("a version not in the policy", infer("versions/versions/2", INT32)),
    case("an id in the error", infer("asked", tensor("Y", "INT32", [1]), id="my id")),
    case(
        "an output twice",
        infer("add_sub", *ADD_SUB, outputs=[{"name": "OUTPUT0"}, {"name": "OUTPUT0"}]),
        differs=OUTPUT_TWICE,
    ),
    case("an input twice", infer("asked", INT32, INT32)),
    case("an input of add_sub twice", infer("add_sub", ADD_SUB[0], *ADD_SUB)),
    case("an input missing", infer("add_sub", ADD_SUB[0])),
    case("an input too many", infer("add_sub", *ADD_SUB, tensor("INPUT2", "FP32", [[1, 2, 3, 4]]))),
    case("another input", infer("add_sub", ADD_SUB[0], tensor("INPUT2", "FP32", [[1, 2, 3, 4]]))),
    case("no inputs of many optional", infer("every_type")),
    case("a required input missing", infer("required_and_not", tensor("A", "INT32", [[1]]))),
    case("required inputs missing", infer("required_and_not", tensor("B", "INT32", [[1]]))),
    case(
        "inputs required and too many",
        infer("required_and_not", *(tensor(name, "INT32", [[1]]) for name in "ABCD")),
    ),
    case(
        "an unknown one for a required one",
        infer("required_and_not", *(tensor(name, "INT32", [[1]]) for name in "AD")),
    ),
    case(
        "the batch too large",
        infer("add_sub", *(tensor(name, "FP32", [[1, 2, 3, 4]] * 9) for name in ("INPUT0", "INPUT1"))),
    ),
    case(
        "batch size 0", infer("add_sub", *(tensor(name, "FP32", [], [0, 4]) for name in ("INPUT0", "INPUT1")))
    ),
    case(
        "batch size 0 in binary",
        binary(
            "variable",
            {
                "inputs": [
                    {
                        "name": "X",
                        "datatype": "INT64",
                        "shape": [0, 1, 2],
                        "parameters": {"binary_data_size": 0},
                    }
                ]
            },
        ),
    ),
    case(
        "batch sizes that differ",
        infer("add_sub", tensor("INPUT0", "FP32", [[1, 2, 3, 4]] * 2), ADD_SUB[1]),
    ),
    case(
        "no batch dimension",
        infer("add_sub", tensor("INPUT0", "FP32", [1, 2, 3, 4]), ADD_SUB[1]),
    ),
    case(
        "a dimension too many",
        infer("add_sub", tensor("INPUT0", "FP32", [[[1, 2, 3, 4]]]), ADD_SUB[1]),
    ),
    case(
        "another dimension",
        infer("add_sub", tensor("INPUT0", "FP32", [[1, 2, 3]]), ADD_SUB[1]),
    ),
    case("another dimension without batching", infer("doubles", tensor("X", "FP64", [[1, 2, 3]]))),
    case("another rank without batching", infer("doubles", tensor("X", "FP64", [1, 2]))),
    case("another dimension of a variable shape", infer("variable", tensor("X", "INT64", [[[1, 2, 3]]]))),
    case(
        "another dimension where the model reshapes",
        infer("reshaped", tensor("X", "FP32", [[[1, 2], [3, 4]]]), tensor("ONE", "INT32", [[1]])),
    ),
    case("one string of two", infer("upper", tensor("S", "BYTES", ["a"], [1, 2]))),
    case("three strings of two", infer("upper", tensor("S", "BYTES", ["a", "b", "c"], [1, 2]))),
    case("one string of two in binary", cut(strings(b"a"), [1, 2])),
    case("three strings of two in binary", cut(strings(b"a", b"b", b"c"), [1, 2])),
    case("a string's length cut off", cut(strings(b"a") + b"\x01\x00", [1, 2])),
    case("a string cut off", cut(strings(b"a", b"bcd")[:-1], [1, 2])),
    case("a string of 4 GiB", cut(b"\xff\xff\xff\xffabc", [1, 1])),
    case("strings that are none", infer("upper", tensor("S", "BYTES", [1, 2], [1, 2]))),
    case("a string that is null", infer("upper", tensor("S", "BYTES", ["a", None], [1, 2]))),
    case("a string that is a list", infer("upper", tensor("S", "BYTES", ["a", []], [1, 2]))),
    case("booleans that are numbers", infer("every_type", tensor("BOOL", "BOOL", [1, 0]))),
    case("FP16 in JSON", infer("every_type", tensor("FP16", "FP16", [1.0]))),
    case("binary too short", sized(8, b"1234")),
    case("binary too long", sized(8, b"123456789")),
    case("a binary size that is not the shape's", sized(12, b"1" * 12)),
    case("a binary size below the shape's", sized(4, b"1234")),
    case("a negative binary size", sized(-1, b"")),
    case("a binary size of text", sized("8", b"12345678")),
    case("a binary size of a fraction", sized(8.5, b"12345678")),
    case("a binary size null", sized(None, b"12345678")),
    case("a huge binary size", sized(2**62, b"12345678")),
    case("a header length too long", sized(8, b"12345678", length=100000)),
    case("a header length too short", sized(8, b"12345678", length=5)),
    case("a negative header length", sized(8, b"12345678", length=-1)),
    case("a header length of text", sized(8, b"12345678", length="x"), differs=LENGTH_OF_JSON),
    case(
        "a header length with letters after it", sized(8, b"12345678", length="10x"), differs=LENGTH_OF_JSON
    ),
    case("a huge header length", sized(8, b"12345678", length=2**40), differs=LENGTH_OF_JSON),
    case("an empty header length", sized(8, b"12345678", length=""), differs=LENGTH_OF_JSON),
    case("a header length beyond any integer", sized(8, b"12345678", length="9" * 30)),
    case("raw with two inputs", post(PATH, b"1234", RAW)),
    case("raw with two variable dimensions", post("/v2/models/asked/infer", b"123", RAW)),
    case("raw of a length that does not divide", post("/v2/models/doubles/infer", b"1" * 15, RAW)),
    case("raw strings for a model of two", post("/v2/models/upper/infer", b"text", RAW)),
    case("raw and empty", post("/v2/models/halves/infer", b"", RAW)),
    case("no body", post("/v2/models/doubles/infer", b""), differs=EMPTY_BODY),
    case("no body for a model of two inputs", post(PATH, b""), differs=EMPTY_BODY),
    case("raw for an unknown model", post("/v2/models/unknown/infer", b"", RAW)),
    case(
        "raw of a shape that does not divide",
        post("/v2/models/doubles/infer", struct.pack("<3d", 1, 2, 3), RAW),
    ),
    case("an encoding that is unknown", post(PATH, b"{}", {"Content-Encoding": "br"})),
    case("gzip that is none", post(PATH, b"{}", {"Content-Encoding": "gzip"}), differs=BAD_COMPRESSION),
    case(
        "gzip cut off",
        post(PATH, gzip.compress(b'{"inputs":[]}' * 20)[:-12], {"Content-Encoding": "gzip"}),
        differs=BAD_COMPRESSION,
    ),
    case("an empty gzip body", post(PATH, b"", {"Content-Encoding": "gzip"})),
    case(
        "FP16 back in JSON",
        binary(
            "halves",
            {
                "inputs": [
                    {"name": "X", "datatype": "FP16", "shape": [1], "parameters": {"binary_data_size": 2}}
                ]
            },
            b"\x00\x3c",
        ),
        differs=OUTPUT_NAMED,
    ),
    case(
        "output to shared memory and in binary",
        of_output(
            {
                "name": "OUTPUT0",
                "parameters": {
                    "shared_memory_region": "r",
                    "shared_memory_byte_size": 16,
                    "binary_data": True,
                },
            }
        ),
    ),
    case("a decoupled model", infer("repeat", tensor("IN", "INT32", [1, 2]))),
    case("a decoupled ensemble", infer("stream_chain", tensor("NUMBERS", "INT32", [1]))),
    case("both Content-Length and chunked", Bytes(CHUNKS), differs=CONTENT_LENGTH_AND_CHUNKED),
    case(
        "a chunk size that is none",
        Bytes(CHUNKS.replace(b"Content-Length: 5\r\n", b"").replace(b"5\r\nhello", b"zz\r\nhello")),
        differs=MALFORMED_HTTP,
    ),
    *(
        case(f"an ensemble's input: {name}", infer("chain", *inputs))
        for name, inputs in {
            "missing": [tensor("A", "FP32", [[1, 2, 3, 4]])],
            "datatype": [tensor("A", "FP64", [[1, 2, 3, 4]]), tensor("B", "FP32", [[1, 1, 1, 1]])],
            "shape": [tensor("A", "FP32", [[1, 2, 3]]), tensor("B", "FP32", [[1, 1, 1, 1]])],
            "unknown": [tensor("A", "FP32", [[1, 2, 3, 4]]), tensor("Q", "FP32", [[1, 1, 1, 1]])],
            "batch": [tensor("A", "FP32", [[1, 2, 3, 4]] * 9), tensor("B", "FP32", [[1, 1, 1, 1]] * 9)],
        }.items()
    ),
]
