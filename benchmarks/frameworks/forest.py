"""Trees that XGBoost has trained; the faster of XGBoost itself and ONNX Runtime on the same trees predicts."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import treelite
import xgboost

from benchmarks.frameworks.framework import FOREST_FEATURES, Call, Size
from benchmarks.frameworks.inputs import numbers
from halimede.backends.fil.forest import ForestSpec, OutputForm
from halimede.backends.fil.onnx import INPUT, to_onnx

FILE = "xgboost.ubj"
TREES = {Size.SMALL: 100, Size.LARGE: 200}
DEPTH = 8
ROWS = 20_000
PROBE_S = 0.3


def build(_kind: str, size: Size, directory: Path) -> None:
    random = np.random.default_rng(0)
    rows = random.random((ROWS, FOREST_FEATURES), np.float32)
    targets = np.sin(rows * 9).sum(axis=1) + random.normal(0, 0.1, ROWS)
    settings = {"objective": "reg:squarederror", "max_depth": DEPTH, "nthread": 1}
    xgboost.train(settings, xgboost.DMatrix(rows, targets), TREES[size]).save_model(directory / FILE)


def load(_kind: str, _size: Size, directory: Path, threads: int) -> Callable[[int], Call]:
    booster = xgboost.Booster({"nthread": threads}, model_file=directory / FILE)
    forest = treelite.frontend.load_xgboost_model(directory / FILE, format_choice="ubjson")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    graph = to_onnx(forest, ForestSpec.of(forest), OutputForm())
    assert graph is not None
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, ["CPUExecutionProvider"])

    def call_for(rows: int) -> Call:
        data = numbers(rows, FOREST_FEATURES)
        calls = [partial(booster.inplace_predict, data), partial(session.run, None, {INPUT: data})]
        return max(calls, key=rate)

    return call_for


def rate(call: Call) -> float:
    """Calls a second."""
    call()
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < PROBE_S:
        call()
        done += 1
    return done / (time.perf_counter() - began)
