"""What is said of two answers to one request."""

import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halimede.hosting.routing.agreement import MOST_OUTPUTS, ShadowCounts
from halimede.hosting.shadows.answers import Answer, tensors_of
from halimede.hosting.shadows.comparison import OTHER, SAME, Compared, compare, note
from halimede.hosting.shadows.settings import Tolerance

BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="
TOLERANCE = Tolerance(absolute=1e-5, relative=1e-3)


def json_answer(*outputs: dict[str, Any], **more: Any) -> Answer:
    return Answer({"content-type": "application/json"}, json.dumps({"outputs": outputs, **more}).encode())


def output(
    data: Any, name: str = "y", datatype: str = "FP32", shape: list[int] | None = None
) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape or list(np.shape(data)), "data": data}


def binary_answer(datatype: str, shape: list[int], data: bytes, *, header: bool = False) -> Answer:
    described = {
        "name": "y",
        "datatype": datatype,
        "shape": shape,
        "parameters": {"binary_data_size": len(data)},
    }
    head = json.dumps({"outputs": [described]}).encode()
    if header:
        headers = {
            "content-type": "application/octet-stream",
            "inference-header-content-length": str(len(head)),
        }
    else:
        headers = {"content-type": f"{BINARY}{len(head)}"}
    return Answer(headers, head + data)


def strings(*texts: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def compared(primary: Answer, shadow: Answer) -> Compared:
    return compare(primary, shadow, TOLERANCE)


def test_equal_tensors_agree_whatever_else_the_answers_say() -> None:
    whole, outputs = compared(
        json_answer(output([[1.0, 2.0]]), id="1", model_version="1"),
        json_answer(output([[1.0, 2.0]]), id="2", model_version="2"),
    )
    assert outputs["y"] == whole == (True, 1.0, 0.0, 0.0, 1.0)


def test_floats_that_are_as_good_as_equal_agree_and_the_difference_is_told() -> None:
    _, outputs = compared(json_answer(output([1.0, 1000.0])), json_answer(output([1.000001, 1000.5])))
    agrees, equal, absolute, relative, _ = outputs["y"]
    assert (agrees, equal) == (True, 1.0)
    assert absolute == pytest.approx(0.5, rel=1e-3)
    assert relative == pytest.approx(0.0005, rel=1e-2)


def test_share_of_the_elements_that_are_equal() -> None:
    whole, outputs = compared(
        json_answer(output([1.0, 2.0, 3.0, 4.0]), output([1], "n", "INT64")),
        json_answer(output([1.0, 2.0, 3.0, 8.0]), output([1], "n", "INT64")),
    )
    assert outputs["y"] == (False, 0.75, 4.0, 0.5, 1.0)
    assert outputs["n"] == (True, 1.0, 0.0, 0.0, None)
    assert whole == (False, 0.8, 4.0, 0.5, 1.0)


def test_rows_whose_largest_number_is_at_the_same_place() -> None:
    whole, outputs = compared(
        json_answer(output([[0.1, 0.9], [0.6, 0.4]]), output([1.0, 2.0, 3.0], "z"), output([1.0], "one")),
        json_answer(output([[0.2, 0.8], [0.3, 0.7]]), output([1.0, 2.0, 3.0], "z"), output([1.0], "one")),
    )
    assert (outputs["y"].top, outputs["z"].top, outputs["one"].top, whole.top) == (0.5, 1.0, None, 0.75)
    counts = ShadowCounts()
    note(Compared(whole, outputs), counts)
    assert (counts.whole.top, counts.outputs["y"].top, counts.outputs["one"].top) == ([0.75], [0.5], [])


def test_integers_are_equal_or_not() -> None:
    _, outputs = compared(
        json_answer(output([100_000, 5], datatype="INT64")),
        json_answer(output([100_001, 5], datatype="INT64")),
    )
    assert outputs["y"].agrees is False
    assert outputs["y"].equal == 0.5
    assert outputs["y"].absolute == 1.0


def test_tensors_as_bytes_are_compared_with_tensors_as_json() -> None:
    data = np.array([1.5, -2.0], np.float32).tobytes()
    for header in (False, True):
        _, outputs = compared(
            json_answer(output([1.5, -2.0])), binary_answer("FP32", [2], data, header=header)
        )
        assert outputs["y"] == (True, 1.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("datatype", "one", "other", "equal"),
    [
        ("BOOL", b"\0\1", b"\0\0", 0.5),
        ("FP16", np.array([1, 2], np.float16).tobytes(), np.array([1, 3], np.float16).tobytes(), 0.5),
        ("BF16", b"\x80\x3f\x00\x40", b"\x80\x3f\x40\x40", 0.5),
        ("UINT64", struct.pack("<2Q", 0, 2**64 - 1), struct.pack("<2Q", 0, 2**64 - 2), 0.5),
        ("BYTES", strings(b"cat", b"\xff"), strings(b"dog", b"\xff"), 0.5),
    ],
)
def test_every_datatype(datatype: str, one: bytes, other: bytes, equal: float) -> None:
    first, second = binary_answer(datatype, [2], one), binary_answer(datatype, [2], other)
    assert compared(first, first).outputs["y"][:2] == (True, 1.0)
    assert compared(first, second).outputs["y"][:2] == (False, equal)


def test_numbers_that_are_none() -> None:
    def of(*numbers: float) -> Answer:
        return binary_answer("FP64", [len(numbers)], np.array(numbers).tobytes())

    assert compared(of(math.nan, math.inf), of(math.nan, math.inf)).outputs["y"][:4] == (
        True,
        1.0,
        None,
        None,
    )
    assert compared(of(math.nan), of(1.0)).outputs["y"][:4] == (False, 0.0, None, None)
    assert compared(of(math.inf), of(-math.inf)).outputs["y"][:4] == (False, 0.0, None, None)
    largest = compared(of(1.7e308, 1.0), of(-1.7e308, 1.0)).outputs["y"]
    assert largest == (False, 0.5, 0.0, 0.0, 0.0)


def test_outputs_that_only_one_answer_has_do_not_agree() -> None:
    whole, outputs = compared(json_answer(output([1.0])), json_answer(output([1.0]), output([1.0], "z")))
    assert (outputs["y"].agrees, outputs["z"], whole.agrees) == (True, OTHER, False)


def test_other_shapes_and_datatypes_do_not_agree() -> None:
    first = json_answer(output([[1.0, 2.0]]))
    assert compared(first, json_answer(output([1.0, 2.0]))).outputs["y"] == OTHER
    assert compared(first, json_answer(output([[1.0, 2.0]], datatype="FP64"))).outputs["y"] == OTHER


def test_what_is_no_tensor_is_compared_byte_for_byte() -> None:
    def csv(text: bytes) -> Answer:
        return Answer({"content-type": "text/csv"}, text)

    assert compared(csv(b"1,2\n"), csv(b"1,2\n")) == (SAME, {})
    assert compared(csv(b"1,2\n"), csv(b"1,3\n")) == (OTHER, {})
    assert compared(json_answer(output([1.0])), csv(b"1.0")) == (OTHER, {})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"outputs": 1}',
        b'{"outputs": [1]}',
        b'{"outputs": [{"name": "y", "datatype": "FP99", "shape": [1], "data": [1]}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": ["a"], "data": [1]}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": ["a"]}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [[1], [1, 2]]}]}',
        b'{"outputs": [{"name": "y", "datatype": "UINT8", "shape": [1], "data": [300]}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": -1}}]}',
        b'{"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "parameters": 5, "data": [1]}]}',
    ],
)
def test_an_answer_that_cannot_be_read_is_no_tensor(body: bytes) -> None:
    assert tensors_of(Answer({}, body)) is None


@pytest.mark.parametrize("length", ["-1", "x", "1000"])
def test_a_wrong_length_of_the_json(length: str) -> None:
    assert tensors_of(Answer({"content-type": BINARY + length}, b"{}")) is None


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=64), st.sampled_from(["BYTES", "FP32", "BF16", "BOOL", "INT64"]))
def test_any_bytes_are_read_or_are_no_tensor(data: bytes, datatype: str) -> None:
    answer = binary_answer(datatype, [len(data)], data)
    result = compared(answer, answer)
    assert result.whole.agrees


def test_so_many_outputs_are_counted_by_name() -> None:
    many = [output([1.0], f"y{number}") for number in range(MOST_OUTPUTS + 5)]
    counts = ShadowCounts()
    for _ in range(2):
        note(compared(json_answer(*many), json_answer(*many)), counts)
    assert len(counts.outputs) == MOST_OUTPUTS
    assert counts.whole.compared == counts.outputs["y0"].agreed == 2
    both = ShadowCounts() + counts + counts
    assert both.whole.equal == [1.0] * 4
    assert both.outputs["y1"].compared == 4
