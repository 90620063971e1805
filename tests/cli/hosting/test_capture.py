"""`halimede capture`: what was captured, read by people and machines."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import orjson
import pytest

from halimede.cli.hosting.capture import CapturedFiles, _DirectoryPlace
from halimede.cli.main import main
from halimede.hosting.capture.records import CaptureRecord, Payload, write_record

_ADVICE = "give a duration such as 15m or 2h, or a time such as 2026-11-23T21:00"
_NOON = datetime(2026, 11, 23, 12, 0, 5, tzinfo=UTC)
_ASKED = b'{"inputs":[{"name":"image","datatype":"UINT8","shape":[2,6],"data":[1,2,3,4,5,6,7,8,9,10,11,12]}]}'


def _binary(values: list[float], name: str = "probability") -> Payload:
    data = np.array(values, np.float32).tobytes()
    output = {
        "name": name,
        "datatype": "FP32",
        "shape": [len(values)],
        "parameters": {"binary_data_size": len(data)},
    }
    head = orjson.dumps({"outputs": [output]})
    kind = f"application/vnd.sagemaker-triton.binary+json;json-header-size={len(head)}"
    return Payload(head + data, kind, "BASE64")


def _write(
    directory: Path, at: datetime, *records: CaptureRecord, variant: str = "A", more: bytes = b""
) -> Path:
    path = directory / "e" / variant / f"{at:%Y/%m/%d/%H}" / f"{at:%M-%S}-000-{id(records)}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(write_record, records)) + more)
    return path


def _numbered(number: int, at: datetime) -> CaptureRecord:
    return CaptureRecord(f"event-{number}", at, Payload(b"%d" % number, "text/csv", "CSV"))


def _run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["capture", "e", *arguments])
    return int(ended.value.code or 0)


def _events(text: str) -> list[str]:
    return [json.loads(line)["event_id"] for line in text.splitlines()]


def test_records_are_shown_as_tensors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON, binary and CSV bodies alike; a long tensor by its first values."""
    first = CaptureRecord(
        "one",
        _NOON,
        Payload(_ASKED, "application/json", "JSON"),
        _binary([0.25, 1 / 3]),
        "mine\x1b",
        ("a=b",),
        "m",
    )
    text = '[{"label":"' + "x" * 50 + '","ok":true},{"label":null,"ok":false}]'
    second = CaptureRecord(
        "two",
        _NOON,
        Payload(b"1,a\n,b\n", "text/csv", "CSV"),
        Payload(text.encode(), "application/json", "JSON"),
    )
    _write(tmp_path, _NOON, first, second)
    assert _run(f"--destination={tmp_path}") == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.splitlines() == [
        r"2026-11-23 12:00:05  A  one, model m, inference id mine\x1b, attributes a=b",
        "  request   application/json, 98 bytes",
        "    image  UINT8  [2, 6]  1 2 3 4 5 6 7 8 …",
        "  response  application/vnd.sagemaker-triton.binary+json;json-header-size=102, 110 bytes",
        "    probability  FP32  [2]  0.25 0.333333",
        "2026-11-23 12:00:05  A  two",
        "  request   text/csv, 7 bytes",
        "    _c0  FP64   [2]  1 nan",
        '    _c1  BYTES  [2]  "a" "b"',
        "  response  application/json, 100 bytes",
        '    label  BYTES  [2]  "' + "x" * 40 + '…" -',
        "    ok     BOOL   [2]  true false",
    ]


def test_machines_get_all_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each record."""
    strings = b'{"inputs":[{"name":"s","datatype":"BYTES","shape":[1],"data":["t"]}]}'
    record = CaptureRecord("one", _NOON, Payload(strings, "application/json", "JSON"), Payload(b"\0", "x/y"))
    _write(tmp_path, _NOON, record)
    assert _run(f"--destination={tmp_path}", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "time": "2026-11-23T12:00:05+00:00",
        "variant": "A",
        "event_id": "one",
        "inference_id": "",
        "custom_attributes": [],
        "target_model": "",
        "source": "",
        "request": {
            "content_type": "application/json",
            "bytes": 69,
            "tensors": [{"name": "s", "datatype": "BYTES", "shape": [1], "data": ["t"]}],
        },
        "response": {
            "content_type": "x/y",
            "bytes": 1,
            "error": "1 bytes of content type 'x/y' are neither tensors nor CSV nor JSON",
        },
    }


def test_what_cannot_be_read_is_told_and_the_rest_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that was cut off on standard error, a body in its place."""
    bad = CaptureRecord("bad", _NOON, _binary([1.0]), Payload(b"\x89", "image/png"))
    line = write_record(bad)
    path = _write(tmp_path, _NOON, bad, more=line[:50])
    assert _run(f"--destination={tmp_path}") == 0
    shown = capsys.readouterr()
    assert "    probability  FP32  [1]  1\n" in shown.out
    assert "    cannot be decoded: 1 bytes of content type 'image/png' are neither" in shown.out
    assert shown.err.startswith(f"{path}, line 2 is no record: ")
    assert shown.err.count("\n") == 1


def test_the_last_ones_are_shown_of_all_variants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of their times; ten of them, or as many as are wanted."""
    for number in range(12):
        at = _NOON + timedelta(minutes=20 * number)
        _write(tmp_path, at, _numbered(number, at), variant="AB"[number % 2])
    for arguments, expected in (
        ((), range(2, 12)),
        (("--last=3",), range(9, 12)),
        (("-n", "2", "--variant=A"), (8, 10)),
        (("--since=2026-11-23T15:20:00Z",), range(10, 12)),
        (("--since=2026-11-23T12:00:00Z", "--last=1"), (11,)),
        (("--since=9999d",), range(12)),
    ):
        assert _run(f"--destination={tmp_path}", "--json", *arguments) == 0
        assert _events(capsys.readouterr().out) == [f"event-{number}" for number in expected], arguments


def test_nothing_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is no error."""
    assert _run(f"--destination={tmp_path}", "--variant=A") == 0
    assert capsys.readouterr().err == f"{tmp_path}/e/A: there are no records\n"


def test_new_files_are_found_and_others_are_not_read_again(tmp_path: Path) -> None:
    """Also files of other variants, and some that come a little late."""
    files = CapturedFiles(_DirectoryPlace(tmp_path), "e", "")
    _write(tmp_path, _NOON, _numbered(0, _NOON))
    assert [each.record.event_id for each in files.records(None, 10)] == ["event-0"]
    assert files.records(None, None) == []
    for number, minutes in ((1, 70), (2, 65), (3, 200)):
        at = _NOON + timedelta(minutes=minutes)
        _write(tmp_path, at, _numbered(number, at), variant="AB"[number == 2])
        found = files.records(None, None)
        assert [each.record.event_id for each in found] == [f"event-{number}"]
    assert files.records(None, None) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--since=yesterday",),
            f"Invalid value for '--since': 'yesterday' is no time; {_ADVICE}",
        ),
        (("--destination=/no/where",), "--destination: '/no/where' is no directory, nor s3://BUCKET/PREFIX"),
        (("--last=0",), "Invalid value for '-n' / '--last': 0 is not in the range x>=1."),
    ],
)
def test_wrong_usage_is_told_in_one_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the status of wrong usage."""
    assert _run(*arguments) == 2
    assert capsys.readouterr().err == f"halimede: {message}\n"
