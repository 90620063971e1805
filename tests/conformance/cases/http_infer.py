"""Inferences over HTTP that are in order."""

import gzip
import struct
import zlib
from typing import Any

from tests.conformance.asking import binary, infer, post, strings, tensor
from tests.conformance.case import Case, case
from tests.conformance.differences import NAN_IS_NO_CLASS, OUT_OF_RANGE, OUTPUT_NAMED
from tests.conformance.steps import Bytes, Step

ADD_SUB = [tensor("INPUT0", "FP32", [[1, 2, 3, 4]]), tensor("INPUT1", "FP32", [[0.1, 0.2, 0.3, 0.4]])]
PATH = "/v2/models/add_sub/infer"
NUMBERS: dict[str, list[list[object]]] = {
    "BOOL": [[True, False, True]],
    "UINT8": [[0, 1, 255], [256], [-1], [1.0], [1.5]],
    "UINT16": [[0, 65535], [65536], [-1]],
    "UINT32": [[0, 4294967295], [4294967296], [-1]],
    "UINT64": [[0, 18446744073709551615], [18446744073709551616], [-1]],
    "INT8": [[-128, 127], [128], [-129]],
    "INT16": [[-32768, 32767], [32768]],
    "INT32": [[-2147483648, 2147483647], [2147483648], [1.0], [1e3]],
    "INT64": [[-9223372036854775808, 9223372036854775807], [9223372036854775808], [1.5]],
    "FP32": [[0, 1, -1], [0.1, 1e-45, 3.4e38, -0.0], [1e39], [16777217], [123456789.123]],
    "FP64": [
        [0.1, 1e308, -1e-308, 5e-324],
        [2**53 + 1],
        [1e22, 1e21, 1e15, 123456789012345680.0],
        [0.1 + 0.2, 1 / 3],
    ],
    "BYTES": [
        ["text", ""],
        ["ünïcode", "\u0000", 'quotes "', "\\"],
        ["\U0001f600", "line\nfeed", "\u007f\u0001"],
    ],
}
CUT = (
    "UINT8 [256]",
    "UINT16 [65536]",
    "UINT32 [4294967296]",
    "INT8 [128]",
    "INT8 [-129]",
    "INT16 [32768]",
    "INT32 [2147483648]",
    "FP32 [1e+39]",
)
"""Numbers for which tritonserver has others, by datatype and data."""

PACKED = {
    "BOOL": "?",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}


def of_type(datatype: str) -> str:
    """The input of `every_type` that has it."""
    return "STRING" if datatype == "BYTES" else datatype


def in_json() -> list[Case]:
    """Each datatype in JSON, and numbers at the limits of the type and beyond."""
    return [
        case(
            f"{datatype} in JSON {data!r}",
            infer("every_type", tensor(of_type(datatype), datatype, data)),
            differs=OUT_OF_RANGE if f"{datatype} {data!r}" in CUT else None,
        )
        for datatype, rows in NUMBERS.items()
        for data in rows
    ]


def in_binary() -> list[Case]:
    """Each datatype as bytes, both ways, and back in JSON."""
    found = []
    for datatype, kind in PACKED.items():
        part = struct.pack(f"<3{kind}", True, 2, 3)
        described = {
            "name": datatype,
            "datatype": datatype,
            "shape": [3],
            "parameters": {"binary_data_size": len(part)},
        }
        header = {
            "inputs": [described],
            "outputs": [{"name": f"OUT_{datatype}", "parameters": {"binary_data": True}}],
        }
        found.append(case(f"{datatype} in binary", binary("every_type", header, part)))
        found.append(
            case(
                f"{datatype} in binary, back in JSON",
                binary("every_type", {"inputs": [described]}, part),
                differs=OUTPUT_NAMED if datatype == "FP16" else None,
            )
        )
    return found


def text(datatype: str, data: str, shape: str) -> Step:
    """An inference whose JSON is written by hand."""
    name = of_type(datatype)
    body = f'{{"inputs":[{{"name":"{name}","datatype":"{datatype}","shape":{shape},"data":{data}}}]}}'
    return post("/v2/models/every_type/infer", body)


ONE_STRING = {"name": "S", "datatype": "BYTES", "shape": [1, 2], "parameters": {"binary_data_size": 10}}
BOTH: dict[str, Any] = {
    "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}, {"name": "OUTPUT1"}]
}
CHUNKED = (
    b"POST /v2/models/every_type/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
)
INT = b'{"inputs":[{"name":"INT8","datatype":"INT8","shape":[1],"data":[1]}]}'


def classified(count: object, *outputs: str) -> Step:
    """Classes of those outputs of `add_sub`."""
    return infer(
        "add_sub",
        *ADD_SUB,
        outputs=[{"name": name, "parameters": {"classification": count}} for name in outputs],
    )


CASES: list[Case] = [
    case("sums in JSON", infer("add_sub", *ADD_SUB)),
    case("an id", infer("add_sub", *ADD_SUB, id="my id")),
    case("an empty id", infer("add_sub", *ADD_SUB, id="")),
    case("a version", infer("add_sub/versions/1", *ADD_SUB)),
    case("the version in question", infer("versions/versions/1", tensor("X", "INT32", [1, 2, 3]))),
    case("the latest version", infer("versions", tensor("X", "INT32", [1, 2, 3]))),
    case("one output", infer("add_sub", *ADD_SUB, outputs=[{"name": "OUTPUT1"}])),
    case(
        "outputs in another order",
        infer("add_sub", *ADD_SUB, outputs=[{"name": "OUTPUT1"}, {"name": "OUTPUT0"}]),
    ),
    case("no outputs listed", infer("add_sub", *ADD_SUB, outputs=[])),
    case("one output in binary", infer("add_sub", *ADD_SUB, **BOTH)),
    case("all outputs in binary", infer("add_sub", *ADD_SUB, parameters={"binary_data_output": True})),
    case(
        "a listed output stays in JSON",
        infer("add_sub", *ADD_SUB, parameters={"binary_data_output": True}, outputs=[{"name": "OUTPUT0"}]),
    ),
    case("inputs in another order", infer("add_sub", *reversed(ADD_SUB))),
    case(
        "two rows",
        infer(
            "add_sub",
            tensor("INPUT0", "FP32", [[1, 2, 3, 4], [5, 6, 7, 8]]),
            tensor("INPUT1", "FP32", [[1, 1, 1, 1]] * 2),
        ),
    ),
    case(
        "flat data",
        infer(
            "add_sub",
            tensor("INPUT0", "FP32", [1, 2, 3, 4], [1, 4]),
            tensor("INPUT1", "FP32", [[1, 2], [3, 4]], [1, 4]),
        ),
    ),
    case(
        "data nested deeper than the shape",
        infer("add_sub", tensor("INPUT0", "FP32", [[[[1]], [[2]], [[3]], [[4]]]], [1, 4]), ADD_SUB[1]),
    ),
    case(
        "numbers without fraction",
        post(
            PATH,
            '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]},{"name":"INPUT1","datatype":"FP32","shape":[1,4],"data":[1e0,2E1,0.5e-3,-0]}]}',
        ),
    ),
    case("not a number", text("FP32", "[NaN, Infinity, -Infinity]", "[3]")),
    case("an infinity by its short name", text("FP64", "[Inf, -Inf]", "[2]")),
    case(
        "a number written long",
        text("FP64", "[0.1000000000000000055511151231257827021181583404541015625, 1E400]", "[2]"),
    ),
    case("unusual floats come back", infer("answers", tensor("KIND", "BYTES", ["unusual_floats"]))),
    case(
        "unusual floats in binary",
        infer(
            "answers",
            tensor("KIND", "BYTES", ["unusual_floats"]),
            outputs=[{"name": "OUT", "parameters": {"binary_data": True}}],
        ),
    ),
    case("zero elements in JSON", infer("answers", tensor("KIND", "BYTES", ["zero_elements"]))),
    case(
        "zero elements in binary",
        infer(
            "answers",
            tensor("KIND", "BYTES", ["zero_elements"]),
            outputs=[{"name": "OUT", "parameters": {"binary_data": True}}],
        ),
    ),
    case("an empty input", infer("every_type", tensor("FP32", "FP32", [], [0]))),
    case(
        "an empty input of FP16 in binary",
        binary(
            "every_type",
            {
                "inputs": [
                    {"name": "FP16", "datatype": "FP16", "shape": [0], "parameters": {"binary_data_size": 0}}
                ],
                "outputs": [{"name": "OUT_FP16", "parameters": {"binary_data": True}}],
            },
        ),
    ),
    case("an empty input of strings", infer("every_type", tensor("STRING", "BYTES", [], [0]))),
    case("two tensors of one name", infer("answers", tensor("KIND", "BYTES", ["twice_the_same"]))),
    case(
        "two tensors of one name in binary",
        infer(
            "answers", tensor("KIND", "BYTES", ["twice_the_same"]), parameters={"binary_data_output": True}
        ),
    ),
    case("outputs in the order of the response", infer("answers", tensor("KIND", "BYTES", ["other_order"]))),
    case(
        "strings in binary",
        binary(
            "upper",
            {"inputs": [ONE_STRING], "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}]},
            strings(b"a", b"b"),
        ),
    ),
    case(
        "strings of any bytes",
        binary(
            "upper",
            {"inputs": [ONE_STRING], "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}]},
            strings(b"\xff", b"\x00"),
        ),
    ),
    case(
        "strings of any bytes back in JSON",
        binary(
            "every_type",
            {
                "inputs": [
                    {
                        "name": "STRING",
                        "datatype": "BYTES",
                        "shape": [2],
                        "parameters": {"binary_data_size": 10},
                    }
                ]
            },
            strings(b"b", b"a"),
        ),
    ),
    case(
        "one input in JSON, one in binary",
        binary(
            "add_sub",
            {
                "inputs": [
                    ADD_SUB[0],
                    {
                        "name": "INPUT1",
                        "datatype": "FP32",
                        "shape": [1, 4],
                        "parameters": {"binary_data_size": 16},
                    },
                ]
            },
            struct.pack("<4f", 1, 2, 3, 4),
        ),
    ),
    case(
        "a header of the JSON's length and no binary",
        binary("every_type", {"inputs": [tensor("INT8", "INT8", [1])]}),
    ),
    case(
        "raw floats",
        post(
            "/v2/models/halves/infer", struct.pack("<3e", 1, 2, 3), {"Inference-Header-Content-Length": "0"}
        ),
    ),
    case(
        "a raw string",
        post("/v2/models/one_string/infer", b"any bytes", {"Inference-Header-Content-Length": "0"}),
    ),
    case(
        "a raw string of a model that batches",
        post("/v2/models/batched_string/infer", b"any bytes", {"Inference-Header-Content-Length": "0"}),
    ),
    case(
        "an empty raw string",
        post("/v2/models/one_string/infer", b"", {"Inference-Header-Content-Length": "0"}),
    ),
    case(
        "raw with one variable dimension",
        post(
            "/v2/models/doubles/infer",
            struct.pack("<4d", 1, 2, 3, 4),
            {"Inference-Header-Content-Length": "0"},
        ),
    ),
    case(
        "raw of a model that batches",
        post(
            "/v2/models/variable/infer",
            struct.pack("<4q", 1, 2, 3, 4),
            {"Inference-Header-Content-Length": "0"},
        ),
    ),
    case("classes", classified(2, "OUTPUT0")),
    case("classes with labels that end", classified(4, "OUTPUT0")),
    case("classes of both", classified(3, "OUTPUT0", "OUTPUT1")),
    case("more classes than there are", classified(9, "OUTPUT0")),
    case("classes 0", classified(0, "OUTPUT0")),
    case(
        "classes of two rows",
        infer(
            "add_sub",
            tensor("INPUT0", "FP32", [[1, 2, 3, 4], [8, 7, 6, 5]]),
            tensor("INPUT1", "FP32", [[0, 0, 0, 0]] * 2),
            outputs=[{"name": "OUTPUT0", "parameters": {"classification": 2}}],
        ),
    ),
    case(
        "classes in binary",
        infer(
            "add_sub",
            *ADD_SUB,
            outputs=[{"name": "OUTPUT0", "parameters": {"classification": 2, "binary_data": True}}],
        ),
    ),
    case(
        "classes without batch",
        infer(
            "doubles",
            tensor("X", "FP64", [[1.5, 2.25]]),
            outputs=[{"name": "OUT", "parameters": {"classification": 2}}],
        ),
    ),
    case(
        "classes of more elements",
        infer(
            "doubles",
            tensor("X", "FP64", [[1.5, 2.25], [1e10, -3]]),
            outputs=[{"name": "OUT", "parameters": {"classification": 4}}],
        ),
    ),
    *(
        case(
            f"classes of {datatype}",
            infer(
                "every_type",
                tensor(datatype, datatype, [3, 1, 2]),
                outputs=[{"name": f"OUT_{datatype}", "parameters": {"classification": 3}}],
            ),
        )
        for datatype in ("UINT8", "INT8", "UINT64", "INT64", "FP64", "FP32")
    ),
    case(
        "classes of NaN",
        infer(
            "answers",
            tensor("KIND", "BYTES", ["unusual_floats"]),
            outputs=[{"name": "OUT", "parameters": {"classification": 2}}],
        ),
        differs=NAN_IS_NO_CLASS,
    ),
    case(
        "reshaped, one row",
        infer("reshaped", tensor("X", "FP32", [[1, 2, 3, 4]]), tensor("ONE", "INT32", [[7]])),
    ),
    case(
        "reshaped, two rows",
        infer(
            "reshaped", tensor("X", "FP32", [[1, 2, 3, 4], [5, 6, 7, 8]]), tensor("ONE", "INT32", [[7], [8]])
        ),
    ),
    case("a variable shape", infer("variable", tensor("X", "INT64", [[[1, 2], [3, 4], [5, 6]]]))),
    case(
        "optional inputs left out",
        infer("required_and_not", tensor("A", "INT32", [[1]]), tensor("C", "INT32", [[1]])),
    ),
    case(
        "optional inputs given", infer("required_and_not", *(tensor(name, "INT32", [[1]]) for name in "CBA"))
    ),
    case("unknown members", infer("add_sub", {**ADD_SUB[0], "other": 1}, ADD_SUB[1], other={"a": 1})),
    case(
        "parameters of an input",
        infer("add_sub", {**ADD_SUB[0], "parameters": {"other": 1, "text": "x"}}, ADD_SUB[1]),
    ),
    case("null parameters", post(PATH, '{"inputs":[],"parameters":null}')),
    case("white space around JSON", post("/v2/models/every_type/infer", b"\r\n\t " + INT + b" \n")),
    case("a byte order mark", post("/v2/models/every_type/infer", b"\xef\xbb\xbf" + INT)),
    case("gzip", post("/v2/models/every_type/infer", gzip.compress(INT), {"Content-Encoding": "gzip"})),
    case("deflate", post("/v2/models/every_type/infer", zlib.compress(INT), {"Content-Encoding": "deflate"})),
    case("identity", post("/v2/models/every_type/infer", INT, {"Content-Encoding": "identity"})),
    case("any content type", post("/v2/models/every_type/infer", INT, {"Content-Type": "text/plain"})),
    case("a query", post("/v2/models/every_type/infer?a=b", INT)),
    case(
        "chunks",
        Bytes(CHUNKED + b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (10, INT[:10], len(INT) - 10, INT[10:])),
    ),
    case("an Expect header", post("/v2/models/every_type/infer", INT, {"Expect": "100-continue"})),
    *(
        case(
            f"output {name} of an ensemble",
            infer(
                "chain",
                tensor("A", "FP32", [[1, 2, 3, 4]]),
                tensor("B", "FP32", [[1, 1, 1, 1]]),
                outputs=[{"name": name}],
                id="7",
            ),
        )
        for name in "CD"
    ),
    *in_json(),
    *in_binary(),
]
