"""Forests trained on the data that scikit-learn brings, and models loaded from their files."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

from halimede.backends.base import BackendOptions
from halimede.core.tensors import Array
from tests.backends.helpers import Loaded, source_of

Save = Callable[[Path], object]


@cache
def data(name: str) -> tuple[Array, Array]:
    """Features, FP32 with a few values missing, and targets: of `binary`, `classes` or `regression`."""
    load = {"binary": load_breast_cancer, "classes": load_iris, "regression": load_diabetes}[name]
    features, targets = load(return_X_y=True)
    features = features.astype(np.float32)
    features[np.random.default_rng(0).random(features.shape) < 0.05] = np.nan
    return features, targets


def load_forest(directory: Path, filename: str, save: Save, config: str = "") -> Loaded:
    """The model whose only version has the file that `save` writes."""
    version = directory / "m" / "1"
    version.mkdir(parents=True, exist_ok=True)
    save(version / filename)
    settings = {"default-max-batch-size": "1024"}
    return Loaded(source_of(directory, f'backend: "fil"\n{config}'), BackendOptions(settings=settings))


def parameter(key: str, value: str) -> str:
    """The parameter as a configuration has it."""
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def predict(model: Loaded, rows: Array) -> Array:
    """The model's output for the rows, of shape ``[rows, width]``."""
    output: Array = model(input__0=np.ascontiguousarray(rows))["output__0"]
    assert output.dtype == np.float32
    return output
