"""Forests of LightGBM, held against LightGBM."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("treelite", reason="forests need treelite")
lightgbm = pytest.importorskip("lightgbm", reason="forests of LightGBM are trained with lightgbm")

from halimede.backends.fil.backend import TreeliteInstance  # noqa: E402
from halimede.core.errors import InvalidArgumentError  # noqa: E402
from tests.frameworks.fil.fil_models import data, load_forest, predict  # noqa: E402


def boosted(name: str, objective: str, **settings: Any) -> Any:
    """A trained LightGBM booster."""
    features, targets = data(name)
    parameters = {"objective": objective, "verbose": -1, "num_threads": 1, "min_data_in_leaf": 5, **settings}
    return lightgbm.train(parameters, lightgbm.Dataset(features, targets), 20)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("binary", {"objective": "binary"}),
        ("binary", {"objective": "binary", "sigmoid": 2.0}),
        ("binary", {"objective": "binary", "use_missing": False}),
        ("classes", {"objective": "multiclass", "num_class": 3}),
        ("classes", {"objective": "multiclassova", "num_class": 3}),
        ("regression", {"objective": "regression"}),
        ("regression", {"objective": "poisson"}),
        (
            "classes",
            {
                "objective": "multiclass",
                "num_class": 3,
                "boosting": "rf",
                "bagging_freq": 1,
                "bagging_fraction": 0.7,
            },
        ),
    ],
    ids=str,
)
def test_lightgbm_predicts_as_lightgbm_does(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    booster = boosted(name, **settings)
    model = load_forest(tmp_path, "model.txt", booster.save_model)
    features, _ = data(name)
    wanted = booster.predict(features).reshape(len(features), -1)
    np.testing.assert_allclose(predict(model, features), wanted, rtol=1e-5, atol=1e-5)


def test_thresholds_between_two_fp32_numbers_divide_as_in_fp64(tmp_path: Path) -> None:
    features = np.array([[1.0], [np.nextafter(np.float32(1), np.float32(2))]] * 50, np.float32)
    targets = np.array([0.0, 1.0] * 50)
    parameters = {"objective": "regression", "verbose": -1, "min_data_in_leaf": 1, "num_threads": 1}
    booster = lightgbm.train(parameters, lightgbm.Dataset(features, targets), 5)
    model = load_forest(tmp_path, "model.txt", booster.save_model)
    np.testing.assert_allclose(predict(model, features)[:, 0], booster.predict(features), atol=1e-6)
    assert len(set(predict(model, features)[:2, 0].tolist())) == 2


def test_categorical_features_are_sets_not_numbers(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    features = np.stack([generator.integers(0, 9, 400), generator.normal(size=400)], axis=1).astype(
        np.float32
    )
    targets = np.isin(features[:, 0], (1, 4, 7)) * 2.0 + features[:, 1]
    parameters = {"objective": "regression", "verbose": -1, "num_threads": 1}
    dataset = lightgbm.Dataset(features, targets, categorical_feature=[0])
    booster = lightgbm.train(parameters, dataset, 20)
    model = load_forest(tmp_path, "model.txt", booster.save_model)
    assert isinstance(model.instance, TreeliteInstance)
    features[::9, 0] = np.nan
    np.testing.assert_allclose(predict(model, features)[:, 0], booster.predict(features), atol=1e-5)


def test_trees_of_one_leaf_predict_as_lightgbm_does(tmp_path: Path) -> None:
    features = np.zeros((50, 2), np.float32)
    parameters = {"objective": "regression", "verbose": -1, "num_threads": 1}
    booster = lightgbm.train(parameters, lightgbm.Dataset(features, np.arange(50.0)), 3)
    model = load_forest(tmp_path, "model.txt", booster.save_model)
    np.testing.assert_allclose(predict(model, features)[:, 0], booster.predict(features), atol=1e-5)


def test_a_file_that_ends_between_two_trees_is_refused(tmp_path: Path) -> None:
    text = boosted("binary", "binary").model_to_string()
    cut = text[: text.index("Tree=12")]

    with pytest.raises(InvalidArgumentError, match="truncated: it should have 20 trees, but has 12"):
        load_forest(tmp_path, "model.txt", lambda path: path.write_text(cut))
