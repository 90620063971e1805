"""Framework × {load, auto-complete, infer JSON, infer binary, batch, ensemble step, bad file, unload}.

The models are made in a process for each framework. A real server for each model loads it explicitly.
"""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frameworks.matrix.rows import ROWS, Row
from tests.support.server import FRONT_ENDS, ServerProcess, start_server

pytestmark = pytest.mark.timeout(900)  # to compile a model takes a minute, or several on a busy machine


@dataclass(frozen=True, slots=True)
class Served:
    """A server that has loaded the model `m` of the row, and an ensemble `e` of it.

    Attributes:
        row: the kind of model.
        server: the server.
        repository: its model repository.
        x: two rows of input, FP32 [2, 4].
        y: what a model answers to them, [2, width].
    """

    row: Row
    server: ServerProcess
    repository: Path
    x: np.ndarray[Any, np.dtype[Any]]
    y: np.ndarray[Any, np.dtype[Any]]

    def post(self, path: str, body: object, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """Status and body of the answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.server.http}/v2{path}", data, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def load(self, name: str) -> tuple[int, str]:
        """Load a model: status, and what was wrong."""
        status, body = self.post(f"/repository/models/{name}/load", {})
        return status, json.loads(body)["error"] if body else ""

    def infer(self, name: str, x: np.ndarray[Any, np.dtype[Any]], given: str, taken: str) -> Any:
        """What the model answers to a request of JSON."""
        tensor = {"name": given, "datatype": "FP32", "shape": list(x.shape), "data": x.reshape(-1).tolist()}
        status, body = self.post(f"/models/{name}/infer", {"inputs": [tensor]})
        assert status == 200, body
        (output,) = json.loads(body)["outputs"]
        assert (output["name"], output["datatype"]) == (taken, "FP32")
        return np.array(output["data"], np.float32).reshape(output["shape"])

    def is_ready(self, name: str) -> bool:
        """Whether the model takes requests."""
        return self.server.get(f"/v2/models/{name}/ready")[0] == 200

    def check_model(self) -> None:
        """The model answers as it should."""
        answer = self.infer("m", self.x, self.row.input, self.row.output)
        np.testing.assert_allclose(answer, self.y, rtol=1e-5)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Row], Path]:
    """The directory of a row's model; those of a framework are made together, as importing it takes seconds."""
    directory = tmp_path_factory.mktemp("made")

    def make(row: Row) -> Path:
        if not (directory / row.key).exists():
            group = [each for each in ROWS if (each.modules, each.compiled) == (row.modules, row.compiled)]
            keys = [each.key for each in group if not each.missing]
            command = [sys.executable, "-W", "ignore", "-m", "tests.frameworks.matrix.models"]
            done = subprocess.run(
                [*command, str(directory), *keys], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
        return directory / row.key

    return make


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.key)
def served(request: pytest.FixtureRequest, made: Callable[[Row], Path]) -> Iterator[Served]:
    """The server of a row."""
    row: Row = request.param
    if row.missing:
        pytest.skip(f"{row.title}: {row.missing}")
    repository = made(row)
    case = json.loads((repository / "case.json").read_text())
    (repository / "m" / "config.pbtxt").write_text(config(row))
    (repository / "e" / "1").mkdir(parents=True)
    (repository / "e" / "config.pbtxt").write_text(ensemble(row))
    flags = ["--model-control-mode=explicit", "--load-model=e"]
    with start_server(repository, *flags) as server:
        yield Served(
            row, server, repository, np.array(case["x"], np.float32), np.array(case["y"], np.float32)
        )


def config(row: Row, *, ports: bool = True) -> str:
    """The configuration of the model, without what its file tells. Two rows are a batch that does not wait."""
    text = f'backend: "{row.backend}"\n' if row.backend else ""
    text += row.config
    text += "\nmax_batch_size: 4\n"
    text += "dynamic_batching { preferred_batch_size: 2 max_queue_delay_microseconds: 20000000 }\n"
    if row.isolated:
        text += "instance_group { count: 1 }\n"
    if row.ports and ports:
        text += f'input {{ name: "{row.input}" data_type: TYPE_FP32 dims: 4 }}\n'
        text += f'output {{ name: "{row.output}" data_type: TYPE_FP32 dims: {row.width} }}\n'
    return text


def ensemble(row: Row) -> str:
    """An ensemble whose step is the model."""
    return f"""
platform: "ensemble" max_batch_size: 4
input {{ name: "IN" data_type: TYPE_FP32 dims: 4 }}
output {{ name: "OUT" data_type: TYPE_FP32 dims: {row.width} }}
ensemble_scheduling {{ step {{
  model_name: "m" model_version: -1
  input_map {{ key: "{row.input}" value: "IN" }}
  output_map {{ key: "{row.output}" value: "OUT" }}
}} }}
"""


def test_load(served: Served) -> None:
    assert served.load("m") == (200, "")
    assert served.is_ready("m")
    served.server.wait_until(  # some frameworks run a program when they are imported
        lambda: has_children(served.server) == served.row.isolated, "the model to run where it should"
    )


def has_children(server: ServerProcess) -> bool:
    """Whether the server has processes beside the one that starts its front ends."""
    tasks = Path(f"/proc/{server.process.pid}/task")
    children = {child for task in tasks.glob("*/children") for child in task.read_text().split()}
    return len(children) > (FRONT_ENDS > 1)


def test_auto_complete(served: Served) -> None:
    row = served.row
    status, body = served.server.get("/v2/models/m/config")
    assert status == 200
    document = json.loads(body)
    (given,), (taken,) = document["input"], document["output"]
    assert (given["name"], given["data_type"], given["dims"]) == (
        row.input,
        "TYPE_FP32",
        [-1 if row.variable else 4],
    )
    assert (taken["name"], taken["data_type"], taken["dims"]) == (
        row.output,
        "TYPE_FP32",
        [-1 if row.variable else row.width],
    )
    if row.ports:
        (served.repository / "unlisted").mkdir()
        (served.repository / "unlisted" / "1").symlink_to(served.repository / "m" / "1")
        (served.repository / "unlisted" / "config.pbtxt").write_text(config(row, ports=False))
        status, error = served.load("unlisted")
        assert status == 400
        assert "input" in error


def test_infer_json(served: Served) -> None:
    served.check_model()


def test_infer_binary(served: Served) -> None:
    row = served.row
    head = json.dumps(
        {
            "inputs": [
                {
                    "name": row.input,
                    "datatype": "FP32",
                    "shape": [2, 4],
                    "parameters": {"binary_data_size": served.x.nbytes},
                }
            ],
            "parameters": {"binary_data_output": True},
        }
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    status, body = served.post("/models/m/infer", head + served.x.tobytes(), headers)
    assert status == 200, body
    values = np.frombuffer(body[-served.y.astype(np.float32).nbytes :], np.float32).reshape(2, row.width)
    np.testing.assert_allclose(values, served.y, rtol=1e-5)


def test_batch(served: Served) -> None:
    row = served.row
    before = statistics(served)
    with ThreadPoolExecutor(2) as threads:
        answers = list(
            threads.map(
                lambda index: served.infer("m", served.x[index : index + 1], row.input, row.output), (0, 1)
            )
        )
    np.testing.assert_allclose(np.concatenate(answers), served.y, rtol=1e-5)
    after = statistics(served)
    assert after["inference_count"] - before["inference_count"] == 2
    assert after["execution_count"] - before["execution_count"] == 1


def statistics(served: Served) -> dict[str, int]:
    """The counts of the model."""
    counts: dict[str, int] = json.loads(served.server.get("/v2/models/m/stats")[1])["model_stats"][0]
    return counts


def test_ensemble_step(served: Served) -> None:
    np.testing.assert_allclose(served.infer("e", served.x, "IN", "OUT"), served.y, rtol=1e-5)


def test_bad_file(served: Served) -> None:
    row = served.row
    original = served.repository / "m" / "1" / row.file / row.truncated
    bad = served.repository / "bad" / "1" / row.file / row.truncated
    bad.parent.mkdir(parents=True)
    (served.repository / "bad" / "config.pbtxt").write_text(config(row))
    bad.write_bytes(original.read_bytes()[: original.stat().st_size // 2])
    status, error = served.load("bad")
    assert status == 400
    assert error.startswith("load failed for model 'bad': version 1 is at UNAVAILABLE state: ")
    assert len(error) > 100  # the framework's reason, not only that it failed
    assert not served.is_ready("bad")
    served.check_model()


def test_unload(served: Served) -> None:
    status, body = served.post("/repository/models/m/unload", {"parameters": {"unload_dependents": False}})
    assert status == 200, body
    assert not served.is_ready("m")
    status, body = served.post("/models/m/infer", {"inputs": []})
    assert status in (400, 404)
    if served.row.isolated and served.row.modules:
        return  # a new process would load it as the first did, and import its framework, which takes seconds
    assert served.load("m") == (200, "")
    served.check_model()
