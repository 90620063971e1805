"""Makes models of rows: `python -m tests.frameworks.matrix.models DIRECTORY ROW...`, in a process of its own.

The model of a row is `DIRECTORY/ROW/m`. Beside it is `case.json`: two rows of values, and what the framework answers
to them. All models but forests compute ``y = 2 x + 1``.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.frameworks.matrix.rows import ROWS

Array = np.ndarray[Any, np.dtype[Any]]

X = np.array([[1, 2, 3, 4], [-1, 0.5, 0, 8]], np.float32)
"""Two rows of input."""


def onnx(path: Path) -> Array:
    """An ONNX graph."""
    from onnx import TensorProto, helper, numpy_helper, save

    constants = [
        numpy_helper.from_array(np.array(value, np.float32), name) for name, value in (("a", 2), ("b", 1))
    ]
    nodes = [helper.make_node("Mul", ["x", "a"], ["ax"]), helper.make_node("Add", ["ax", "b"], ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "affine", ports[:1], ports[1:], constants)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return 2 * X + 1


def torchscript(path: Path) -> Array:
    """A module that was traced."""
    import torch

    torch.jit.trace(_module(), torch.from_numpy(X)).save(str(path))
    return 2 * X + 1


def exported(path: Path) -> Array:
    """A program of torch.export."""
    import torch

    torch.export.save(_program(), path)
    return 2 * X + 1


def _program() -> Any:
    import torch

    shapes = {"x": {0: torch.export.Dim("batch", min=1, max=64)}}
    return torch.export.export(_module(), (torch.from_numpy(X),), dynamic_shapes=shapes)


def _module() -> Any:
    import torch

    class Affine(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x + 1

    return Affine().eval()


def savedmodel(path: Path) -> Array:
    """A function with a signature."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x")])
    def affine(x: Any) -> dict[str, Any]:
        return {"y": 2 * x + 1}

    tf.saved_model.save(tf.Module(), str(path), affine.get_concrete_function())
    return 2 * X + 1


def graphdef(path: Path) -> Array:
    """A graph of TensorFlow 1."""
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 4], "x")
        tf.identity(2 * x + 1, "y")
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return 2 * X + 1


def package(path: Path) -> Array:
    """A program that AOTInductor has compiled."""
    import torch

    settings = {"aot_inductor.check_lowerbound": False}
    torch._inductor.aoti_compile_and_package(_program(), package_path=str(path), inductor_configs=settings)  # noqa: SLF001 - PyTorch has no public name for it
    return 2 * X + 1


def module(path: Path) -> Array:
    """A module's code."""
    path.write_text(
        """
import torch


class Affine(torch.nn.Module):
    def forward(self, x):
        return 2 * x + 1
"""
    )
    return 2 * X + 1


_PIPELINE = """
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.triton import autoserialize


@autoserialize
@pipeline_def(batch_size=4, num_threads=1, device_id=None, output_dtype=types.FLOAT, output_ndim=1)
def affine():
    x = fn.external_source(name="x", dtype=types.FLOAT, ndim=1)
    return fn.copy(x * 2.0 + 1.0, name="y")
"""


def dali(path: Path) -> Array:
    """A pipeline of DALI, serialized."""
    space: dict[str, Any] = {}
    exec(_PIPELINE, space)
    path.write_bytes(space["affine"]().serialize())
    return 2 * X + 1


def dali_module(path: Path) -> Array:
    """The code of a pipeline of DALI."""
    path.write_text(_PIPELINE)
    return 2 * X + 1


def tensorrt(path: Path) -> Array:
    """An engine, built from the ONNX graph."""
    source = path.with_name("source.onnx")
    onnx(source)
    shapes = [f"--{kind}-shapes=x:{rows}x4" for kind, rows in (("min", 1), ("opt", 2), ("max", 4))]
    command = [
        sys.executable,
        "-m",
        "halimede",
        "build-engine",
        f"--onnx={source}",
        f"--save-engine={path}",
        *shapes,
    ]
    subprocess.run(command, check=True)
    source.unlink()
    return 2 * X + 1


def openvino(path: Path) -> Array:
    """OpenVINO's own format, from the ONNX graph."""
    import openvino as ov

    source = path.with_name("source.onnx")
    onnx(source)
    ov.save_model(ov.Core().read_model(source), path, compress_to_fp16=False)
    source.unlink()
    return 2 * X + 1


def _regression() -> tuple[Array, Array]:
    generator = np.random.default_rng(1)
    features = generator.normal(size=(200, 4)).astype(np.float32)
    return features, features @ np.array([1, -2, 3, 0.5], np.float32)


def xgboost(path: Path) -> Array:
    """Boosted trees of XGBoost."""
    import xgboost as xgb

    features, targets = _regression()
    model = xgb.XGBRegressor(n_estimators=10, max_depth=3, random_state=1).fit(features, targets)
    model.save_model(path)
    return np.asarray(model.predict(X)).reshape(-1, 1)


def lightgbm(path: Path) -> Array:
    """Boosted trees of LightGBM."""
    import lightgbm as lgb

    features, targets = _regression()
    settings = {"objective": "regression", "verbose": -1, "seed": 1, "num_threads": 1}
    booster = lgb.train(settings, lgb.Dataset(features, targets), num_boost_round=10)
    booster.save_model(path)
    return np.asarray(booster.predict(X)).reshape(-1, 1)


def treelite(path: Path) -> Array:
    """A forest of scikit-learn."""
    import treelite as tl
    from sklearn.ensemble import RandomForestRegressor

    features, targets = _regression()
    forest = RandomForestRegressor(n_estimators=5, max_depth=3, random_state=1).fit(features, targets)
    tl.sklearn.import_model(forest).serialize(path)
    return np.asarray(forest.predict(X)).reshape(-1, 1)


def python(path: Path) -> Array:
    """A class of Triton's Python backend."""
    path.write_text(
        """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.set_max_batch_size(4)
        config.set_dynamic_batching()
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [4]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [4]})
        return config

    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", 2 * array + 1)]) for array in arrays]
"""
    )
    return 2 * X + 1


BUILDERS: dict[str, Callable[[Path], Array]] = {
    each.__name__: each
    for each in (
        onnx, torchscript, exported, package, module, savedmodel, graphdef,
        openvino, xgboost, lightgbm, treelite, dali, dali_module, tensorrt, python,
    )
}  # fmt: skip


FAST = {
    "TF_USE_LEGACY_KERAS": "1",  # TensorFlow is imported without Keras, which costs as much again
    "TORCHINDUCTOR_VEC_ISA_OK": "0",  # AOTInductor compiles no program for each kind of vectors, to try it
    "AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL": "O0",  # nor does the compiler take its time
}


def main(directory: Path, *rows: str) -> None:
    """Write the files of the models, and their cases."""
    os.environ.update(FAST)
    for row in ROWS:
        if row.key in rows:
            version = directory / row.key / "m" / "1"
            version.mkdir(parents=True)
            expected = BUILDERS[row.key](version / row.file)
            case = {"x": X.tolist(), "y": expected.tolist()}
            (directory / row.key / "case.json").write_text(json.dumps(case))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
