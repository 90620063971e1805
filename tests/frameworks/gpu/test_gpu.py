"""Instances on GPUs, and what metrics say of them, in a real server."""

import json
import urllib.request
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from halimede.backends.placement import placement
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.gpus import VISIBLE, missing_for_metrics, visible_gpus
from tests.frameworks.gpu.building import run_code
from tests.support import onnx_models
from tests.support.onnx_models import write_model
from tests.support.server import ServerProcess, start_server

ON_GPU = 'backend: "{}" max_batch_size: 8 instance_group {{ kind: KIND_GPU }}'
GPU_BACKENDS = ("dali", "onnxruntime", "python", "pytorch", "tensorrt")
CPU_BACKENDS = (
    "dyna_sequence",
    "fil",
    "identity",
    "implicit_state",
    "openvino",
    "repeat",
    "sequence",
    "square",
    "tensorflow",
)
TENSORS = "".join(
    f'{side} {{ name: "{side}" data_type: TYPE_FP32 dims: 2 }} ' for side in ("input", "output")
)

needs_nvml = pytest.mark.skipif(
    bool(missing_for_metrics()), reason=f"needs an NVIDIA GPU and nvidia-ml-py: {missing_for_metrics()}"
)


def usable(backend: str) -> bool:
    return bool(placement(ModelConfig(backend=backend), visible_gpus()).gpus)


def post(server: ServerProcess, path: str, body: object) -> Any:
    data = json.dumps(body).encode()
    with urllib.request.urlopen(f"http://{server.http}{path}", data, timeout=120) as response:
        return json.loads(response.read() or b"null")


def add_sub(server: ServerProcess, name: str, names: Sequence[str]) -> dict[str, list[float]]:
    """The model's answer to [1, 2] and [10, 20]."""
    inputs = [
        {"name": name, "datatype": "FP32", "shape": [1, 2], "data": data}
        for name, data in zip(names, ([1, 2], [10, 20]), strict=True)
    ]
    answer = post(server, f"/v2/models/{name}/infer", {"inputs": inputs})
    return {output["name"]: output["data"] for output in answer["outputs"]}


def test_without_a_gpu_models_that_need_one_say_so_and_the_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VISIBLE, "")
    for backend in (*GPU_BACKENDS, *CPU_BACKENDS):
        write_model(tmp_path, f"on_gpu_{backend}", None, ON_GPU.format(backend) + TENSORS)
    write_model(tmp_path, "anywhere", onnx_models.add_sub(dims=(2,)))
    flags = ("--exit-on-error=false", "--strict-readiness=false", "--allow-gpu-metrics=true")
    with start_server(tmp_path, *flags) as server:
        index = {entry["name"]: entry for entry in post(server, "/v2/repository/index", {})}
        for backend in (*GPU_BACKENDS, *CPU_BACKENDS):
            entry = index[f"on_gpu_{backend}"]
            assert entry["state"] == "UNAVAILABLE"
            assert "has kind KIND_GPU but no GPUs are available: " in entry["reason"]
            what = "sees no NVIDIA GPU" if backend in GPU_BACKENDS else f"the backend {backend} "
            assert what in entry["reason"]
        assert add_sub(server, "anywhere", ("INPUT0", "INPUT1"))["OUTPUT0"] == [11, 22]
        _, body = server.get("/metrics", server.metrics)
        assert b"nv_cpu_utilization" in body
        assert b"nv_gpu" not in body
        assert server.log.count("--allow-gpu-metrics has no effect: ") == 1


@needs_nvml
def test_metrics_tell_of_every_gpu(tmp_path: Path) -> None:
    with start_server(tmp_path, "--metrics-interval-ms=100") as server:
        _, body = server.get("/metrics", server.metrics)
    lines = body.decode().splitlines()
    for name in ("nv_gpu_utilization", "nv_gpu_memory_total_bytes", "nv_gpu_memory_used_bytes"):
        values = [float(line.split()[-1]) for line in lines if line.startswith(f'{name}{{gpu_uuid="')]
        assert len(values) == len(visible_gpus())
        assert all(value >= 0 for value in values)


@pytest.mark.skipif(not usable("onnxruntime"), reason="needs an NVIDIA GPU and onnxruntime-gpu")
def test_onnx_models_run_on_gpus(tmp_path: Path) -> None:
    write_model(tmp_path, "auto", onnx_models.add_sub(dims=(2,)))
    write_model(tmp_path, "listed", onnx_models.add_sub(dims=(2,)), "instance_group { gpus: 0 count: 2 }")
    with start_server(tmp_path) as server:
        for name in ("auto", "listed"):
            assert add_sub(server, name, ("INPUT0", "INPUT1"))["OUTPUT0"] == [11, 22]
            _, body = server.get(f"/v2/models/{name}/config")
            (group,) = json.loads(body)["instance_group"]
            assert group["kind"] == "KIND_GPU"
            assert 0 in group["gpus"]


@pytest.mark.skipif(
    find_spec("torch") is None or not usable("pytorch"), reason="needs an NVIDIA GPU and a PyTorch for CUDA"
)
def test_pytorch_models_run_on_gpus(tmp_path: Path) -> None:
    config = """backend: "pytorch" max_batch_size: 8 instance_group { kind: KIND_GPU }
        input [ { name: "a__0" data_type: TYPE_FP32 dims: 2 }, { name: "b__1" data_type: TYPE_FP32 dims: 2 } ]
        output { name: "sum__0" data_type: TYPE_FP32 dims: 2 }"""
    write_model(tmp_path, "m", None, config)
    script = """
import sys, torch
class Add(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b
torch.jit.save(torch.jit.script(Add()), sys.argv[1])
"""
    path = tmp_path / "m" / "1" / "model.pt"
    run_code(script, path)
    with start_server(tmp_path) as server:
        assert add_sub(server, "m", ("a__0", "b__1")) == {"sum__0": [11, 22]}
