import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "halimede.backends.tensorflow.runtime", reason="needs TensorFlow: pip install 'halimede[tensorflow]'"
)

from halimede.backends.tensorflow.runtime import tf
from tests.frameworks.tensorflow.tensorflow_models import ADD_SUB, add_sub, affine_graph, frozen, saved, spec
from tests.support.server import ServerProcess, start_server

GRAPH = """
    max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [2] }
    output { name: "y" data_type: TYPE_FP32 dims: [2] label_filename: "labels.txt" }
    instance_group { count: 1 }
"""
FLAGS = ("--exit-on-error=false", "--strict-readiness=false")


def post(server: ServerProcess, path: str, body: object) -> Any:
    data = json.dumps(body).encode()
    with urllib.request.urlopen(f"http://{server.http}/v2{path}", data, timeout=60) as response:
        return json.loads(response.read() or b"null")


def tensor(name: str, values: list[Any], datatype: str = "FP32") -> dict[str, object]:
    return {"name": name, "datatype": datatype, "shape": [1, len(values)], "data": values}


def place(repository: Path, name: str, built: Path) -> Path:
    """The model that was made as `m`, as `name`."""
    (built / "m").rename(repository / name)
    return repository / name


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository, made = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("made")
    saved(made, add_sub, ADD_SUB)
    one = place(repository, "saved", made)
    (one / "config.pbtxt").write_text("instance_group { count: 1 }")
    saved(made, lambda text: {"loud": tf.strings.upper(text)}, [spec("text", (None, 1), tf.string)])
    strings = place(repository, "strings", made)
    thread = 'parameters { key: "isolation" value { string_value: "thread" } }'
    (strings / "config.pbtxt").write_text(thread)
    frozen(made, affine_graph, GRAPH)
    graph = place(repository, "graph", made)
    (graph / "config.pbtxt").write_text('platform: "tensorflow_graphdef"' + GRAPH)
    (graph / "labels.txt").write_text("cat\ndog\n")
    bad = repository / "bad" / "1" / "model.savedmodel"
    bad.mkdir(parents=True)
    (bad / "saved_model.pb").write_bytes(b"not a model")
    return repository


def test_server_answers_and_goes_on_after_a_bad_model(repository: Path) -> None:
    with start_server(repository, *FLAGS, ready=False) as server:
        server.wait_for("successfully loaded 'saved'", 90)
        server.wait_for("successfully loaded 'graph'", 90)
        server.wait_for("successfully loaded 'strings'", 90)
        server.wait_for("failed to load 'bad'", 90)
        inputs = [tensor("a", [1, 2]), tensor("b", [10, 20])]
        answer = post(server, "/models/saved/infer", {"inputs": inputs})
        assert {output["name"]: output["data"] for output in answer["outputs"]} == {
            "sum": [11, 22],
            "difference": [-9, -18],
        }
        answer = post(server, "/models/strings/infer", {"inputs": [tensor("text", ["grüße"], "BYTES")]})
        assert answer["outputs"][0]["data"] == ["GRüßE"]
        request = {
            "inputs": [tensor("x", [1, 2])],
            "outputs": [{"name": "y", "parameters": {"classification": 2}}],
        }
        answer = post(server, "/models/graph/infer", request)
        assert answer["outputs"][0]["data"] == ["5.000000:1:dog", "3.000000:0:cat"]
        index = {entry["name"]: entry for entry in post(server, "/repository/index", {})}
        assert index["bad"]["state"] == "UNAVAILABLE"
        assert "is no SavedModel, or cut short" in index["bad"]["reason"]
        assert "oneDNN" not in server.log
        assert "absl" not in server.log
