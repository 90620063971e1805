"""OpenVINO: an infer request of a compiled model."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import openvino

from benchmarks.frameworks.framework import MLP_FEATURES, Call, Size
from benchmarks.frameworks.inputs import numbers
from benchmarks.frameworks.onnxruntime_mlp import network


def build(_kind: str, size: Size, directory: Path) -> None:
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "model.onnx"
        onnx.save(network(size), path)
        model = openvino.Core().read_model(path)
        openvino.save_model(model, directory / "model.xml", compress_to_fp16=False)


def load(_kind: str, _size: Size, directory: Path, threads: int) -> Callable[[int], Call]:
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1}
    compiled = openvino.Core().compile_model(directory / "model.xml", "CPU", settings)
    request = compiled.create_infer_request()
    return lambda rows: partial(request.infer, {"INPUT__0": numbers(rows, MLP_FEATURES)}, share_inputs=True)
