"""Large batches of XGBoost's forests, which XGBoost itself computes."""

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

treelite = pytest.importorskip("treelite", reason="forests need treelite")
xgboost = pytest.importorskip("xgboost", reason="forests of XGBoost are trained with xgboost")

from halimede.backends.base import BackendOptions  # noqa: E402
from halimede.backends.fil import booster as fil_booster  # noqa: E402
from halimede.backends.fil import xgboost as fil_xgboost  # noqa: E402
from halimede.backends.fil.booster import Booster, BoosterError  # noqa: E402
from halimede.backends.fil.xgboost import MIN_ROWS, XgboostInstance  # noqa: E402
from halimede.core.errors import InternalError  # noqa: E402
from halimede.core.tensors import Array  # noqa: E402
from tests.backends.helpers import Loaded, request, source_of  # noqa: E402
from tests.frameworks.fil.fil_models import data, load_forest, parameter, predict  # noqa: E402

CLASSES = parameter("output_class", "true")
BOTH = 'output { name: "output__0" data_type: TYPE_FP32 dims: 2 }\n' + parameter("predict_proba", "true")


def boosted(name: str, objective: str, **settings: Any) -> Any:
    """A trained XGBoost booster."""
    features, targets = data(name)
    matrix = xgboost.DMatrix(features, targets)
    return xgboost.train({"objective": objective, "max_depth": 4, "nthread": 1, **settings}, matrix, 20)


def many(name: str, rows: int = MIN_ROWS) -> Array:
    """So many rows, with missing values, extremes and infinities among them."""
    features, _ = data(name)
    found: Array = np.resize(features, (rows, features.shape[1])).astype(np.float32)
    found[:4, 0] = (np.inf, -np.inf, 1e38, -1e38)[:rows]
    return found


def by_rows(model: Loaded, rows: Array) -> Array:
    """The model's output for the rows, in batches that ONNX Runtime computes."""
    return np.concatenate([predict(model, rows[start : start + 100]) for start in range(0, len(rows), 100)])


@pytest.mark.parametrize(
    ("name", "objective", "config"),
    [
        ("binary", "binary:logistic", ""),
        ("binary", "binary:logistic", CLASSES),
        ("binary", "binary:logistic", CLASSES + parameter("threshold", "0.9")),
        ("binary", "binary:logistic", BOTH),
        ("binary", "binary:logitraw", ""),
        ("classes", "multi:softprob", ""),
        ("classes", "multi:softprob", CLASSES),
        ("regression", "reg:squarederror", ""),
        ("regression", "count:poisson", ""),
        ("regression", "rank:pairwise", ""),
    ],
)
@pytest.mark.parametrize("filename", ["xgboost.json", "xgboost.ubj", "xgboost.model"])
def test_large_batches_have_the_numbers_of_small_ones(
    tmp_path: Path, filename: str, name: str, objective: str, config: str
) -> None:
    settings = {"num_class": 3} if name == "classes" else {}
    booster = boosted(name, objective, **settings)
    scratch = tmp_path / Path(filename).with_suffix(".ubj").name if filename == "xgboost.model" else None

    def save(path: Path) -> None:
        booster.save_model(scratch or path)
        if scratch:
            scratch.replace(path)

    model = load_forest(tmp_path, filename, save, config)
    assert isinstance(model.instance, XgboostInstance)
    rows = many(name, 700)
    # an exponential multiplies what rounding adds
    within = 1e-5 if objective == "count:poisson" else 1e-6
    np.testing.assert_allclose(predict(model, rows), by_rows(model, rows), rtol=within, atol=1e-6)


def test_xgboost_computes_batches_from_256_rows_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_forest(tmp_path, "xgboost.json", boosted("binary", "binary:logistic").save_model)
    asked: list[int] = []
    compute = Booster.predict

    def spy(booster: Booster, rows: Array) -> Array:
        asked.append(len(rows))
        return compute(booster, rows)

    monkeypatch.setattr(Booster, "predict", spy)
    for count in (1, 255, 256, 1024):
        predict(model, many("binary", count))
    responses = model.run(*(request({"input__0": many("binary", count)}) for count in (300, 400)))
    assert [len(response.outputs["output__0"].array) for response in responses] == [300, 400]
    assert asked == [256, 1024, 700]


@pytest.mark.parametrize("objective", ["multi:softmax", "binary:hinge"])
def test_a_forest_of_which_xgboost_gives_classes_keeps_its_scores(tmp_path: Path, objective: str) -> None:
    name, settings = ("classes", {"num_class": 3}) if objective == "multi:softmax" else ("binary", {})
    model = load_forest(tmp_path, "xgboost.json", boosted(name, objective, **settings).save_model)
    assert not isinstance(model.instance, XgboostInstance)
    rows = many(name)
    np.testing.assert_allclose(predict(model, rows), by_rows(model, rows), atol=1e-6)


@pytest.mark.parametrize(
    ("batch", "threads", "config"),
    [("255", 1, ""), ("1024", 2, ""), ("1024", 1, parameter("intra_op_thread_count", "2"))],
)
def test_small_batches_and_several_threads_leave_xgboost_out(
    tmp_path: Path, batch: str, threads: int, config: str
) -> None:
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    boosted("binary", "binary:logistic").save_model(version / "xgboost.json")
    options = BackendOptions(cpu_threads=threads, settings={"default-max-batch-size": batch})
    model = Loaded(source_of(tmp_path, f'backend: "fil"\n{config}'), options)
    assert not isinstance(model.instance, XgboostInstance)


def test_without_xgboost_onnx_runtime_computes_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    booster = boosted("binary", "binary:logistic")
    expected = predict(load_forest(tmp_path / "a", "xgboost.json", booster.save_model), many("binary"))
    monkeypatch.setattr(fil_xgboost, "library", lambda: None)
    model = load_forest(tmp_path / "b", "xgboost.json", booster.save_model)
    assert not isinstance(model.instance, XgboostInstance)
    np.testing.assert_allclose(predict(model, many("binary")), expected, atol=1e-6)


def test_an_error_of_xgboost_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_forest(tmp_path, "xgboost.json", boosted("binary", "binary:logistic").save_model)
    monkeypatch.setattr(fil_booster, "_VALUES", b"{}")
    with pytest.raises(InternalError, match="xgboost error: Argument `type` is required"):
        predict(model, many("binary"))


def test_bytes_that_are_no_forest_are_an_error() -> None:
    with pytest.raises(BoosterError):
        Booster(b"{}")


def test_closing_gives_the_booster_back(tmp_path: Path) -> None:
    model = load_forest(tmp_path, "xgboost.json", boosted("binary", "binary:logistic").save_model)
    assert isinstance(model.instance, XgboostInstance)
    held = weakref.ref(model.instance._booster)  # noqa: SLF001 - that it is freed shows in a weak reference only
    model.close()
    gc.collect()
    assert held() is None
