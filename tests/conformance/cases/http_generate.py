"""The generate endpoints."""

from typing import Any

from tests.conformance.asking import post
from tests.conformance.case import Case, case
from tests.conformance.differences import GENERATE_ERROR, GENERATE_STATUS, REQUIRED_INPUT, Difference
from tests.conformance.steps import Step

BODIES: dict[str, Any] = {
    "text": {"text_input": "a"},
    "a list": {"text_input": ["a"]},
    "two responses": {"text_input": "a", "count": 2},
    "count 3": {"text_input": "a", "count": 3},
    "count 0": {"text_input": "a", "count": 0},
    "an id": {"text_input": "a", "id": "7"},
    "parameters": {"text_input": "a", "parameters": {"x": 1, "y": "z", "t": True, "half": 0.5}},
    "input inside parameters": {"parameters": {"text_input": "a", "x": 1}},
    "other members": {"text_input": "a", "x": 1, "y": "text", "z": False, "half": 1.5},
    "an object": {"text_input": "a", "x": {"y": 1}},
    "a list of others": {"text_input": "a", "x": [1]},
    "null": {"text_input": "a", "x": None},
    "nothing": {},
    "no text": {"count": 2},
    "a number for text": {"text_input": 3},
    "text for a number": {"text_input": "a", "count": "2"},
    "a fraction for a number": {"text_input": "a", "count": 1.5},
    "a flag": {"text_input": "a", "flag": True},
    "a number for a flag": {"text_input": "a", "flag": 1},
    "numbers": {"text_input": "a", "numbers": [1, 2, 3, 4]},
    "odd numbers": {"text_input": "a", "numbers": [1, 2, 3]},
    "nested numbers": {"text_input": "a", "numbers": [[1, 2], [3, 4]]},
    "two texts": {"text_input": ["a", "b"]},
    "parameters 3": {"text_input": "a", "parameters": 3},
    "nested parameters": {"text_input": "a", "parameters": {"x": {"y": 1}}},
    "an empty list": {"text_input": []},
    "null for text": {"text_input": None},
    "an object for text": {"text_input": {}},
    "id 3": {"text_input": "a", "id": 3},
    "an error": {"text_input": "error"},
    "triton_x": {"text_input": "a", "triton_x": 1},
    "sequence_id": {"text_input": "a", "sequence_id": 3, "priority": 1, "timeout": 100000000},
    "priority of text": {"text_input": "a", "priority": "x"},
    "a list as body": [],
    "text as body": "nonsense",
    "an empty body": "",
    "a duplicate": '{"text_input":"a","text_input":"b"}',
    "ünïcode": {"text_input": 'ünï"\n'},
}


def of(path: str, body: Any) -> Step:
    """A POST of that body."""
    return post(f"/v2/models/{path}", body)


RESPONSES = ("two responses", "count 3", "count 0", "an error")


def meant(path: str, name: str) -> Difference | None:
    """The difference that the body with that name shows there."""
    if name == "no text":
        return REQUIRED_INPUT
    if name == "an error" and path == "text_stream/generate":
        return GENERATE_ERROR
    return GENERATE_STATUS if path == "text_stream/generate" and name in RESPONSES else None


CASES: list[Case] = [
    *(
        case(f"{path}: {name}", of(path, body), differs=meant(path, name))
        for path in (
            "text/generate",
            "text/generate_stream",
            "text_stream/generate",
            "text_stream/generate_stream",
        )
        for name, body in BODIES.items()
        if path.startswith("text/") or "numbers" not in name
    ),
    case("a version", of("text/versions/1/generate", BODIES["text"])),
    case("an unknown version", of("text/versions/3/generate", BODIES["text"])),
    case("an unknown model", of("unknown/generate", BODIES["text"])),
    case("an unknown model in a stream", of("unknown/generate_stream", BODIES["text"])),
    case("gzip", post("/v2/models/text/generate", BODIES["text"], {"Content-Encoding": "gzip"})),
    case("add_sub", of("add_sub/generate", {"INPUT0": [1, 2, 3, 4], "INPUT1": [1, 1, 1, 1]})),
    case(
        "add_sub of 8 numbers",
        of("add_sub/generate", {"INPUT0": [1, 2, 3, 4] * 2, "INPUT1": [1, 1, 1, 1] * 2}),
    ),
    case("add_sub, one input missing", of("add_sub/generate", {"INPUT0": [1, 2, 3, 4]})),
    case("FP16", of("halves/generate", {"X": [1, 2]})),
    case("unusual floats", of("answers/generate", {"KIND": "unusual_floats"})),
    case("an error of the model", of("answers/generate", {"KIND": "error"}), differs=GENERATE_STATUS),
    case(
        "an error of the model in a stream",
        of("answers/generate_stream", {"KIND": "error"}),
        differs=GENERATE_STATUS,
    ),
    case("a code of the model", of("answers/generate", {"KIND": "code:NOT_FOUND"}), differs=GENERATE_STATUS),
    case("zero elements", of("answers/generate", {"KIND": "zero_elements"})),
    case("a model that raises", of("answers/generate", {"KIND": "raises"}), differs=GENERATE_STATUS),
    case(
        "every type",
        of(
            "every_type/generate",
            {
                "BOOL": [True],
                "INT8": -1,
                "UINT64": 2**64 - 1,
                "FP64": 0.1,
                "FP32": 0.1,
                "STRING": "x",
                "INT64": 2**62,
            },
        ),
    ),
]
