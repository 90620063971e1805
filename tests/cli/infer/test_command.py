import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import halimede
from halimede.cli.main import main
from tests.cli.infer import models

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def server() -> Iterator[halimede.BackgroundServer]:
    with halimede.serve_in_background(
        models.double, models.mean_colour, models.greet, models.size, models.countdown
    ) as server:
        yield server


@pytest.fixture(params=["http", "grpc"])
def infer(
    server: halimede.BackgroundServer, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> Run:
    """Runs the command: exit status, standard output and error."""
    url = server.url if request.param == "http" else f"grpc://{server.grpc}"

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main(["infer", f"--url={url}", *arguments])
        told = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, told.out, told.err

    return run


def test_the_answer_is_a_table(infer: Run) -> None:
    status, out, err = infer("double", "--input", "x=[1, 2.5, 3]")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "+--------+----------+--------+----------------+",
        "| Output | Datatype | Shape  | Values         |",
        "+--------+----------+--------+----------------+",
        "| output | FP32     | [1, 3] | [[2., 5., 6.]] |",
        "+--------+----------+--------+----------------+",
    ]


def test_json_has_all_elements(infer: Run) -> None:
    _, out, _ = infer("double", "-i", "x=[[1, 2, 3], [4, 5, 6]]", "--json")
    assert json.loads(out) == {
        "output": {"datatype": "FP32", "shape": [2, 3], "data": [[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]}
    }


def test_texts_need_no_quotes(infer: Run) -> None:
    assert "['hello you hello you ']" in infer("greet", "-i", "name=you", "-i", "times=2")[1]
    assert "['hello 7 ']" in infer("greet", "-i", "name=7")[1]


def test_arrays_pictures_and_bytes_come_from_files(infer: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3)))
    (tmp_path / "x.json").write_text("[[1, 1, 1], [1, 1, 1]]")
    for suffix in ("npy", "json"):
        _, out, _ = infer("double", "-i", f"x=@{tmp_path}/x.{suffix}", "--json")
        assert json.loads(out)["output"]["data"] == [[2.0] * 3] * 2
    Image.new("RGB", (40, 20), (10, 20, 30)).save(tmp_path / "x.png")
    _, out, _ = infer("mean_colour", "-i", f"picture=@{tmp_path}/x.png", "--json")
    assert json.loads(out)["output"]["data"] == [[10.0, 20.0, 30.0]]
    (tmp_path / "x.bin").write_bytes(b"\xff" * 9)
    _, out, _ = infer("size", "-i", f"content=@{tmp_path}/x.bin", "--json")
    assert json.loads(out)["output"]["data"] == [9]


def test_each_response_of_a_stream_is_shown(infer: Run) -> None:
    _, out, _ = infer("countdown", "-i", "n=2", "--json")
    values = [np.ravel(json.loads(line)["output"]["data"]).tolist() for line in out.splitlines()]
    assert values == [[2], [1]]


def test_classes_are_shown_with_their_places(infer: Run) -> None:
    assert "[['6.000000:2']]" in infer("double", "-i", "x=[1, 2, 3]", "--classes", "1")[1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["double"], "model 'double' takes x FP32 [-1, 3]. Give what is missing, for instance: --input x="),
        (["doubel", "-i", "x=1"], "there is no model 'doubel'; did you mean 'double'? The server has countdown"),
        (["double", "-i", "xx=1"], "--input: model 'double' takes no input 'xx'; did you mean 'x'?"),
        (["double", "-i", "x"], "--input: 'x' must have the form NAME=VALUE"),
        (["double", "-i", "x=[1,2]"], "--input x: the shape is [1, 2], and the model takes [-1, 3], such as"),
        (["double", "-i", "x=[[1],[2,3]]"], "--input x: its rows are of different lengths"),
        (["double", "-i", "x=abc"], "--input x: 'abc' is no JSON; write numbers"),
        (["double", "-i", "x=@nothing.npy"], "--input x: cannot read 'nothing.npy': No such file or directory"),
        (["double", "-i", "x=@pyproject.toml"], "--input x: 'pyproject.toml' is no file that becomes FP32"),
        (["double", "-i", "x=[1,2,3]", "-o", "outptu"], "model 'double' has no output 'outptu'; did you mean 'output'"),
        (["greet", "-i", "name=a", "-i", "times=1.5"], "--input times: INT64 is wanted, such as 1; got 1.5"),
        (["countdown", "-i", "n=-1"], "n must not be negative"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_line(infer: Run, arguments: list[str], text: str) -> None:
    status, out, err = infer(*arguments)
    assert status in (1, 2)
    assert out == ""
    assert err.startswith("halimede: ")
    assert text in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("localhost:1", "no server answers at http://localhost:1: "),
        ("grpc://localhost:1", "no server answers at localhost:1: "),
        (
            "ftp://localhost",
            "--url: 'ftp://localhost' is no address of a server, such as http://localhost:8000",
        ),
    ],
)
def test_a_server_that_is_not_there_is_told(url: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["infer", "double", "-i", "x=1", "--url", url])
    assert text in capsys.readouterr().err
