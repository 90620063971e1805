"""Framework × {load, auto-complete, infer JSON, infer binary, batch, ensemble step, bad file, unload}.

The models are made in a process for each framework. A real server for each framework loads them explicitly.
"""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frameworks.matrix.rows import ROWS, Row
from tests.support.server import ServerProcess, start_server

pytestmark = pytest.mark.timeout(900)  # to compile a model takes a minute, or several on a busy machine


@dataclass(frozen=True, slots=True)
class Served:
    """A server that has loaded the model of a row, which has the row's key as its name, and an ensemble of it.

    Attributes:
        row: the kind of model.
        server: the server.
        repository: its model repository.
        before: its processes before.
        x: two rows of input, FP32 [2, 4].
        y: what a model answers to them, [2, width].
    """

    row: Row
    server: ServerProcess
    repository: Path
    before: set[str]
    x: np.ndarray[Any, np.dtype[Any]]
    y: np.ndarray[Any, np.dtype[Any]]

    @property
    def name(self) -> str:
        """The model's name."""
        return self.row.key

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
        answer = self.infer(self.name, self.x, self.row.input, self.row.output)
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


Start = Callable[[Row], tuple[ServerProcess, Path]]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """A server for a row, and its repository: that of the row before, if it needs the same framework."""
    found: dict[tuple[str, ...], tuple[ServerProcess, Path]] = {}
    with ExitStack() as stack:

        def at(row: Row) -> tuple[ServerProcess, Path]:
            if row.modules not in found:
                stack.close()
                found.clear()
                repository = tmp_path_factory.mktemp("models")
                server = stack.enter_context(start_server(repository, "--model-control-mode=explicit"))
                found[row.modules] = server, repository
            return found[row.modules]

        yield at


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.key)
def served(request: pytest.FixtureRequest, made: Callable[[Row], Path], start: Start) -> Served:
    """The model of a row in its server."""
    row: Row = request.param
    if row.missing:
        pytest.skip(f"{row.title}: {row.missing}")
    directory = made(row)
    case = json.loads((directory / "case.json").read_text())
    server, repository = start(row)
    x, y = (np.array(case[name], np.float32) for name in "xy")
    found = Served(row, server, repository, processes(server.process.pid), x, y)
    (directory / "m").rename(repository / row.key)
    (repository / row.key / "config.pbtxt").write_text(config(row))
    (repository / f"{row.key}_ensemble" / "1").mkdir(parents=True)
    (repository / f"{row.key}_ensemble" / "config.pbtxt").write_text(ensemble(row))
    assert found.load(f"{row.key}_ensemble") == (200, "")
    return found


def config(row: Row, *, ports: bool = True, thread: bool = False) -> str:
    """The configuration of the model, without what its file tells. Two rows are a batch that does not wait.

    Args:
        row: the kind of model.
        ports: whether to list inputs and outputs, if the row needs it.
        thread: whether the server may run it, if it would run in workers.
    """
    text = f'backend: "{row.backend}"\n' if row.backend else ""
    text += row.config
    text += "\nmax_batch_size: 4\n"
    text += "dynamic_batching { preferred_batch_size: 2 max_queue_delay_microseconds: 20000000 }\n"
    if row.isolated:
        text += "instance_group { count: 1 }\n"
    if thread and row.modules == ("tensorflow",):  # importing it takes seconds in each process
        text += 'parameters { key: "isolation" value { string_value: "thread" } }\n'
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
  model_name: "{row.key}" model_version: -1
  input_map {{ key: "{row.input}" value: "IN" }}
  output_map {{ key: "{row.output}" value: "OUT" }}
}} }}
"""


def test_load(served: Served) -> None:
    assert served.load(served.name) == (200, "")
    assert served.is_ready(served.name)
    served.server.wait_until(  # some frameworks run a program when they are imported
        lambda: bool(processes(served.server.process.pid) - served.before) == served.row.isolated,
        "the model to run where it should",
    )


def processes(of: int | str) -> set[str]:
    """Those that a process has started, and those that these have: workers have a common parent."""
    found: set[str] = set()
    for task in Path(f"/proc/{of}/task").glob("*/children"):
        with suppress(OSError):  # a process that has ended
            for child in task.read_text().split():
                found |= {child, *processes(child)}
    return found


def test_auto_complete(served: Served) -> None:
    row = served.row
    status, body = served.server.get(f"/v2/models/{served.name}/config")
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
        unlisted = served.repository / f"{row.key}_unlisted"
        unlisted.mkdir()
        (unlisted / "1").symlink_to(served.repository / row.key / "1")
        (unlisted / "config.pbtxt").write_text(config(row, ports=False, thread=True))
        status, error = served.load(unlisted.name)
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
    status, body = served.post(f"/models/{served.name}/infer", head + served.x.tobytes(), headers)
    assert status == 200, body
    values = np.frombuffer(body[-served.y.astype(np.float32).nbytes :], np.float32).reshape(2, row.width)
    np.testing.assert_allclose(values, served.y, rtol=1e-5)


def test_batch(served: Served) -> None:
    row = served.row
    before = statistics(served)
    with ThreadPoolExecutor(2) as threads:
        answers = list(
            threads.map(
                lambda index: served.infer(served.name, served.x[index : index + 1], row.input, row.output),
                (0, 1),
            )
        )
    np.testing.assert_allclose(np.concatenate(answers), served.y, rtol=1e-5)
    after = statistics(served)
    assert after["inference_count"] - before["inference_count"] == 2
    assert after["execution_count"] - before["execution_count"] == 1


def statistics(served: Served) -> dict[str, int]:
    """The counts of the model."""
    counts: dict[str, int] = json.loads(served.server.get(f"/v2/models/{served.name}/stats")[1])[
        "model_stats"
    ][0]
    return counts


def test_ensemble_step(served: Served) -> None:
    np.testing.assert_allclose(
        served.infer(f"{served.name}_ensemble", served.x, "IN", "OUT"), served.y, rtol=1e-5
    )


def test_bad_file(served: Served) -> None:
    row = served.row
    name = f"{row.key}_bad"
    original = served.repository / row.key / "1" / row.file / row.truncated
    bad = served.repository / name / "1" / row.file / row.truncated
    bad.parent.mkdir(parents=True)
    (served.repository / name / "config.pbtxt").write_text(config(row, thread=True))
    bad.write_bytes(original.read_bytes()[: original.stat().st_size // 2])
    status, error = served.load(name)
    assert status == 400
    assert error.startswith(f"load failed for model '{name}': version 1 is at UNAVAILABLE state: ")
    assert len(error) > 100  # the framework's reason, not only that it failed
    assert not served.is_ready(name)
    served.check_model()


def test_unload(served: Served) -> None:
    parameters = {"parameters": {"unload_dependents": False}}
    status, body = served.post(f"/repository/models/{served.name}/unload", parameters)
    assert status == 200, body
    assert not served.is_ready(served.name)
    status, body = served.post(f"/models/{served.name}/infer", {"inputs": []})
    assert status in (400, 404)
    if served.row.isolated and served.row.modules:
        return  # a new process would load it as the first did, and import its framework, which takes seconds
    assert served.load(served.name) == (200, "")
    served.check_model()
