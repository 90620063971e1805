"""Which columns captured invocations have."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halimede.hosting.capture.records import BASE64, CSV, JSON, CaptureRecord, Payload, write_record
from halimede.hosting.monitoring.captured import END, Captured, CutOffError, head_of
from halimede.hosting.monitoring.features import InferredType
from halimede.hosting.monitoring.table import MAX_COLUMNS, Table, renamed

_TIME = datetime(2026, 3, 4, 5, 30, tzinfo=UTC)


def record(inputs: Payload | None = None, outputs: Payload | None = None) -> CaptureRecord:
    return CaptureRecord("event", _TIME, inputs, outputs)


def tensors(**arrays: Any) -> Payload:
    """KServe's JSON."""
    entries = []
    for name, array in arrays.items():
        array = np.asarray(array)
        datatype = {"f": "FP32", "i": "INT64", "U": "BYTES", "b": "BOOL"}[array.dtype.kind]
        entries.append(
            {"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.ravel().tolist()}
        )
    return Payload(orjson.dumps({"inputs": entries}), "application/json", JSON)


def binary(array: Any) -> Payload:
    head = orjson.dumps(
        {
            "outputs": [
                {
                    "name": "y",
                    "datatype": "FP32",
                    "shape": list(array.shape),
                    "parameters": {"binary_data_size": array.nbytes},
                }
            ]
        }
    )
    kind = f"application/vnd.sagemaker-triton.binary+json;json-header-size={len(head)}"
    return Payload(head + array.tobytes(), kind, BASE64)


def names(*records: CaptureRecord) -> list[str]:
    table = Table()
    for each in records:
        table.add_record(each)
    return [feature.name for feature in table.features()]


def test_rows_with_few_elements_have_a_column_for_each() -> None:
    found = names(record(tensors(x=np.zeros((2, 3))), binary(np.zeros((2, 1), np.float32))))
    assert found == ["input.x[0]", "input.x[1]", "input.x[2]", "output.y"]


def test_a_tensor_of_one_dimension_is_one_row() -> None:
    assert names(record(tensors(x=np.zeros(2)))) == ["input.x[0]", "input.x[1]"]


def test_rows_with_many_elements_are_summed_up() -> None:
    table = Table()
    table.add_record(record(binary(np.full((1, 8, 8), 2, np.float32))))
    found = {feature.name: feature for feature in table.features()}
    assert list(found) == ["input.y.mean", "input.y.std", "input.y.norm"]
    assert [feature.numbers.mean for feature in found.values() if feature.numbers] == [2.0, 0.0, 16.0]


def test_rows_of_several_sizes_are_summed_up_with_their_size() -> None:
    found = names(record(tensors(x=np.zeros(2))), record(tensors(x=np.zeros(3))))
    assert found == ["input.x.mean", "input.x.std", "input.x.norm", "input.x.size"]


def test_rows_are_summed_up_if_the_baseline_s_were() -> None:
    table = Table()
    table.add_record(record(tensors(x=np.zeros(2))))
    assert [feature.name for feature in table.features(["input.x.mean", "input.x.size"])] == [
        "input.x.mean",
        "input.x.std",
        "input.x.norm",
    ]


def test_texts_and_booleans_are_texts_and_whole_numbers_are_integral() -> None:
    table = Table()
    table.add_record(record(tensors(t=np.array(["a", "b"]), b=np.array([True]), n=np.array([[4]]))))
    found = {feature.name: feature for feature in table.features()}
    assert {name: feature.type for name, feature in found.items()} == {
        "input.t[0]": InferredType.STRING,
        "input.t[1]": InferredType.STRING,
        "input.b": InferredType.STRING,
        "input.n": InferredType.INTEGRAL,
    }
    assert found["input.b"].categories == {"true": 1}


def test_each_line_of_csv_and_of_json_is_a_row() -> None:
    table = Table()
    lines = Payload(b'{"a": 1}\n{"a": 2, "b": 0.5}\n', "application/jsonlines", JSON)
    table.add_record(record(Payload(b"1,2.5,x\n3,4.5,\n", "text/csv", CSV), lines))
    found = {feature.name: (feature.type, feature.present, feature.missing) for feature in table.features()}
    assert found == {
        "input._c0": (InferredType.INTEGRAL, 2, 0),
        "input._c1": (InferredType.FRACTIONAL, 2, 0),
        "input._c2": (InferredType.STRING, 1, 1),
        "output.a": (InferredType.INTEGRAL, 2, 0),
        "output.b": (InferredType.FRACTIONAL, 1, 1),
    }


def test_a_tensor_that_some_requests_lack_has_missing_values() -> None:
    table = Table()
    for payload in (tensors(a=np.zeros(1)), tensors(a=np.zeros(1), b=np.zeros(1)), tensors(a=np.zeros(1))):
        table.add_record(record(payload))
    found = {feature.name: (feature.present, feature.missing) for feature in table.features()}
    assert found == {"input.a": (3, 0), "input.b": (1, 2)}


def test_bodies_that_cannot_be_read_are_counted() -> None:
    table = Table()
    table.add_record(record(Payload(b"\x89PNG", "image/png"), tensors(x=np.zeros(1))))
    assert [feature.name for feature in table.features()] == ["output.x"]
    assert sum(table.undecodable.values()) == 1


def test_no_more_than_a_bounded_number_of_columns_is_kept() -> None:
    table = Table()
    table.add_record(record(tensors(**{f"x{number}": np.zeros((1, 30)) for number in range(20)})))
    assert len(table.features()) == MAX_COLUMNS
    assert len(table.left_out) == 11


@given(st.lists(st.lists(st.integers(0, 3), max_size=3), max_size=20))
def test_rows_count_for_every_column_however_they_come(shapes: list[list[int]]) -> None:
    table = Table()
    for shape in shapes:
        table.add_rows({"input.x": np.zeros((shape[0] if shape else 1, 2))}, "input.")
        if len(shape) > 1:
            table.add_rows({"input.y": np.zeros((shape[1], 1))}, "input.")
    rows = {feature.present + feature.missing for feature in table.features()}
    assert len(rows) <= 1


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([], ["input._c0", "input._c1", "output._c0"]),
        (["input._c0"], ["input._c0", "input._c1", "output._c0"]),
        (["label", "age", "income"], ["age", "income", "label"]),
        (["age", "income"], ["age", "income"]),
    ],
)
def test_columns_get_the_names_of_a_baseline_that_numbers_them(known: list[str], expected: list[str]) -> None:
    table = Table()
    table.add_record(record(Payload(b"1,2", "text/csv", CSV), Payload(b"0", "text/csv", CSV)))
    assert sorted(feature.name for feature in renamed(table.features(), known)) == sorted(expected)


def test_columns_get_the_names_of_a_baseline_that_has_members_of_json_alone() -> None:
    table = Table()
    table.add_record(record(Payload(b'{"age": 3}', "application/json", JSON)))
    assert [feature.name for feature in renamed(table.features(), ["age", "income"])] == ["age"]


# files


def line(event: str, time: datetime = _TIME) -> bytes:
    return write_record(CaptureRecord(event, time, Payload(b"1", "text/csv", CSV)))


def test_records_of_a_window_are_read_and_files_that_were_cut_off_are_skipped_over() -> None:
    captured = Captured(_TIME, _TIME.replace(hour=6))
    stream = [
        *head_of("s3://b/1.jsonl").splitlines(keepends=True),
        line("a"),
        line("before", _TIME.replace(hour=4)),
        line("cut")[:40],
        *head_of("s3://b/2.jsonl").splitlines(keepends=True),
        line("b"),
        line("after", _TIME.replace(hour=6)),
        END,
    ]
    lines = b"".join(stream).splitlines(keepends=True)
    assert [each.event_id for each in captured.records(lines)] == ["a", "b"]
    assert (captured.files, captured.unreadable, captured.outside) == (2, 1, 2)
    [example] = captured.examples
    assert example.startswith("s3://b/1.jsonl, line 3: ")


def test_a_stream_without_its_end_is_no_end_of_the_data() -> None:
    with pytest.raises(CutOffError):
        list(Captured().records([line("a")]))


@given(st.binary(max_size=200))
def test_any_bytes_are_skipped_over(junk: bytes) -> None:
    lines = b"".join([line("a"), junk.replace(b"\0", b""), head_of("f"), line("b"), END]).splitlines(
        keepends=True
    )
    found = [each.event_id for each in Captured().records(lines)]
    assert (found[0], found[-1]) == ("a", "b")


@pytest.mark.parametrize(
    "data", [b"[]", b"3", b'{"endpointInput": []}', b'{"endpointInput": {"data": 3}}', b"null"]
)
def test_lines_that_are_json_but_no_records_are_skipped_over(data: bytes) -> None:
    bad = (
        b'{"captureData": %s, "eventMetadata": {"eventId": "e", "inferenceTime": "2026-01-01T00:00:00Z"}}\n'
        % data
    )
    captured = Captured()
    assert [each.event_id for each in captured.records([bad, line("a"), END])] == ["a"]
    assert captured.unreadable == 1


def test_reasons_why_bodies_cannot_be_read_take_bounded_memory() -> None:
    """They say which datatype it is that nobody knows, which may be another one each time."""
    table = Table()
    for number in range(1_500):
        entry = {"name": "x", "datatype": f"T{number}", "shape": [1], "data": [1]}
        body = orjson.dumps({"inputs": [entry]})
        table.add_record(record(Payload(body, "application/json", JSON)))
    assert sum(table.undecodable.values()) == 1_500
    assert len(table.undecodable) <= 1_001
    assert table.undecodable["input: other reasons"] == 500
