"""Which kinds of models there are: the rows of the matrix that `test_matrix` runs and the README shows.

Each cell that the table shows is a test that runs; what a row says of itself here, the tests hold it to.
"""

import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_FOREST: dict[str, Any] = {"backend": "fil", "input": "input__0", "output": "output__0", "width": 1}


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of model.

    Attributes:
        key: its short name.
        title: how the table names it.
        file: the model's file, as in its version directory.
        page: the page of docs/ that is about it.
        modules: what must be installed to make and serve it.
        backend: the backend that the configuration names; "" where the file's name tells it.
        config: further lines that the configuration must have.
        ports: its inputs and outputs must be listed too, as the file does not tell them.
        isolated: it runs in worker processes unless the configuration says otherwise.
        gpu: it needs an NVIDIA GPU.
        truncated: the file that is cut off to make it bad, where `file` is a directory.
        input, output: their names.
        width: elements of a row of its output.
        variable: the file does not tell how long a row is.
        compiled: a C++ compiler is needed to make it.
    """

    key: str
    title: str
    file: str
    page: str
    modules: tuple[str, ...]
    backend: str = ""
    config: str = ""
    ports: bool = False
    isolated: bool = False
    gpu: bool = False
    truncated: str = ""
    input: str = "x"
    output: str = "y"
    width: int = 4
    variable: bool = False
    compiled: bool = False

    @property
    def missing(self) -> str:
        """What is not there that it needs, "" for nothing. Imports none of it."""
        if self.gpu and not Path("/dev/nvidia0").exists():
            return "there is no NVIDIA GPU"
        if self.compiled and not any(map(shutil.which, ("g++", "clang++"))):
            return "there is no C++ compiler"
        missing = [module for module in self.modules if not _is_installed(module)]
        return f"not installed: {', '.join(missing)}" if missing else ""


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the package that it would be in
        return False


ROWS = (
    Row("onnx", "ONNX", "model.onnx", "onnx.md", ("onnxruntime", "onnx")),
    Row("torchscript", "PyTorch, TorchScript", "model.pt", "pytorch.md", ("torch",), ports=True),
    Row(
        "exported", "PyTorch, `torch.export`", "model.pt2", "pytorch.md", ("torch",), output="OUTPUT__0",
    ),
    Row(
        "package", "PyTorch, AOTInductor", "model.pt2", "pytorch.md", ("torch",),
        isolated=True, input="INPUT__0", output="OUTPUT__0", compiled=True,
    ),
    Row(
        "module", "PyTorch, `nn.Module`", "model.py", "pytorch.md", ("torch",),
        backend="pytorch", config='runtime: "model.py"', ports=True, isolated=True,
    ),
    Row(
        "savedmodel", "TensorFlow, SavedModel", "model.savedmodel", "tensorflow.md", ("tensorflow",),
        isolated=True, truncated="saved_model.pb",
    ),
    Row(
        "graphdef", "TensorFlow, GraphDef", "model.graphdef", "tensorflow.md", ("tensorflow",),
        ports=True, isolated=True,
    ),
    Row("openvino", "OpenVINO", "model.xml", "openvino.md", ("openvino", "onnx")),
    Row(
        "xgboost", "XGBoost", "xgboost.json", "fil.md", ("treelite", "xgboost"),
        config='parameters { key: "model_type" value { string_value: "xgboost_json" } }', **_FOREST,
    ),
    Row(
        "lightgbm", "LightGBM", "model.txt", "fil.md", ("treelite", "lightgbm"),
        config='parameters { key: "model_type" value { string_value: "lightgbm" } }', **_FOREST,
    ),
    Row(
        "treelite", "scikit-learn forests, through treelite", "checkpoint.tl", "fil.md", ("treelite", "sklearn"),
        config='parameters { key: "model_type" value { string_value: "treelite_checkpoint" } }', **_FOREST,
    ),
    Row("dali", "DALI, serialized", "model.dali", "dali.md", ("nvidia.dali",), variable=True),
    Row("dali_module", "DALI, module", "dali.py", "dali.md", ("nvidia.dali",), variable=True),
    Row("tensorrt", "TensorRT", "model.plan", "tensorrt.md", ("tensorrt", "cuda"), gpu=True),
    Row("python", "Python class", "model.py", "python-models.md", (), isolated=True),
)  # fmt: skip
