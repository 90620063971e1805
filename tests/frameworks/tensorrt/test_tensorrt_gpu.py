"""Engines built and served on a real GPU."""

import json
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from halimede.core.gpus import visible_gpus
from tests.support import onnx_models
from tests.support.onnx_models import FLOAT, INT64, write_model
from tests.support.server import ServerProcess, run_command, start_server

pytestmark = [
    pytest.mark.skipif(
        not visible_gpus() or find_spec("tensorrt") is None or find_spec("cuda") is None,
        reason="needs an NVIDIA GPU and TensorRT: pip install 'halimede[tensorrt]'",
    ),
    pytest.mark.timeout(600),
]


def shapes(flag: str, rows: int) -> str:
    return f"--{flag}-shapes=INPUT0:{rows}x16,INPUT1:{rows}x16"


def build(repository: Path, name: str, model: Any, *flags: str, config: str = "") -> None:
    """Put the model's engine, built here, into the repository."""
    directory = write_model(repository, name, None, config)
    path = repository.parent / f"{name}.onnx"
    onnx.save(model, str(path))
    built = run_command(
        "build-engine",
        f"--onnx={path}",
        f"--save-engine={directory / '1' / 'model.plan'}",
        *flags,
        timeout=500,
    )
    assert built.returncode == 0, built.stderr


def post(server: ServerProcess, path: str, body: object) -> Any:
    data = json.dumps(body).encode()
    with urllib.request.urlopen(f"http://{server.http}{path}", data, timeout=120) as response:
        return json.loads(response.read() or b"null")


def add_sub(server: ServerProcess, name: str, rows: int) -> None:
    """Ask for sum and difference of so many rows, and check them."""
    a, b = np.arange(rows * 16, dtype=np.float32), np.full(rows * 16, 3, np.float32)
    inputs = [
        {"name": port, "datatype": "FP32", "shape": [rows, 16], "data": array.tolist()}
        for port, array in (("INPUT0", a), ("INPUT1", b))
    ]
    answer = post(server, f"/v2/models/{name}/infer", {"inputs": inputs})
    found = {output["name"]: np.array(output["data"], np.float32) for output in answer["outputs"]}
    np.testing.assert_allclose(found["OUTPUT0"], a + b)
    np.testing.assert_allclose(found["OUTPUT1"], a - b)


def test_an_engine_is_built_completed_and_served(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    build(repository, "m", onnx_models.add_sub(), shapes("min", 1), shapes("opt", 4), shapes("max", 8))
    with start_server(repository) as server:
        _, body = server.get("/v2/models/m/config")
        config = json.loads(body)
        assert (config["backend"], config["max_batch_size"]) == ("tensorrt", 8)
        assert [entry["dims"] for entry in config["input"]] == [[16], [16]]
        for rows in (1, 8, 3):
            add_sub(server, "m", rows)


@pytest.mark.parametrize("strategy", ["STATIC", "ON_PROFILE_CHANGE"])
def test_two_profiles_serve_their_shapes(strategy: str, tmp_path: Path) -> None:
    repository = tmp_path / "models"
    config = f"""backend: "tensorrt" instance_group {{ kind: KIND_GPU count: 2 profile: [ "0", "1" ] }}
        parameters {{ key: "execution_context_allocation_strategy" value {{ string_value: "{strategy}" }} }}"""
    flags = [shapes(flag, rows) for rows in (4, 64) for flag in ("opt", "max")]
    flags += [shapes("min", 1), shapes("min", 5)]
    build(repository, "m", onnx_models.add_sub(), *flags, config=config)
    with start_server(repository) as server:
        for rows in (1, 64, 4, 5, 1):
            add_sub(server, "m", rows)


def test_shape_tensors_choose_the_outputs_shape(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    model = onnx_models.build(
        [onnx.helper.make_node("Reshape", ["x", "sizes"], ["y"])],
        {"x": (FLOAT, [4]), "sizes": (INT64, [2])},
        {"y": (FLOAT, [None, None])},
    )
    build(
        repository, "m", model, "--min-shapes=sizes:1x1", "--opt-shapes=sizes:2x2", "--max-shapes=sizes:4x4"
    )
    with start_server(repository) as server:
        inputs = [
            {"name": "x", "datatype": "FP32", "shape": [4], "data": [1, 2, 3, 4]},
            {"name": "sizes", "datatype": "INT64", "shape": [2], "data": [4, 1]},
        ]
        answer = post(server, "/v2/models/m/infer", {"inputs": inputs})
        assert answer["outputs"][0]["shape"] == [4, 1]


def test_a_file_that_is_no_engine_is_told_and_the_server_goes_on(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    build(repository, "m", onnx_models.add_sub(), shapes("opt", 1))
    directory = write_model(repository, "bad", None)
    (directory / "1" / "model.plan").write_bytes(b"no engine")
    with start_server(repository, "--exit-on-error=false", "--strict-readiness=false") as server:
        index = {entry["name"]: entry for entry in post(server, "/v2/repository/index", {})}
        assert "cannot read the engine" in index["bad"]["reason"]
        add_sub(server, "m", 1)


def test_a_hundred_loads_give_the_gpus_memory_back(tmp_path: Path) -> None:
    pynvml = pytest.importorskip("pynvml", reason="needs nvidia-ml-py: pip install 'halimede[gpu]'")
    repository = tmp_path / "models"
    build(repository, "m", onnx_models.add_sub(), shapes("min", 1), shapes("max", 512))
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)

    def used() -> int:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)

    with start_server(repository, "--model-control-mode=explicit") as server:
        before = 0
        for cycle in range(100):
            post(server, "/v2/repository/models/m/load", {})
            add_sub(server, "m", 512)
            post(server, "/v2/repository/models/m/unload", {})
            if cycle == 4:
                before = used()
        assert used() - before < 16 << 20
    pynvml.nvmlShutdown()
