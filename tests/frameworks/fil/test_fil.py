"""Forests of XGBoost and scikit-learn, held against the library that trained them."""

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

treelite = pytest.importorskip("treelite", reason="forests need treelite")
xgboost = pytest.importorskip("xgboost", reason="forests of XGBoost are trained with xgboost")

from sklearn.ensemble import (  # noqa: E402
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)

from halimede.backends.base import BackendOptions, InstanceSpec  # noqa: E402
from halimede.backends.fil.backend import FilModel, TreeliteInstance  # noqa: E402
from halimede.backends.onnx.backend import OnnxInstance  # noqa: E402
from halimede.core.errors import UnsupportedError  # noqa: E402
from halimede.core.tensors import Array  # noqa: E402
from tests.backends.helpers import request  # noqa: E402
from tests.frameworks.fil.fil_models import data, load_forest, parameter, predict  # noqa: E402

CLASSES = parameter("output_class", "true")


def boosted(name: str, objective: str, **settings: Any) -> Any:
    """A trained XGBoost booster."""
    features, targets = data(name)
    matrix = xgboost.DMatrix(features, targets)
    return xgboost.train({"objective": objective, "max_depth": 4, "nthread": 1, **settings}, matrix, 20)


def truth(booster: Any, rows: Array) -> Array:
    """What XGBoost itself predicts, of shape ``[rows, width]``."""
    found: Array = booster.predict(xgboost.DMatrix(rows))
    return found.reshape(len(rows), -1)


@pytest.mark.parametrize("filename", ["xgboost.json", "xgboost.ubj"])
@pytest.mark.parametrize(
    ("name", "objective"),
    [
        ("binary", "binary:logistic"),
        ("binary", "binary:logitraw"),
        ("binary", "binary:hinge"),
        ("classes", "multi:softprob"),
        ("regression", "reg:squarederror"),
        ("regression", "count:poisson"),
        ("regression", "rank:pairwise"),
    ],
)
def test_xgboost_predicts_as_xgboost_does(tmp_path: Path, filename: str, name: str, objective: str) -> None:
    settings = {"num_class": 3} if name == "classes" else {}
    booster = boosted(name, objective, **settings)
    model = load_forest(tmp_path, filename, booster.save_model)
    features, _ = data(name)
    np.testing.assert_allclose(predict(model, features), truth(booster, features), rtol=1e-5, atol=1e-5)


def test_xgboost_dart_and_random_forests_predict_as_xgboost_does(tmp_path: Path) -> None:
    features, _ = data("classes")
    dart = boosted("classes", "multi:softprob", num_class=3, booster="dart", rate_drop=0.3)
    forest = boosted("classes", "multi:softprob", num_class=3, num_parallel_tree=3, subsample=0.5)
    for name, booster in (("dart", dart), ("forest", forest)):
        model = load_forest(tmp_path / name, "xgboost.json", booster.save_model)
        np.testing.assert_allclose(predict(model, features), truth(booster, features), atol=1e-5)


def test_a_binary_classifier_gives_classes_scores_or_both_scores(tmp_path: Path) -> None:
    booster = boosted("binary", "binary:logistic")
    features, _ = data("binary")
    scores = truth(booster, features)
    two = 'output { name: "output__0" data_type: TYPE_FP32 dims: 2 }\n' + parameter("predict_proba", "true")
    expected = {
        CLASSES: scores > 0.5,
        CLASSES + parameter("threshold", "0.9"): scores > 0.9,
        parameter("is_classifier", "true") + parameter("threshold", "0.9"): scores > 0.9,
        CLASSES + parameter("predict_proba", "true"): scores,
        parameter("output_class", "false"): scores,
        CLASSES + two: np.hstack([1 - scores, scores]),
    }
    for number, (config, wanted) in enumerate(expected.items()):
        model = load_forest(tmp_path / str(number), "xgboost.json", booster.save_model, config)
        np.testing.assert_allclose(predict(model, features), wanted.astype(np.float32), atol=1e-5)
    assert (expected[CLASSES] != expected[CLASSES + parameter("threshold", "0.9")]).any()


def test_a_classifier_of_three_classes_gives_classes_or_scores(tmp_path: Path) -> None:
    booster = boosted("classes", "multi:softprob", num_class=3)
    features, _ = data("classes")
    scores = truth(booster, features)
    classes = load_forest(tmp_path / "a", "xgboost.json", booster.save_model, CLASSES)
    assert predict(classes, features).tolist() == scores.argmax(axis=1)[:, None].tolist()
    config = CLASSES + parameter("predict_proba", "true")
    np.testing.assert_allclose(
        predict(load_forest(tmp_path / "b", "xgboost.json", booster.save_model, config), features),
        scores,
        atol=1e-5,
    )


def _categorical() -> tuple[Any, Array]:
    generator = np.random.default_rng(1)
    features = np.stack([generator.integers(0, 9, 400), generator.normal(size=400)], axis=1).astype(
        np.float32
    )
    targets = np.isin(features[:, 0], (1, 4, 7)) * 2.0 + features[:, 1]
    matrix = xgboost.DMatrix(
        features, targets, feature_types=["c", "q"], feature_names=["a", "b"], enable_categorical=True
    )
    booster = xgboost.train({"max_depth": 4, "max_cat_to_onehot": 2, "tree_method": "hist"}, matrix, 20)
    features[::9, 0] = np.nan
    features[::7, 1] = np.nan
    return booster, features


def test_categorical_features_are_sets_not_numbers(tmp_path: Path) -> None:
    booster, features = _categorical()
    model = load_forest(tmp_path, "xgboost.json", booster.save_model)
    assert isinstance(model.instance, TreeliteInstance)
    matrix = xgboost.DMatrix(
        features, feature_types=["c", "q"], feature_names=["a", "b"], enable_categorical=True
    )
    np.testing.assert_allclose(predict(model, features)[:, 0], booster.predict(matrix), atol=1e-5)


@pytest.mark.parametrize(
    ("name", "estimator", "method"),
    [
        ("binary", RandomForestClassifier(25, random_state=0), "predict_proba"),
        ("classes", RandomForestClassifier(25, random_state=0), "predict_proba"),
        ("regression", RandomForestRegressor(25, random_state=0), "predict"),
        ("regression", ExtraTreesRegressor(25, random_state=0), "predict"),
        ("binary", GradientBoostingClassifier(n_estimators=25), "predict_proba"),
        ("classes", GradientBoostingClassifier(n_estimators=25), "predict_proba"),
        ("classes", HistGradientBoostingClassifier(max_iter=25), "predict_proba"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
def test_scikit_learn_by_way_of_a_checkpoint_predicts_as_scikit_learn_does(
    tmp_path: Path, name: str, estimator: Any, method: str
) -> None:
    features, targets = data(name)
    features = np.nan_to_num(features)
    estimator.fit(features, targets)
    forest = treelite.sklearn.import_model(estimator)
    model = load_forest(tmp_path, "checkpoint.tl", forest.serialize)
    assert isinstance(model.instance, OnnxInstance)
    wanted = getattr(estimator, method)(features).reshape(len(features), -1)
    width = model.config.output[0].dims[0]
    np.testing.assert_allclose(predict(model, features), wanted[:, -width:], rtol=1e-5, atol=1e-5)


def test_two_averaged_classes_obey_the_threshold(tmp_path: Path) -> None:
    features, targets = data("binary")
    features = np.nan_to_num(features)
    estimator = RandomForestClassifier(25, max_depth=3, random_state=0).fit(features, targets)
    save = treelite.sklearn.import_model(estimator).serialize
    scores = estimator.predict_proba(features)[:, 1:]
    plain = load_forest(tmp_path / "a", "checkpoint.tl", save, CLASSES)
    assert predict(plain, features)[:, 0].tolist() == estimator.predict(features).tolist()
    strict = load_forest(tmp_path / "b", "checkpoint.tl", save, CLASSES + parameter("threshold", "0.9"))
    assert predict(strict, features).tolist() == (scores > 0.9).tolist()


def test_what_onnx_has_no_words_for_treelite_computes(tmp_path: Path) -> None:
    features, targets = data("regression")
    features = np.nan_to_num(features)
    isolation = IsolationForest(n_estimators=10, random_state=0).fit(features)
    several = RandomForestRegressor(10, random_state=0).fit(features, np.stack([targets, -targets], axis=1))
    expected = {
        "isolation": -isolation.score_samples(features)[:, None],
        "several": several.predict(features),
    }
    for name, estimator in (("isolation", isolation), ("several", several)):
        save = treelite.sklearn.import_model(estimator).serialize
        model = load_forest(tmp_path / name, "checkpoint.tl", save)
        assert isinstance(model.instance, TreeliteInstance)
        np.testing.assert_allclose(predict(model, features), expected[name], rtol=1e-5, atol=1e-5)


def test_a_batch_runs_once_and_each_request_gets_its_rows(tmp_path: Path) -> None:
    booster, features = _categorical()
    numeric = boosted("classes", "multi:softprob", num_class=3)
    for name, each, rows in (("onnx", numeric, data("classes")[0]), ("treelite", booster, features)):
        model = load_forest(tmp_path / name, "xgboost.json", each.save_model)
        alone = predict(model, rows[:8])
        pieces = [rows[:1], rows[1:4], rows[4:8]]
        responses = model.run(*(request({"input__0": np.ascontiguousarray(piece)}) for piece in pieces))
        arrays = [response.outputs["output__0"].array for response in responses]
        assert [len(array) for array in arrays] == [1, 3, 4]
        np.testing.assert_allclose(np.concatenate(arrays), alone, atol=1e-6)


def test_instances_share_the_forest(tmp_path: Path) -> None:
    model = load_forest(tmp_path, "xgboost.json", boosted("binary", "binary:logistic").save_model)
    second = model.backend.create_instance(InstanceSpec("m_1", 1))
    assert isinstance(model.instance, OnnxInstance)
    assert isinstance(second, OnnxInstance)
    first, other = (getattr(each._run, "__self__", None) for each in (model.instance, second))  # noqa: SLF001 - the framework's call, whose sharing or number no answer tells
    assert first is not None
    assert first is other


def test_an_instance_on_a_gpu_is_refused(tmp_path: Path) -> None:
    model = load_forest(tmp_path, "xgboost.json", boosted("binary", "binary:logistic").save_model)
    with pytest.raises(UnsupportedError, match="forests run on the CPU only; use KIND_CPU or KIND_AUTO"):
        model.backend.create_instance(InstanceSpec("m_0", kind="KIND_GPU"))


def test_closing_gives_the_forest_back(tmp_path: Path) -> None:
    booster, _ = _categorical()
    model = load_forest(tmp_path, "xgboost.json", booster.save_model)
    assert isinstance(model.backend, FilModel)
    held = weakref.ref(model.backend._forest)  # noqa: SLF001 - that it is freed shows in a weak reference only
    model.close()
    gc.collect()
    assert held() is None


def test_large_batches_use_the_threads_of_the_server_or_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    booster, features = _categorical()
    model = load_forest(tmp_path, "xgboost.json", booster.save_model)
    asked: list[int] = []
    compute = treelite.gtil.predict

    def spy(forest: object, rows: Array, *, nthread: int) -> Array:
        asked.append(nthread)
        found: Array = compute(forest, rows, nthread=1)
        return found

    monkeypatch.setattr(treelite.gtil, "predict", spy)
    source = model.backend.source
    backend = FilModel(source, BackendOptions(cpu_threads=3))
    for threads in ("", "2", "0"):
        if threads:
            source.config.parameters["intra_op_thread_count"].string_value = threads
        model.instance = backend.create_instance(InstanceSpec("m_0"))
        predict(model, features)
        predict(model, features[:1])
    assert asked == [3, 1, 2, 1, 3, 1]
