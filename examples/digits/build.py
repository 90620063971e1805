"""Train a digit classifier on scikit-learn's handwritten digits and write it as a model of a repository.

The model takes pictures as they are, `image` UINT8 [8, 8] with 0 for paper and 16 for ink, and gives
`probabilities` FP32 [10].
"""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

HERE = Path(__file__).parent
INK = 16  # the value of a pixel that is all ink
SHOWN = 7  # the digit of the picture to send


def build(repository: Path) -> str:
    """A line that says how good the model is; the model is then in the repository.

    Beside the repository lies a picture of a seven that the training never saw, as files for curl:
    `digit.bin` (64 bytes, row by row), `digit.npy` (an array) and `digit.json` (a request with the picture in it).
    """
    digits = load_digits()
    train_x, test_x, train_y, test_y = train_test_split(
        digits.images.astype(np.uint8), digits.target, test_size=0.2, random_state=7, stratify=digits.target
    )
    classifier = train(train_x, train_y)
    accuracy = float(classifier.score(test_x.reshape(len(test_x), -1) / INK, test_y))

    model = repository / "digits"
    (model / "1").mkdir(parents=True, exist_ok=True)
    onnx.save(to_onnx(classifier), model / "1" / "model.onnx")
    for name in ("config.pbtxt", "labels.txt"):
        shutil.copy(HERE / name, model / name)
    write_picture(repository.parent, test_x[test_y == SHOWN][0])
    return f"digits: {accuracy:.1%} of {len(test_y)} pictures that it was not trained on are told right"


def train(images: NDArray[np.uint8], targets: NDArray[np.int64]) -> MLPClassifier:
    """A classifier, trained in a few seconds: images [n, 8, 8], targets [n]."""
    classifier = MLPClassifier(hidden_layer_sizes=(64,), max_iter=120, random_state=7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a few rounds are enough here
        classifier.fit(images.reshape(len(images), -1) / INK, targets)
    return classifier


def to_onnx(classifier: MLPClassifier) -> onnx.ModelProto:
    """The classifier as an ONNX model whose first dimension, the batch, is free."""
    (hidden_weights, output_weights), (hidden_bias, output_bias) = classifier.coefs_, classifier.intercepts_
    constants: dict[str, NDArray[Any]] = {
        "row": np.array([-1, 64], np.int64),
        "ink": np.array(INK, np.float32),
        "hidden_weights": hidden_weights.astype(np.float32),
        "hidden_bias": hidden_bias.astype(np.float32),
        "output_weights": output_weights.astype(np.float32),
        "output_bias": output_bias.astype(np.float32),
    }
    nodes = [
        helper.make_node("Reshape", ["image", "row"], ["pixels"]),
        helper.make_node("Cast", ["pixels"], ["darkness"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["darkness", "ink"], ["scaled"]),
        helper.make_node("Gemm", ["scaled", "hidden_weights", "hidden_bias"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("Gemm", ["active", "output_weights", "output_bias"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, ["batch", 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def write_picture(directory: Path, image: NDArray[np.uint8]) -> None:
    """Write the picture as raw bytes and as a JSON request."""
    (directory / "digit.bin").write_bytes(image.tobytes())
    np.save(directory / "digit.npy", image)
    rows = ",\n    ".join(json.dumps(row) for row in image.tolist())
    (directory / "digit.json").write_text(
        '{"inputs": [{"name": "image", "datatype": "UINT8", "shape": [1, 8, 8], "data": [\n'
        f"    {rows}]}}],\n"
        ' "outputs": [{"name": "probabilities", "parameters": {"classification": 3}}]}\n'
    )
