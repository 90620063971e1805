import json
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core import datatypes
from halimede.core.tensors import encode_bytes
from halimede.core.traces import TracedTensor
from halimede.engine.tracing.trace_json import trace_objects

Events = list[tuple[str, int]]


def objects(
    events: Events | None,
    tensors: Sequence[TracedTensor] = (),
    *,
    number: int = 7,
    parent: int = 0,
    model: str = "m",
    request_id: str = "",
) -> Any:
    """What a reader of the file finds of a trace."""
    flat = None if events is None else [each for event in events for each in event]
    return json.loads(f"[{trace_objects((number, parent, model, 2, request_id, flat, list(tensors), None))}]")


def test_a_trace_begins_with_what_it_is_of() -> None:
    assert objects([], request_id="r") == [
        {"id": 7, "model_name": "m", "model_version": 2, "request_id": "r"},
    ]


def test_a_trace_that_another_caused_names_its_parent() -> None:
    assert objects([], parent=3) == [{"id": 7, "model_name": "m", "model_version": 2, "parent_id": 3}]


def test_each_time_is_an_object_and_they_are_in_order() -> None:
    found = objects([("REQUEST_END", 30), ("QUEUE_START", 20), ("REQUEST_START", 10)])
    assert found[1:] == [
        {"id": 7, "timestamps": [{"name": "REQUEST_START", "ns": 10}]},
        {"id": 7, "timestamps": [{"name": "QUEUE_START", "ns": 20}]},
        {"id": 7, "timestamps": [{"name": "REQUEST_END", "ns": 30}]},
    ]


def tensor(datatype: datatypes.Datatype, content: bytes, *shape: int) -> TracedTensor:
    return TracedTensor("TENSOR_QUEUE_INPUT", "x", datatype.name, shape, content)


def test_without_times_there_are_only_tensors() -> None:
    assert objects(None, (tensor(datatypes.INT32, struct.pack("<2i", -1, 2), 1, 2),)) == [
        {
            "id": 7,
            "activity": "TENSOR_QUEUE_INPUT",
            "tensor": {"name": "x", "data": "-1,2", "shape": "1,2", "dtype": "INT32"},
        }
    ]


def test_nothing_is_no_object() -> None:
    assert trace_objects((1, 0, "m", 1, "r", None, [], None)) == ""


@pytest.mark.parametrize(
    ("datatype", "content", "text"),
    [
        (datatypes.BOOL, b"\1\0", "1,0"),
        (datatypes.UINT64, struct.pack("<Q", (1 << 64) - 1), "18446744073709551615"),
        (datatypes.FP32, struct.pack("<3f", 1.5, 2, 1 / 3), "1.5,2,0.333333"),
        (datatypes.FP64, struct.pack("<3d", 1e-9, float("-inf"), 12345678.9), "1e-09,-inf,1.23457e+07"),
        (datatypes.FP16, struct.pack("<e", -0.5), "-0.5"),
        (datatypes.BF16, b"\x80\x3f\x00\xc0", "1,-2"),
        (datatypes.BYTES, encode_bytes([b"a", b"", b'"\n']), '"a","","\\"\\n"'),
        (datatypes.BYTES, encode_bytes([b"\xff"]), '"\\ufffd"'),
        (datatypes.FP32, b"", ""),
    ],
)  # fmt: skip
def test_elements_are_written_as_triton_does(datatype: datatypes.Datatype, content: bytes, text: str) -> None:
    (found,) = objects(None, (tensor(datatype, content, 1),))
    assert found["tensor"]["data"] == text


@pytest.mark.parametrize("datatype", [datatypes.BYTES, datatypes.FP32])
def test_contents_that_are_not_what_they_should_be_are_left_out(datatype: datatypes.Datatype) -> None:
    (found,) = objects(None, (tensor(datatype, b"\xff\xff\xff", 1),))
    assert found["tensor"]["data"] == ""


@given(
    st.lists(st.tuples(st.text(), st.integers(0, 1 << 63))),
    st.text(),
    st.text(),
    st.lists(st.tuples(st.sampled_from(datatypes.ALL), st.text(), st.binary())),
)
def test_whatever_is_recorded_can_be_read_back(
    events: Events, model: str, request_id: str, tensors: list[tuple[datatypes.Datatype, str, bytes]]
) -> None:
    contents = tuple(TracedTensor("A", name, kind.name, (1,), content) for kind, name, content in tensors)
    identity, *rest = objects(events, contents, model=model, request_id=request_id)
    assert identity["model_name"] == model
    assert identity.get("request_id", "") == request_id
    times = [each["timestamps"][0] for each in rest[: len(events)]]
    assert [each["ns"] for each in times] == sorted(ns for _, ns in events)
    assert sorted(each["name"] for each in times) == sorted(name for name, _ in events)
    assert [each["tensor"]["name"] for each in rest[len(events) :]] == [name for _, name, _ in tensors]
