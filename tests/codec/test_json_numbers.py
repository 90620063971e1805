"""What simdjson reads, orjson reads alike: values, and errors to the letter."""

import json
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from halimede.codec import json_numbers
from halimede.codec.json_numbers import JsonArray, read_document, read_members
from halimede.config.signature import Signature, TensorSpec
from halimede.core.datatypes import BYTES, FP32, FP64, INT8, INT32, INT64, UINT8, UINT32, UINT64, Datatype
from halimede.core.errors import HalimedeError
from halimede.frontends.http.codec import generate_request, request_plan
from halimede.frontends.http.codec.generate_request import read_generate_request
from halimede.frontends.http.codec.request_plan import read_plan

LIMIT = 1 << 20
SPECS = {
    name: TensorSpec(name, datatype, (-1,), (-1,), optional=True)
    for name, datatype in (("F", FP32), ("L", INT64), ("B", UINT8), ("S", BYTES))
}
SIGNATURE = Signature(0, SPECS, {}, decoupled=False)

ELEMENTS = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(
        [
            *("-0", "-0.0", "1.", "01", "+1", "1e999", "1e-999", "3.4028235677973366e38", "16777217", "0.1"),
            *("127", "128", "255", "256", "-1", "18446744073709551615", "18446744073709551616"),
            *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"),
            *("NaN", "Inf", "-Infinity", "true", "false", "null", '""', '"a]"', '"\\ud800"', '"\\u00fc"'),
            *("{}", '{"a":1}', '{"a":1,"a":[2]}', "", "[]", "[[]]", "[1,[2]]"),
        ]
    ),
)
SMALL = st.integers(-3, 3).map(str) | st.floats(-3, 3).map(repr)
ARRAYS = st.recursive(
    st.lists(SMALL, max_size=6) | st.lists(SMALL | ELEMENTS, max_size=6),
    lambda inner: st.lists(inner.map("[{}]".format), max_size=3),
    max_leaves=4,
).map(lambda elements: f"[{','.join(elements)}]")
DATATYPES = ("FP32", "FP64", "INT8", "INT16", "INT64", "UINT8", "UINT64", "BOOL", "BYTES", "FP16", "FP31")


@st.composite
def inputs(draw: st.DrawFn) -> str:
    """An input, mostly as it should be."""
    members = [
        '"name":"A"',
        f'"datatype":"{draw(st.sampled_from(DATATYPES))}"',
        f'"shape":{draw(st.lists(st.integers(0, 4), max_size=3))}',
        f'"data":{draw(ARRAYS | ELEMENTS)}',
    ]
    members += draw(st.lists(st.sampled_from(['"data":[1]', '"parameters":{"data":[1]}', '"x\\u0000":1'])))
    return f"{{{','.join(draw(st.permutations(members)))}}}"


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request that may be wrong in one way or more."""
    members = [f'"inputs":[{",".join(draw(st.lists(inputs() | ELEMENTS, min_size=1, max_size=2)))}]']
    members += draw(
        st.lists(
            st.sampled_from(
                [
                    *('"id":"a"', '"id":1', '"inputs":[]', '"outputs":[{"name":"O"}]', '"data":[1,2]'),
                    *(
                        '"parameters":{"p":1e300,"q":[1]}',
                        '"parameters":{"p":-1.5}',
                        '"parameters":{"t":9e18}',
                    ),
                ]
            ),
            max_size=2,
        )
    )
    text = f"{{{','.join(draw(st.permutations(members)))}}}"
    return damaged(draw, text)


@st.composite
def generations(draw: st.DrawFn) -> bytes:
    """A request of `generate` that may be wrong in one way or more."""
    names = st.sampled_from(["F", "L", "B", "S", "id", "parameters", "other"])
    members = st.builds('"{}":{}'.format, names, ARRAYS | ELEMENTS)
    return damaged(draw, f"{{{','.join(draw(st.lists(members, min_size=1, max_size=4)))}}}")


def damaged(draw: st.DrawFn, text: str) -> bytes:
    """The text as it is, with spaces, or with a byte that is another or too many."""
    how = draw(st.sampled_from(["", "", "spaces", "byte", "end", "mark"]))
    data = text.replace(",", " ,\n").encode() if how == "spaces" else text.encode()
    position = draw(st.integers(0, len(data) - 1))
    if how == "byte":
        return data[:position] + draw(st.binary(max_size=1)) + data[position + 1 :]
    if how == "end":
        return data + draw(st.sampled_from([b" ", b"\0", b"x", b"{}", b",", b"\n\t"]))
    return b"\xef\xbb\xbf" * (how == "mark") + data


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (request_plan, generate_request):
        monkeypatch.setattr(module, "MIN_BYTES", 0)
    monkeypatch.setattr(json_numbers, "_BYTES_A_QUOTE", 0)


def both_ways(read: Any, text: bytes, monkeypatch: pytest.MonkeyPatch) -> tuple[object, object]:
    """What comes of a text with simdjson and without; errors as their types and texts."""

    def outcome() -> object:
        try:
            return read(memoryview(text))
        except HalimedeError as error:
            return type(error), error.message

    with monkeypatch.context() as without:
        without.setattr(json_numbers, "simdjson", None)
        reference = outcome()
    return outcome(), reference


def plan(text: memoryview) -> object:
    found = read_plan(text, LIMIT)
    tensors = [(*each[:-1], None if each[-1] is None else bytes(each[-1].data)) for each in found.inputs]
    return tensors, found.id, found.parameters, found.scheduling, found.outputs, found.binary_bytes


def generation(text: memoryview) -> object:
    found = read_generate_request(text, SIGNATURE, LIMIT)
    tensors = [(name, each.shape, bytes(each.data)) for name, each in found.inputs.items()]
    return found.id, tensors, found.parameters


@given(text=requests())
@settings(max_examples=250, deadline=None)
@example(b'{"inputs":[{"name":"A","datatype":"FP32","shape":[2],"data":[1,-0]}]}')
@example(b'{"inputs":[{"name":"A","datatype":"UINT8","shape":[2],"data":[1,256]}]}')
def test_requests_are_read_alike(text: bytes) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        ours, reference = both_ways(plan, text, monkeypatch)
    assert repr(ours) == repr(reference)


@given(text=generations())
@settings(max_examples=150, deadline=None)
def test_generate_requests_are_read_alike(text: bytes) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        ours, reference = both_ways(generation, text, monkeypatch)
    assert repr(ours) == repr(reference)


def request(data: str, datatype: str = "FP32", count: int = 3, more: str = "") -> bytes:
    given = f'{{"name":"A","datatype":"{datatype}","shape":[{count}],"data":{data}}}'
    return f'{{"inputs":[{given}]{more}}}'.encode()


def deferred(text: bytes) -> bool:
    """Whether the array of the only input was left in the text."""
    document = read_document(text)
    return document is not None and type(document["inputs"][0]["data"]) is JsonArray


def test_arrays_of_numbers_do_not_become_objects() -> None:
    assert deferred(request("[1,2,3]"))
    assert deferred(request("[[[1],[2]],[3]]", more=',"id":"a"'))
    members = read_members(b'{"F":[1,2],"id":"a","n":1}')
    assert members is not None
    assert [type(value) for _, value in members] == [JsonArray, str, int]


@pytest.mark.parametrize("datatype", [FP32, FP64, INT8, INT32, INT64, UINT8, UINT32, UINT64], ids=str)
def test_numbers_come_in_an_array_of_their_datatype(datatype: Datatype) -> None:
    document = read_document(request("[1,[2],100]", str(datatype)))
    assert document is not None
    numbers = document["inputs"][0]["data"].numbers(datatype, 3)
    assert numbers.dtype == datatype.numpy
    assert numbers.tolist() == [1, 2, 100]
    assert not numbers.flags.writeable
    assert document["inputs"][0]["data"].numbers(datatype, 2) is None


@pytest.mark.parametrize(
    "text",
    [
        request("[NaN,1,2]"),
        request("[1,2,36893488147419103232]"),
        request("[1,2,3]", more=',"inputs":[]'),
        request("[1,2,3]") + b"x",
        request("[1,2,3]").replace(b'"name"', b'"data":[1],"name"'),
        request("[" * 100 + "1" + "]" * 100),
        request("[" * 100 + '1],"]","]' + "]" * 99),
        request("[1]", more="".join(f',"m{number}":1' for number in range(100))),
        b"[1]",
    ],
)
def test_what_simdjson_reads_otherwise_is_left_to_orjson(text: bytes) -> None:
    assert read_document(text) is None


@pytest.mark.parametrize("text", [b'{"F":[1],"F":[2]}', b'{"F":[1],"parameters":{"a":1}}', b"[1]", b"{}"])
def test_generate_requests_with_objects_or_repeated_names_are_left_to_json(text: bytes) -> None:
    assert read_members(text) is None


def test_strings_are_left_to_orjson(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert not deferred(request(json.dumps(["ab"] * 5000), "BYTES"))
    assert deferred(request(json.dumps([0.5] * 5000)))


def test_nesting_is_read_to_the_same_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    for depth in range(97, 103):
        text = request("[" * depth + "7" + "]" * depth, count=1)
        ours, reference = both_ways(plan, text, monkeypatch)
        assert ours == reference
        assert ("exceeds maximum allowed limit (100)" in repr(ours)) == (depth > 100)
    assert deferred(request(json.dumps([[[number] for number in range(200)]])))


def test_numbers_of_an_image_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    integers = random.integers(-(2**63), 2**63 - 1, 5000, endpoint=True)
    doubles = random.integers(0, 2**64, 20_000, np.uint64).view(np.float64)
    doubles = doubles[np.isfinite(doubles)]
    for datatype, values in (("INT64", integers), ("FP64", doubles)):
        tensor = read_plan(request(json.dumps(values.tolist()), datatype, len(values)), LIMIT).inputs[0][-1]
        assert tensor is not None
        assert bytes(tensor.data) == values.tobytes()
        assert not tensor.array.flags.writeable


@pytest.mark.parametrize(
    ("datatype", "value", "text"),
    [
        (
            "FP32",
            "1e39",
            "value out of range: input 'A' of datatype FP32 has 1e+39 at position [1], expected a number",
        ),
        (
            "FP32",
            "3.4028235677973366e38",
            "value out of range: input 'A' of datatype FP32 has 3.4028235677973366e+38",
        ),
        (
            "INT8",
            "-129",
            "value out of range: input 'A' of datatype INT8 has -129 at position [1], expected an integer",
        ),
        (
            "UINT64",
            "-1",
            "non-unsigned-integer as unsigned-integer: input 'A' of datatype UINT64 has -1 at position",
        ),
        (
            "INT64",
            "9223372036854775808",
            "non-signed-integer as signed-integer: input 'A' of datatype INT64 has 9",
        ),
        (
            "INT64",
            "2.0",
            "attempt to access JSON non-signed-integer as signed-integer: input 'A' of datatype INT64",
        ),
        ("FP32", "true", "attempt to access JSON non-number as double: input 'A' of datatype FP32 has true"),
    ],
)
def test_a_number_that_the_datatype_cannot_hold_is_told(
    datatype: str, value: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = request(f"[1,{value},3]", datatype)
    assert deferred(body)
    ours, reference = both_ways(plan, body, monkeypatch)
    assert ours == reference
    assert text in str(ours)


def test_floats_are_rounded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # half-way between two floats as doubles, and a little above; the text is nearer to the upper than its double is
    texts = ["1.00000005960464477539062500000000001", "1.000000059604644775390625", "1.0000000596046449"]
    ours, reference = both_ways(plan, request(f"[{','.join(texts)}]"), monkeypatch)
    assert ours == reference


def test_references_to_arrays_are_all_given_back() -> None:
    text = request("[1,2,3]")
    first = read_plan(text, LIMIT).inputs[0][-1]
    assert first is not None
    before = sys.getrefcount(text)
    for _ in range(100):
        read_plan(text, LIMIT)
    assert sys.getrefcount(text) == before
    assert first.array.tolist() == [1, 2, 3]
