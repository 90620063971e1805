"""`halimede baseline`: statistics and constraints of data."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from halimede.cli.main import main
from halimede.hosting.capture.records import CSV, CaptureRecord, Payload, write_record


def _run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["baseline", *arguments])
    return int(ended.value.code or 0)


def _baseline(directory: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Features of the statistics and of the constraints, by name."""
    statistics, constraints = (
        {each["name"]: each for each in json.loads((directory / f"{name}.json").read_bytes())["features"]}
        for name in ("statistics", "constraints")
    )
    return statistics, constraints


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.csv", "age,city\n31,Oslo\n42,\n17,Lima\n"),
        ("d.jsonl", '{"age": 31, "city": "Oslo"}\n{"age": 42}\n\n{"age": 17, "city": "Lima"}\n'),
        ("d.json", '[{"age": 31, "city": "Oslo"}, {"age": 42, "city": null},\n {"age": 17, "city": "Lima"}]'),
    ],
)
def test_training_data_have_their_own_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    assert _run(str(tmp_path / name), "-o", str(tmp_path / "out")) == 0
    assert capsys.readouterr().out == (
        f"3 records, 2 columns: {tmp_path}/out/statistics.json, constraints.json\n"
    )
    statistics, constraints = _baseline(tmp_path / "out")
    assert statistics["age"]["inferred_type"] == "Integral"
    assert statistics["age"]["numerical_statistics"]["mean"] == 30
    assert constraints["age"]["num_constraints"] == {"is_non_negative": True}
    assert constraints["city"]["string_constraints"] == {"domains": ["Lima", "Oslo"]}
    assert constraints["city"]["completeness"] == pytest.approx(2 / 3)


def test_rows_without_names_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("1,x\n2,y\n")
    assert _run(str(tmp_path / "d.csv"), "-o", str(tmp_path)) == 0
    assert list(_baseline(tmp_path)[0]) == ["_c0", "_c1"]
    (tmp_path / "d.csv").write_text("a,x\nb,y\n")
    assert _run(str(tmp_path / "d.csv"), "--no-header", "-o", str(tmp_path)) == 0
    assert _baseline(tmp_path)[0]["_c0"]["string_statistics"]["common"]["num_present"] == 2


def test_captured_files_of_a_directory_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = CaptureRecord(
        "e", datetime.now(UTC), Payload(b"1,2.5", "text/csv", CSV), Payload(b"0", "text/csv", CSV)
    )
    for name in ("a", "b"):
        path = tmp_path / name / "1.jsonl"
        path.parent.mkdir()
        path.write_bytes(write_record(record) + b"{cut")
    assert _run(str(tmp_path), "-o", str(tmp_path / "out")) == 0
    said = capsys.readouterr()
    assert said.out.startswith("2 records, 3 columns: ")
    assert said.err == "1.jsonl: 1 lines are no records\n" * 2
    assert list(_baseline(tmp_path / "out")[1]) == ["input._c0", "input._c1", "output._c0"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("d.csv", "", "d.csv: there are no rows"),
        ("d.csv", "a,b\n", "d.csv: there are no rows below the names of the columns"),
        ("d.csv", "a,a\n1,2\n", "d.csv: two columns have the same name"),
        ("d.csv", "a,b\n1,2,3\n", "d.csv: rows have 3 values, and there are 2 names of columns"),
        ("d.jsonl", "{cut\n", "d.jsonl: it is no JSON with a row in each line: "),
        ("d.json", "{}", "d.json: it is no array of rows"),
        ("d.json", "[", "d.json: it is no JSON: "),
        ("d.jsonl", "\n", "d.jsonl: there are no records that can be read"),
    ],
)
def test_data_that_are_none_are_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str, said: str
) -> None:
    (tmp_path / name).write_text(content)
    assert _run(str(tmp_path / name), "-o", str(tmp_path)) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"halimede: {tmp_path}/{said}")
    assert error.count("\n") == 1


def test_data_or_an_endpoint_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("-o", "x") == 2
    assert _run("d.csv", "--endpoint", "e", "-o", "x") == 2
    assert "give either DATA or --endpoint" in capsys.readouterr().err
