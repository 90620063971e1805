"""Models as users bring them, without a configuration and under names of their own: served, or told what to do."""

import json
import pickle
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support import onnx_models
from tests.support.server import ServerProcess, run_command, start_server

torch = pytest.importorskip("torch", reason="TorchScript needs torch")
xgboost = pytest.importorskip("xgboost", reason="forests of XGBoost are trained with xgboost")
lightgbm = pytest.importorskip("lightgbm", reason="forests of LightGBM are trained with lightgbm")
sklearn_datasets = pytest.importorskip("sklearn.datasets", reason="the flowers come with scikit-learn")
sklearn_ensemble = pytest.importorskip("sklearn.ensemble", reason="pickles are made of scikit-learn's models")
pytest.importorskip("treelite", reason="forests need treelite")
from tests.frameworks.pytorch import torch_models  # noqa: E402

TENSORS = (
    'max_batch_size: 8 input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } '
    'output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 4 ] }'
)
SKL2ONNX = 'skl2onnx.to_onnx(model, X[:1], options={"zipmap": False})'
CHECKPOINT = "treelite.sklearn.import_model(model).serialize('1/checkpoint.tl')"

PYTHON = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [4]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [4]})
        return config

    def execute(self, requests):
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor("y", pb_utils.get_input_tensor_by_name(each, "x").as_numpy())]
            )
            for each in requests
        ]
"""


def zipmap() -> onnx.ModelProto:
    """What skl2onnx makes of a classifier unless it is told otherwise: one dictionary a row."""
    scores = helper.make_map_type_proto(
        TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    )
    graph = helper.make_graph(
        [
            helper.make_node("Identity", ["X"], ["probabilities"]),
            helper.make_node(
                "ZipMap",
                ["probabilities"],
                ["output_probability"],
                domain="ai.onnx.ml",
                classlabels_int64s=[0, 1, 2, 3],
            ),
        ],
        "classifier",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", 4])],
        [helper.make_value_info("output_probability", helper.make_sequence_type_proto(scores))],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")

    def place(name: str, config: str = "", version: str = "1") -> Path:
        directory = root / name / version
        directory.mkdir(parents=True)
        if config:
            (root / name / "config.pbtxt").write_text(config)
        return directory

    features, classes = sklearn_datasets.load_iris(return_X_y=True)
    parameters = {"objective": "multi:softprob", "num_class": 3}
    booster = xgboost.train(parameters, xgboost.DMatrix(features, classes), 2)
    for name in ("xgboost.json", "xgboost.ubj", "iris.json", "iris.ubj", "model.json"):
        booster.save_model(place(name.replace(".", "_")) / name)
    trained = lightgbm.train(
        {"objective": "multiclass", "num_class": 3, "verbose": -1}, lightgbm.Dataset(features, classes), 2
    )
    for name in ("model.txt", "iris.txt"):
        trained.save_model(place(name.replace(".", "_")) / name)
        (root / name.replace(".", "_") / "1" / "notes.txt").write_text("one\ntwo\n")
    forest = pickle.dumps(sklearn_ensemble.RandomForestClassifier(2).fit(features, classes))
    (place("pickled") / "model.pkl").write_bytes(forest)
    (place("joblib") / "iris.joblib").write_bytes(forest)
    (place("fil_joblib", 'backend: "fil"') / "iris.joblib").write_bytes(forest)
    identity = onnx_models.identity(dims=(4,))
    onnx.save(identity, place("iris_onnx") / "iris.onnx")
    onnx.save(identity, place("iris_onnx_with_backend", 'backend: "onnxruntime"') / "iris.onnx")
    for name in ("a.onnx", "b.onnx"):
        onnx.save(identity, (root / "several" / "1" if name == "b.onnx" else place("several")) / name)
    onnx.save(identity, place("outside").parent / "model.onnx")
    (root / "outside" / "1").rmdir()
    onnx.save(identity, place("wrong_backend", 'backend: "pytorch"') / "model.onnx")
    onnx.save(identity, place("leading_zeros", version="001") / "model.onnx")
    onnx.save(zipmap(), place("zipmap") / "model.onnx")
    torch_models.save_script(place("torchscript", TENSORS) / "model.pt", torch_models.RenamedSelf())
    torch_models.save_script(place("iris_pt", TENSORS) / "iris.pt", torch_models.RenamedSelf())
    torch_models.save_script(place("torchscript_bare") / "model.pt", torch_models.RenamedSelf())
    torch.save(torch_models.RenamedSelf().state_dict(), place("weights", TENSORS) / "model.pt")
    (place("keras") / "model.keras").write_bytes(b"PK")
    (place("python") / "iris.py").write_text(PYTHON)
    return root


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[ServerProcess]:
    with start_server(repository, "--model-control-mode=explicit") as running:
        yield running


def post(server: ServerProcess, path: str, document: object) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"http://{server.http}{path}", json.dumps(document).encode(), method="POST"
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def check(repository: Path) -> dict[str, list[dict[str, str]]]:
    output = run_command("check", "--format", "json", str(repository), timeout=120).stdout
    found: dict[str, list[dict[str, str]]] = {}
    for problem in json.loads(output)["problems"]:
        found.setdefault(problem["model"], []).append(problem)
    return found


@pytest.fixture(scope="module")
def checked(repository: Path) -> dict[str, list[dict[str, str]]]:
    return check(repository)


@pytest.mark.parametrize(
    ("model", "tensor"),
    [
        ("xgboost_json", "input__0"),
        ("xgboost_ubj", "input__0"),
        ("iris_json", "input__0"),
        ("iris_ubj", "input__0"),
        ("model_json", "input__0"),
        ("model_txt", "input__0"),
        ("iris_txt", "input__0"),
        ("iris_onnx", "INPUT0"),
        ("iris_onnx_with_backend", "INPUT0"),
        ("torchscript", "x"),
        ("iris_pt", "x"),
        ("python", "x"),
    ],
)
def test_what_lies_in_the_directory_is_served(
    server: ServerProcess, checked: dict[str, list[dict[str, str]]], model: str, tensor: str
) -> None:
    assert post(server, f"/v2/repository/models/{model}/load", {}) == (200, {})
    shape = [4] if model == "python" else [1, 4]
    row = {"name": tensor, "datatype": "FP32", "shape": shape, "data": [5.1, 3.5, 1.4, 0.2]}
    status, answer = post(server, f"/v2/models/{model}/infer", {"inputs": [row]})
    assert status == 200, answer
    (output,) = answer["outputs"]
    if tensor == "input__0":
        assert np.isclose(sum(output["data"]), 1, atol=1e-5)
    else:
        added = 1 if model in ("torchscript", "iris_pt") else 0
        np.testing.assert_allclose(output["data"], np.add([5.1, 3.5, 1.4, 0.2], added), rtol=1e-6)
    assert model not in checked


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("pickled", [SKL2ONNX, CHECKPOINT, "pickles are never loaded"]),
        ("joblib", [SKL2ONNX, CHECKPOINT, "pickles are never loaded"]),
        ("fil_joblib", [SKL2ONNX, CHECKPOINT, "pickles are never loaded"]),
        ("several", ["a.onnx, b.onnx", 'default_model_filename: "a.onnx"']),
        ("outside", ["make the directory {}/outside/1 and move model.onnx into it"]),
        ("wrong_backend", ['backend: "onnxruntime"']),
        ("leading_zeros", ["rename {0}/leading_zeros/001 to {0}/leading_zeros/1"]),
        ("zipmap", [SKL2ONNX, "Unsupported ONNX Type 'ONNX_TYPE_SEQUENCE' for I/O 'output_probability'"]),
        (
            "torchscript_bare",
            [
                'input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }',
                'output { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ -1 ] }',
            ],
        ),
        ("weights", ["torch.jit.save or torch.export.save"]),
        ("keras", ["model.export('1/model.savedmodel')"]),
    ],
)
def test_what_cannot_be_served_is_answered_with_what_to_do(
    server: ServerProcess,
    repository: Path,
    checked: dict[str, list[dict[str, str]]],
    model: str,
    told: list[str],
) -> None:
    status, answer = post(server, f"/v2/repository/models/{model}/load", {})
    assert status in (400, 500)
    (problem,) = checked[model]
    for text in told:
        expected = text.replace("{}", str(repository)).replace("{0}", str(repository))
        assert expected in str(answer["error"])
        assert expected in f"{problem['message']} fix: {problem['fix']}"


def test_a_pickle_is_never_read(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return Path.touch, (tmp_path / "sprung",)

    directory = tmp_path / "models" / "m" / "1"
    directory.mkdir(parents=True)
    (directory / "model.pkl").write_bytes(pickle.dumps(Trap()))
    assert "pickles are never loaded" in check(tmp_path / "models")["m"][0]["message"]
    assert not (tmp_path / "sprung").exists()


def test_a_repository_that_is_a_model_is_refused_with_the_directory_to_name(
    repository: Path, tmp_path: Path
) -> None:
    for arguments in (
        ("serve", "--model-repository", f"{repository}/iris_onnx"),
        ("check", f"{repository}/outside"),
    ):
        result = run_command(*arguments)
        assert result.returncode in (1, 2)
        model = Path(arguments[-1]).name
        assert (
            f"is a model, not a directory of models; name the directory around it, '{repository}'"
            in result.stderr
        )
        assert f"--model-control-mode=explicit --load-model={model}" in result.stderr
    # a model may well be called 1, and have an ensemble's empty version
    shutil.copytree(repository / "iris_onnx", tmp_path / "1")
    (tmp_path / "2" / "1").mkdir(parents=True)
    assert run_command("check", str(tmp_path)).returncode == 1
