import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openvino", reason="needs OpenVINO: pip install 'halimede[openvino]'")

from tests.backends.helpers import floats
from tests.frameworks.openvino.test_openvino import write_ir
from tests.support import onnx_models
from tests.support.onnx_models import write_model
from tests.support.server import ServerProcess, start_server


def post(server: ServerProcess, path: str, body: object) -> Any:
    data = json.dumps(body).encode()
    with urllib.request.urlopen(f"http://{server.http}{path}", data, timeout=30) as response:
        return json.loads(response.read() or b"null")


def tensor(name: str, values: Any) -> dict[str, object]:
    return {
        "name": name,
        "datatype": "FP32",
        "shape": list(values.shape),
        "data": values.reshape(-1).tolist(),
    }


def test_server_answers_ir_and_onnx_models_and_goes_on_after_a_bad_one(tmp_path: Path) -> None:
    write_ir(tmp_path, onnx_models.add_sub(dims=(2,)))
    (tmp_path / "model.onnx").unlink()
    config = 'backend: "openvino" default_model_filename: "model.onnx"'
    write_model(tmp_path, "onnx", onnx_models.add_sub(dims=(2,)), config)
    bad = tmp_path / "bad" / "1"
    bad.mkdir(parents=True)
    (bad / "model.xml").write_text("not a model")
    inputs = [tensor("INPUT0", floats([1, 2])), tensor("INPUT1", floats([10, 20]))]
    with start_server(tmp_path, "--exit-on-error=false", "--strict-readiness=false") as server:
        for name in ("m", "onnx"):
            answer = post(server, f"/v2/models/{name}/infer", {"inputs": inputs})
            assert {output["name"]: output["data"] for output in answer["outputs"]} == {
                "OUTPUT0": [11, 22],
                "OUTPUT1": [-9, -18],
            }
        index = {entry["name"]: entry for entry in post(server, "/v2/repository/index", {})}
        assert (index["m"]["state"], index["onnx"]["state"]) == ("READY", "READY")
        assert index["bad"]["state"] == "UNAVAILABLE"
        assert "openvino error: " in index["bad"]["reason"]
        status, body = server.get("/v2/models/m/config")
        assert status == 200
        assert json.loads(body)["backend"] == "openvino"
