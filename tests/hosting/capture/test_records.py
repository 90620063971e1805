"""What is captured can be read back, to the byte and as arrays, whatever kind of body it was."""

import json
from contextlib import suppress
from datetime import UTC, datetime

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.core.datatypes import ALL, BF16, BOOL, BYTES, FP16, FP32, Datatype
from halimede.core.tensors import Tensor, encode_bytes
from halimede.hosting.capture.payloads import UndecodableError
from halimede.hosting.capture.records import CaptureRecord, Payload, read_records, write_record

_NOW = datetime(2026, 11, 23, 21, 5, 7, tzinfo=UTC)
_BINARY = "application/vnd.sagemaker-triton.binary+json;json-header-size="

_payloads = st.builds(
    Payload,
    st.binary() | st.text().map(str.encode),
    st.text(st.characters(min_codepoint=32, max_codepoint=126)),
    st.sampled_from(["CSV", "JSON", "BASE64"]),
)


def _read_one(line: bytes) -> CaptureRecord:
    (record,) = read_records([line])
    return record


@given(st.none() | _payloads, st.none() | _payloads, st.lists(st.text(), max_size=2), st.text())
def test_what_is_written_is_read_back_to_the_byte(
    asked: Payload | None, answered: Payload | None, attributes: list[str], inference_id: str
) -> None:
    """Bodies that are no text, though they were to be, among them."""
    record = CaptureRecord("1", _NOW, asked, answered, inference_id, tuple(attributes), "m.tar.gz")
    line = write_record(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    read = _read_one(line)
    assert read.time == _NOW
    assert (read.inference_id, read.custom_attributes) == (inference_id, tuple(attributes))
    for before, after in ((asked, read.input), (answered, read.output)):
        assert (before is None) == (after is None)
        if before is not None and after is not None:
            assert (after.body, after.content_type) == (before.body, before.content_type)


def test_a_record_is_as_sagemaker_writes_it() -> None:
    """Members, their names and their order."""
    asked, answered = Payload(b"1,2", "text/csv", "CSV"), Payload(b"\x00\xff", "image/x", "BASE64")
    line = write_record(CaptureRecord("e", _NOW, asked, answered, "mine", ("a=b",)))
    assert json.loads(line) == {
        "captureData": {
            "endpointInput": {
                "observedContentType": "text/csv",
                "mode": "INPUT",
                "data": "1,2",
                "encoding": "CSV",
            },
            "endpointOutput": {
                "observedContentType": "image/x",
                "mode": "OUTPUT",
                "data": "AP8=",
                "encoding": "BASE64",
            },
        },
        "eventMetadata": {
            "eventId": "e",
            "inferenceId": "mine",
            "customAttributes": ["a=b"],
            "inferenceTime": "2026-11-23T21:05:07Z",
        },
        "eventVersion": "0",
    }


def test_lines_that_are_no_records_are_told_and_the_others_read() -> None:
    """As of a file that was cut off in the middle."""
    good = write_record(CaptureRecord("1", _NOW, Payload(b"{}")))
    no_data = good.replace(b'"data"', b'"dada"')
    bad_data = good.replace(b'"e30="', b'"e3"')
    lines = [good, b"\n", good[: len(good) // 2], b"[]", no_data, bad_data, good]
    told: list[tuple[int, str]] = []
    records = list(read_records(lines, lambda number, why: told.append((number, why))))
    assert [record.event_id for record in records] == ["1", "1"]
    assert [number for number, _ in told] == [3, 4, 5, 6]
    assert told[2][1] == "it has no member 'data'"
    assert told[3][1].startswith("its data are not BASE64: ")


def _array(datatype: Datatype, rng: np.random.Generator) -> np.ndarray:
    if datatype is BYTES:
        values = np.empty((2, 3), np.object_)
        values[:] = [[b"", b"a", b"\xff\x00"], [b"b", "ü".encode(), b"c" * 300]]
        return values
    if datatype is BOOL:
        return rng.integers(0, 2, (2, 3)).astype(np.bool_)
    if datatype is BF16:
        return np.array([[0x3F80, 0xC000, 0], [0x4040, 0x7F80, 0x3F00]], np.uint16)
    return (rng.random((2, 3)) * 100).astype(datatype.numpy)


@pytest.mark.parametrize(
    "media_type",
    [
        "application/vnd.sagemaker-triton.binary+json ; json-header-size=",
        "APPLICATION/VND.SageMaker-Triton.Binary+JSON;JSON-header-size=",
        "application/vnd.sagemaker-triton.binary+json;charset=utf-8;json-header-size=",
    ],
)
def test_binary_bodies_are_known_however_their_content_type_is_written(media_type: str) -> None:
    assert list(Payload(_HEAD + b"12345678", f"{media_type}{len(_HEAD)}").tensors()) == ["x"]


@pytest.mark.parametrize("key", ["inputs", "outputs"])
def test_tensors_of_every_datatype_come_back_from_binary_bodies(key: str) -> None:
    """Beside one that came as JSON."""
    rng = np.random.default_rng(1)
    arrays = {datatype: _array(datatype, rng) for datatype in ALL}
    entries, parts = [], []
    for datatype, array in arrays.items():
        data = Tensor.from_array(datatype, array).data
        parts.append(bytes(data))
        parameters = {"binary_data_size": len(data)}
        entries.append(
            {"name": datatype.name, "datatype": datatype.name, "shape": [2, 3], "parameters": parameters}
        )
    entries.insert(1, {"name": "json", "datatype": "INT8", "shape": [2], "data": [1, -2]})
    head = orjson.dumps({key: entries})
    body = b"".join((head, *parts))
    record = CaptureRecord("1", _NOW, Payload(body, f"{_BINARY}{len(head)}"))
    payload = _read_one(write_record(record)).input
    assert payload is not None
    values = payload.values()
    assert list(values) == [entry["name"] for entry in entries]
    assert values["json"].array.tolist() == [1, -2]
    for datatype, array in arrays.items():
        datatype_name, read = values[datatype.name]
        assert datatype_name == datatype.name
        assert read.shape == (2, 3)
        if datatype is BF16:
            assert read.dtype == np.float32
            assert read.tolist() == [[1.0, -2.0, 0.0], [3.0, float("inf"), 0.5]]
        else:
            assert read.dtype == datatype.numpy
            assert read.tolist() == array.tolist()


def test_tensors_come_back_from_json() -> None:
    """NaN among them, which the server writes as a bare token."""
    body = b'{"model_name":"m","outputs":[{"name":"p","datatype":"FP32","shape":[1,2],"data":[NaN,0.5]},'
    body += b'{"name":"l","datatype":"BYTES","shape":[1],"data":["seven"]}]}'
    arrays = Payload(body, "application/json", "JSON").tensors()
    assert arrays["p"].dtype == np.float32
    assert arrays["p"].shape == (1, 2)
    assert np.isnan(arrays["p"][0, 0])
    assert arrays["l"].tolist() == [b"seven"]


@pytest.mark.parametrize("content_type", ["", "application/octet-stream", "application/json; charset=utf-8"])
def test_json_is_known_by_how_it_begins(content_type: str) -> None:
    """Servers take it whatever it is called."""
    body = b'{"inputs":[{"name":"x","datatype":"INT32","shape":[1],"data":[4]}],"outputs":[{"name":"y"}]}'
    assert Payload(body, content_type).tensors()["x"].tolist() == [4]


def test_columns_of_csv_are_numbers_where_all_their_cells_are() -> None:
    """Empty cells are missing."""
    body = b'1,0.5,"a,b",\r\n2, 1e3 ,,7\r\n\r\n-3,nan,1_0,8\r\n'
    values = Payload(body, "text/csv; charset=utf-8").values()
    assert [(name, each.datatype) for name, each in values.items()] == [
        ("_c0", "INT64"),
        ("_c1", "FP64"),
        ("_c2", "BYTES"),
        ("_c3", "FP64"),
    ]
    assert values["_c0"].array.tolist() == [1, 2, -3]
    np.testing.assert_array_equal(values["_c1"].array, [0.5, 1000, np.nan])
    assert values["_c2"].array.tolist() == ["a,b", None, "1_0"]
    np.testing.assert_array_equal(values["_c3"].array, [np.nan, 7, 8])


def test_members_of_other_json_are_named_by_their_paths() -> None:
    """Arrays of objects become columns."""
    body = b"""{"a": {"b": 1, "c": [[1.5, 2], [3, null]]}, "text": "t", "flags": [true, false],
                "rows": [{"x": 1, "y": {"z": "p"}}, {"x": 2.5}, {"y": {"z": null}}], "odd": [1, [2]], "none": []}"""
    values = Payload(body, "application/json").values()
    assert {name: each.datatype for name, each in values.items()} == {
        "a.b": "INT64",
        "a.c": "FP64",
        "text": "BYTES",
        "flags": "BOOL",
        "rows.x": "FP64",
        "rows.y.z": "BYTES",
        "odd": "BYTES",
        "none": "BYTES",
    }
    assert values["a.b"].array.tolist() == [1]
    np.testing.assert_array_equal(values["a.c"].array, [[1.5, 2], [3, np.nan]])
    np.testing.assert_array_equal(values["rows.x"].array, [1, 2.5, np.nan])
    assert values["rows.y.z"].array.tolist() == ["p", None, None]
    assert values["odd"].array.tolist() == ["1", "[2]"]
    assert Payload(b"[[1, 2], [3, 4]]").tensors()["data"].tolist() == [[1, 2], [3, 4]]
    assert Payload(b'[{"a": 1}, {"a": 99999999999999999999}]').tensors()["a"].tolist() == [1.0, 1e20]


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"a": 1}\n{"a": 2}\n', "application/jsonlines"),
        (b'data: {"a": 1}\n\ndata: {"a": 2}\n\ndata: [DONE]\n\n', "text/event-stream; charset=utf-8"),
    ],
)
def test_json_of_many_parts_becomes_columns(body: bytes, content_type: str) -> None:
    """Lines, or the events of a stream."""
    assert Payload(body, content_type).tensors()["a"].tolist() == [1, 2]


_HEAD = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8}}]}'
_STRINGS = _HEAD.replace(b"FP32", b"BYTES")


@pytest.mark.parametrize(
    ("body", "content_type", "reason"),
    [
        (_HEAD + b"1234567", f"{_BINARY}{len(_HEAD)}", "'x' is cut off: 7 of 8 bytes"),
        (_HEAD + b"123456789", f"{_BINARY}{len(_HEAD)}", "1 bytes follow the last tensor"),
        (
            _HEAD[:50],
            f"{_BINARY}{len(_HEAD)}",
            "the body has 50 bytes, which cannot begin with 91 bytes of JSON",
        ),
        (
            b"1234",
            f"{_BINARY}0",
            "the body is one tensor without its datatype and shape (json-header-size=0)",
        ),
        (
            _HEAD.replace(b"[2]", b"[3]") + bytes(8),
            f"{_BINARY}{len(_HEAD)}",
            "ValueError: cannot reshape array of size 2 into shape (3,)",
        ),
        (
            _STRINGS + b"\x09\0\0\0abcd",
            f"{_BINARY}{len(_STRINGS)}",
            "expecting string of 9 bytes but only 4 bytes available",
        ),
        (b"\x89PNG", "image/png", "4 bytes of content type 'image/png' are neither tensors nor CSV nor JSON"),
        (b"", "", "0 bytes of no content type are neither tensors nor CSV nor JSON"),
        (b"1,2\n3\n", "text/csv", "row 2 has 1 values, and row 1 has 2"),
        (
            _STRINGS.replace(b"[2]", b"[99999999999]") + bytes(8),
            f"{_BINARY}{len(_STRINGS) + 10}",
            "'x' of shape [99999999999] is not in a body of 110 bytes",
        ),
        (b'{"a":' * 1020 + b"1" + b"}" * 1020, "application/json", "the JSON is nested too deeply"),
        (b"x" * 200_000, "text/csv", "Error: field larger than field limit (131072)"),
        (b'{"a": ', "application/json", None),
        (b"\xff,1", "text/csv", None),
        (_HEAD.replace(b"FP32", b"FP33"), "application/json", "'x' has the unknown datatype 'FP33'"),
    ],
)
def test_what_cannot_be_decoded_says_why(body: bytes, content_type: str, reason: str | None) -> None:
    """It is an error of its own, whatever is wrong."""
    with pytest.raises(UndecodableError) as error:
        Payload(body, content_type).tensors()
    if reason is not None:
        assert str(error.value) == reason


@given(st.binary(), st.sampled_from(["", "text/csv", "application/json", f"{_BINARY}5", "text/event-stream"]))
def test_no_body_does_anything_but_decode_or_say_why_not(body: bytes, content_type: str) -> None:
    """Bodies are whatever clients have sent."""
    try:
        arrays = Payload(body, content_type).tensors()
    except UndecodableError:
        return
    assert all(isinstance(array, np.ndarray) for array in arrays.values())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_becomes_arrays_or_says_why_not(document: object) -> None:
    """Whatever its members are."""
    with suppress(UndecodableError):
        arrays = Payload(json.dumps(document).encode(), "application/json").tensors()
        assert all(isinstance(array, np.ndarray) for array in arrays.values())


def test_strings_of_half_precision_bodies_are_not_mixed_up() -> None:
    """FP16 has no JSON form; as bytes it comes back exactly, next to strings."""
    half = np.array([0.5, -2], np.float16)
    strings = encode_bytes([b"x", b"yz"])
    entries = [
        {"name": "h", "datatype": FP16.name, "shape": [2], "parameters": {"binary_data_size": 4}},
        {"name": "s", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": len(strings)}},
        {"name": "f", "datatype": FP32.name, "shape": [0], "parameters": {"binary_data_size": 0}},
    ]
    head = orjson.dumps({"inputs": entries})
    arrays = Payload(head + half.tobytes() + strings, f"{_BINARY}{len(head)}").tensors()
    assert arrays["h"].tolist() == [0.5, -2]
    assert arrays["s"].tolist() == [b"x", b"yz"]
    assert arrays["f"].shape == (0,)
