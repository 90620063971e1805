"""What the model gets of each record, and what of its answer and the record is written."""

import json
from pathlib import Path
from typing import Any

import pytest

from halimede.hosting.errors import ApiError
from halimede.hosting.transform.failures import TransformError
from halimede.hosting.transform.payloads import Split
from halimede.hosting.transform.processing import Processing
from tests.hosting.transform.test_splitting import payloads

CSV, JSON, LINES = "text/csv", "application/json", "application/jsonlines"


def processing(content_type: str, *, split: str = "Line", accept: str = "", **asked: str) -> Processing:
    request: dict[str, Any] = {
        "TransformInput": {"ContentType": content_type, "SplitType": split},
        "TransformOutput": {"Accept": accept},
        "DataProcessing": asked,
    }
    made = Processing.of(request)
    assert made is not None
    return made


def refused(content_type: str, **asked: str) -> str:
    with pytest.raises(ApiError) as raised:
        processing(content_type, **asked)
    return raised.value.message


def test_nothing_is_done_unless_asked_for() -> None:
    request: dict[str, Any] = {"TransformInput": {}, "TransformOutput": {}}
    assert Processing.of(request) is None
    assert Processing.of({**request, "DataProcessing": {"InputFilter": "$", "JoinSource": "None"}}) is None


def test_an_id_column_is_kept_from_the_model_and_joined_with_its_answer(tmp_path: Path) -> None:
    made = processing(CSV, InputFilter="$[1:]", OutputFilter="$[0,-1]", JoinSource="Input")
    [payload] = payloads(b'a,1,2\n"b,c",3,4\n', tmp_path, Split("Line", processing=made))
    assert payload.body == b"1,2\n3,4"
    assert made.after(payload.records, b"0.5\n0.7\n") == b'a,0.5\n"b,c",0.7\n'


def test_indexes_and_slices_can_be_mixed() -> None:
    made = processing(CSV, OutputFilter="$[0,5:]", JoinSource="Input")
    assert made.after([b"1,2,3,4,5,6"], b"7") == b"1,6,7\n"


def test_json_lines_are_joined_below_a_member() -> None:
    made = processing(
        LINES, InputFilter="$.features", OutputFilter="$['id','SageMakerOutput']", JoinSource="Input"
    )
    record = b'{"id": 7, "features": [1, 2]}'
    assert made.before(record) == b"[1,2]"
    assert made.after([record], b'{"p": 0.5}\n') == b'{"id":7,"SageMakerOutput":{"p":0.5}}\n'
    assert processing(LINES, JoinSource="Input").after([b"[1]"], b"2") == (
        b'{"SageMakerInput":[1],"SageMakerOutput":2}\n'
    )


def test_json_objects_are_records_as_a_whole() -> None:
    made = processing(JSON, split="None", JoinSource="Input")
    document = json.dumps({"a": 1}, indent=1).encode()
    assert made.records(document) == [document]
    assert made.after([document], b'{\n"b": 2\n}') == b'{"a":1,"SageMakerOutput":{"b":2}}'


def test_rows_of_a_csv_object_that_is_not_split_are_records() -> None:
    made = processing(CSV, split="None", InputFilter="$[0]")
    assert made.records(b"1,2\n3,4\n") == [b"1,2", b"3,4"]
    assert made.before(b"1,2") == b"1"


def test_a_list_of_answers_is_one_for_each_record() -> None:
    made = processing(JSON, OutputFilter="$.p")
    assert made.after([b"1", b"2"], b'[{"p": 1},\n{"p": 2}]') == b"1\n2\n"
    assert made.after([b"1", b"2"], b'{"p": 1}\n{"p": 2}') == b"1\n2\n"


def test_members_after_a_dot_as_aws_writes_them() -> None:
    made = processing(LINES, OutputFilter="$.a.['b','c']")
    assert made.after([b"1"], b'{"a": {"b": 1, "c": 2, "d": 3}}') == b'{"b":1,"c":2}\n'
    assert processing(LINES, OutputFilter="$.a[*].b").after([b"1"], b'{"a": [{"b": 1}]}') == b"[1]\n"


@pytest.mark.parametrize(
    ("made", "records", "answer", "text"),
    [
        (processing(CSV, OutputFilter="$[5]"), [b"1"], b"1,2", r"OutputFilter '\$\[5\]' selects nothing"),
        (processing(CSV, JoinSource="Input"), [b"1", b"2"], b"1", "has 1 lines for 2 records"),
        (processing(LINES, JoinSource="Input"), [b"1"], b"{", "the model's answer is no JSON Lines"),
        (processing(LINES, JoinSource="Input"), [b"{"], b"1", "a record is no JSON Lines"),
        (processing(CSV, OutputFilter="$[0]"), [b"1"], b"\xff", "the model's answer is no CSV"),
    ],
)
def test_records_that_do_not_fit(made: Processing, records: list[bytes], answer: bytes, text: str) -> None:
    with pytest.raises(TransformError, match=text):
        made.after(records, answer)


def test_records_that_the_filter_selects_nothing_of() -> None:
    with pytest.raises(TransformError, match=r"InputFilter '\$\.features' selects nothing of a record"):
        processing(LINES, InputFilter="$.features").before(b"{}")


def test_what_is_impossible_is_refused() -> None:
    assert "'$[' is no JSONPath" in refused(CSV, InputFilter="$[")
    assert "'features' is no JSONPath: it has to begin with $" in refused(CSV, OutputFilter="features")
    assert "not RecordIO" in refused(CSV, split="RecordIO", JoinSource="Input")
    assert "needs TransformInput.ContentType to be one of text/csv, application/json" in refused(
        "image/png", JoinSource="Input"
    )
    assert "needs TransformOutput.Accept" in refused(CSV, accept="image/png", JoinSource="Input")
    assert "records in CSV cannot be joined with answers in JSON" in refused(
        CSV, accept=JSON, JoinSource="Input"
    )
