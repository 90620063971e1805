"""Forests give their memory back."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

treelite = pytest.importorskip("treelite", reason="forests need treelite")
xgboost = pytest.importorskip("xgboost", reason="forests of XGBoost are trained with xgboost")

from sklearn.ensemble import RandomForestRegressor  # noqa: E402

from halimede.backends.base import Instance  # noqa: E402
from halimede.backends.fil.backend import TreeliteInstance  # noqa: E402
from halimede.backends.fil.xgboost import MIN_ROWS, XgboostInstance  # noqa: E402
from halimede.backends.onnx.backend import OnnxInstance  # noqa: E402
from tests.backends.helpers import Loaded  # noqa: E402
from tests.backends.memory import memory_over_loads  # noqa: E402
from tests.frameworks.fil.fil_models import data, load_forest, predict  # noqa: E402

KINDS: dict[str, type[Instance]] = {
    "onnx": OnnxInstance,
    "treelite": TreeliteInstance,
    "xgboost": XgboostInstance,
}
FILES = {"onnx": "checkpoint.tl", "treelite": "checkpoint.tl", "xgboost": "xgboost.ubj"}


def load_trees(directory: str, computed_by: str) -> Callable[[], Loaded]:
    """What loads a forest that this computes, and runs it."""
    logging.disable()
    features, targets = data("regression")
    features = np.nan_to_num(features)
    save: Callable[[Any], Any]
    if computed_by == "xgboost":
        matrix = xgboost.DMatrix(features, targets)
        save = xgboost.train({"max_depth": 8, "nthread": 1}, matrix, 60).save_model
    else:
        if computed_by == "treelite":
            targets = np.stack([targets, -targets], axis=1)
        forest = RandomForestRegressor(6, random_state=0).fit(features, targets)
        save = treelite.sklearn.import_model(forest).serialize
    rows = np.resize(features, (MIN_ROWS if computed_by == "xgboost" else 64, features.shape[1]))

    def load_and_run() -> Loaded:
        loaded = load_forest(Path(directory), FILES[computed_by], save)
        assert type(loaded.instance) is KINDS[computed_by]
        predict(loaded, rows)
        return loaded

    return load_and_run


@pytest.mark.parametrize("computed_by", ["onnx", "treelite", "xgboost"])
def test_memory_is_flat_over_100_loads(tmp_path: Path, computed_by: str) -> None:
    memory = memory_over_loads(load_trees, tmp_path, computed_by, loads=100)
    size = (tmp_path / "m" / "1" / FILES[computed_by]).stat().st_size / 2**20
    # a tenth of what would be left if nothing but the file's bytes stayed
    assert size > 0.2, size
    assert memory.grown < 10 * size, (memory, size)
