"""ResNet-50 without a server: what each format's framework does with the same file, with the same threads."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

Run = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""Images [batch, 3, 224, 224] → scores [batch, 1000]."""

THREADS = len(os.sched_getaffinity(0))


def torchscript(repository: Path) -> Run:
    """The TorchScript file, loaded."""
    path = repository / "resnet50_torchscript" / "1" / "model.pt"
    return _torch_run(torch.jit.load(path))


def export(repository: Path) -> Run:
    """The program of torch.export, loaded."""
    return _torch_run(torch.export.load(repository / "resnet50_export" / "1" / "model.pt2").module())


def onnx(repository: Path) -> Run:
    """The ONNX file in a session, whose threads sleep when they have nothing to do, as the server's do."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    path = str(repository / "resnet50_onnx" / "1" / "model.onnx")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(images: NDArray[np.float32]) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = session.run(["scores"], {"image": images})[0]
        return scores

    return run


LOADERS: dict[str, Callable[[Path], Run]] = {
    "resnet50_torchscript": torchscript,
    "resnet50_export": export,
    "resnet50_onnx": onnx,
}
"""Model of the server → what loads its file without the server."""


def _torch_run(module: Any) -> Run:
    torch.set_num_threads(THREADS)

    def run(images: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.inference_mode():
            scores: NDArray[np.float32] = module(torch.from_numpy(images)).numpy()
        return scores

    return run
