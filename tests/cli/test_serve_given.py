import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from tests.support.commands import call_text_command
from tests.support.onnx_models import FLOAT, build
from tests.support.server import ServerProcess, running

PORTS = ("--http-address=127.0.0.1", "--http-port=0", "--grpc-port=0", "--metrics-port=0")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of an ONNX file, and of functions in a file; it started elsewhere."""
    directory = tmp_path_factory.mktemp("given")
    model = build(
        [onnx.helper.make_node("Add", ["x", "x"], ["y"])],
        {"x": (FLOAT, ["n", 2])},
        {"y": (FLOAT, ["n", 2])},
    )
    onnx.save(model, str(directory / "double.onnx"))
    (directory / "given_functions.py").write_text(
        "from given_helper import FACTOR\n\n\ndef triple(x: float) -> float:\n    return x * FACTOR\n"
    )
    (directory / "given_helper.py").write_text("FACTOR = 3\n")
    given = [f"twice={directory}/double.onnx", f"{directory}/given_functions.py:triple"]
    with running([sys.executable, "-m", "halimede", "serve", *given, *PORTS], 3) as server:
        yield server


def infer(
    server: ServerProcess, model: str, datatype: str, shape: list[int], data: list[float]
) -> list[float]:
    body = {"inputs": [{"name": "x", "datatype": datatype, "shape": shape, "data": data}]}
    request = urllib.request.Request(
        f"http://{server.http}/v2/models/{model}/infer", json.dumps(body).encode()
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        answer: list[float] = json.load(response)["outputs"][0]["data"]
        return answer


def test_a_file_is_served_under_the_given_name(server: ServerProcess) -> None:
    assert infer(server, "twice", "FP32", [1, 2], [1.0, 2.0]) == [2.0, 4.0]


def test_a_function_of_a_file_is_served(server: ServerProcess) -> None:
    assert infer(server, "triple", "FP64", [1], [2.0]) == [6.0]


def test_the_log_says_what_each_was_taken_for(server: ServerProcess) -> None:
    log = server.log
    assert "| ONNX model | 4     | x FP32 [-1, 2] | y FP32 [-1, 2]  |" in log
    assert "| function   | no    | x FP64 [1]     | output FP64 [1] |" in log


def test_misuse_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    result = call_text_command("serve", str(tmp_path / "notes.txt"))
    assert result.returncode == 2
    assert result.stderr.startswith(f"halimede: '{tmp_path}/notes.txt' is no model file that is known here.")
    assert result.stderr.count("\n") == 1


def test_help_says_what_may_be_given() -> None:
    result = call_text_command("serve", "--help")
    assert result.returncode == 0
    assert "Usage: halimede serve [MODEL...] [FLAGS]" in " ".join(result.stdout.split())
