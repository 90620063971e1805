import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.server import ServerProcess, start_server
from tests.support.waiting import wait_until

torch = pytest.importorskip("torch", reason="needs PyTorch (torch), which is not installed")

from tests.frameworks.pytorch import torch_models  # noqa: E402
from tests.frameworks.pytorch.torch_helpers import ADD_SUB, config_text  # noqa: E402


def test_a_server_answers_from_both_formats_and_outlives_bad_files(tmp_path: Path) -> None:
    torch_models.save_exported(
        tmp_path / "exported" / "1" / "model.pt2", torch_models.Linear(2), [torch.ones(3, 2)]
    )
    torch_models.save_script(tmp_path / "script" / "1" / "model.pt", torch_models.AddSub())
    text = config_text(ADD_SUB, {"SUM": "FP32 [2]", "DIFFERENCE": "FP32 [2]"})
    (tmp_path / "script" / "config.pbtxt").write_text(text + " instance_group { count: 2 }")
    bad = tmp_path / "bad" / "1" / "model.pt"
    bad.parent.mkdir(parents=True)
    bad.write_bytes(b"no model")
    flags = ("--model-control-mode=explicit", "--load-model=script", "--load-model=exported")
    with start_server(tmp_path, *flags) as server:
        rows = {"INPUT0": [[1.0, 2.0]], "INPUT1": [[10.0, 20.0]]}
        status, answer = post(server, "/v2/models/script/infer", infer_body(rows))
        assert status == 200
        assert [(each["name"], each["data"]) for each in answer["outputs"]] == [
            ("SUM", [11.0, 22.0]),
            ("DIFFERENCE", [-9.0, -18.0]),
        ]
        status, metadata = get(server, "/v2/models/exported")
        assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
        assert (status, metadata["platform"]) == (200, "torch_aoti")
        status, answer = post(
            server, "/v2/models/exported/infer", infer_body({"x": [[1.0, 2.0], [3.0, 4.0]]})
        )
        assert (status, answer["outputs"][0]["shape"]) == (200, [2, 2])
        status, error = post(server, "/v2/repository/models/bad/load", {})
        assert status == 400
        assert "model.pt is no PyTorch archive" in error["error"]
        assert post(server, "/v2/repository/models/exported/unload", {})[0] == 200
        assert post(server, "/v2/models/script/infer", infer_body(rows))[0] == 200


MODULE = """
import os
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        if x.sum() < -1000:
            os.abort()
        return x * 2, torch.full((len(x), 1), os.getpid(), dtype=torch.int64)
"""


def test_code_runs_in_a_process_of_its_own_which_may_crash(tmp_path: Path) -> None:
    path = tmp_path / "module" / "1" / "model.py"
    path.parent.mkdir(parents=True)
    path.write_text(MODULE)
    text = config_text({"x": "FP32 [2]"}, {"y": "FP32 [2]", "pid": "INT64 [1]"})
    (tmp_path / "module" / "config.pbtxt").write_text(text + ' runtime: "model.py"')
    with start_server(tmp_path) as server:
        infer = "/v2/models/module/infer"
        status, answer = post(server, infer, infer_body({"x": [[1.0, 2.0]]}))
        assert (status, answer["outputs"][0]["data"]) == (200, [2.0, 4.0])
        pid = answer["outputs"][1]["data"][0]
        assert pid != server.process.pid
        assert post(server, infer, infer_body({"x": [[-5000.0, 2.0]]}))[0] == 500
        answers: list[tuple[int, Any]] = []

        def answered() -> bool:
            answers.append(post(server, infer, infer_body({"x": [[3.0, 4.0]]})))
            return answers[-1][0] == 200

        wait_until(answered, "the next process to answer")
        answer = answers[-1][1]
        assert answer["outputs"][0]["data"] == [6.0, 8.0]
        assert answer["outputs"][1]["data"][0] != pid


@pytest.mark.timeout(700)  # it may wait for the package
def test_a_compiled_package_is_served_from_a_process_of_its_own(tmp_path: Path, built: Path) -> None:
    path = tmp_path / "package" / "1" / "model.pt2"
    path.parent.mkdir(parents=True)
    path.hardlink_to(built)
    with start_server(tmp_path, "--model-control-mode=explicit", "--load-model=package") as server:
        names = [each["name"] for each in get(server, "/v2/models/package")[1]["inputs"]]
        assert names == ["INPUT__0", "a", "bias"]
        body = infer_body({name: [[1.0, 2.0, 3.0, 4.0]] for name in names})
        status, answer = post(server, "/v2/models/package/infer", body)
        assert status == 200
        assert answer["outputs"][0]["name"] == "sum"
        assert answer["outputs"][0]["data"] == [4.0, 8.0, 12.0, 16.0]
        wrong = infer_body({name: [[1.0, 2.0, 3.0]] for name in names})
        assert post(server, "/v2/models/package/infer", wrong)[0] == 400
        maps = Path(f"/proc/{server.process.pid}/maps")
        assert "libtorch" not in maps.read_text()
        assert post(server, "/v2/repository/models/package/unload", {})[0] == 200


def infer_body(tensors: dict[str, Any]) -> dict[str, Any]:
    return {
        "inputs": [
            {"name": name, "datatype": "FP32", "shape": list(np.shape(rows)), "data": rows}
            for name, rows in tensors.items()
        ]
    }


def get(server: ServerProcess, path: str) -> tuple[int, Any]:
    status, body = server.get(path)
    return status, json.loads(body)


def post(server: ServerProcess, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """Status and JSON of the answer."""
    request = urllib.request.Request(f"http://{server.http}{path}", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.loads(response.read() or "null")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())
