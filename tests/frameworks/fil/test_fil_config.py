"""The configuration of a forest: completed, checked, and the parameters of Triton's FIL backend."""

import json
import logging
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("treelite", reason="forests need treelite")
pytest.importorskip("xgboost", reason="forests of XGBoost are trained with xgboost")

from halimede.backends.base import BackendOptions
from halimede.backends.fil.backend import FilModel
from halimede.backends.registry import backend_class
from halimede.cli.check.examine import examine
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import HalimedeError, InvalidArgumentError, UnsupportedError
from tests.backends.helpers import Loaded, floats
from tests.frameworks.fil.fil_models import data, load_forest, parameter, predict
from tests.frameworks.fil.test_fil import CLASSES, boosted, truth
from tests.support.server import start_server

INPUT = 'input { name: "input__0" data_type: TYPE_FP32 dims: 30 }\n'
OUTPUT = 'output { name: "output__0" data_type: TYPE_FP32 dims: 1 }\n'
MADE = 'batch_input { target_name: "counts" data_type: TYPE_INT32 source_input: "input__0" }\n'
CUT = 'batch_output { target_name: "output__0" source_input: "input__0" }\n'
BINARY, THREE, NUMBER = "binary:logistic", "multi:softprob", "reg:squarederror"


def load(directory: Path, config: str = "", objective: str = BINARY) -> Loaded:
    """A forest with that configuration."""
    name = {BINARY: "binary", THREE: "classes", NUMBER: "regression"}[objective]
    settings = {"num_class": 3} if name == "classes" else {}
    return load_forest(directory, "xgboost.json", boosted(name, objective, **settings).save_model, config)


def test_everything_is_completed_from_the_forest(tmp_path: Path) -> None:
    config = load(tmp_path).config
    (entry,), (output,) = config.input, config.output
    assert (entry.name, entry.data_type, list(entry.dims)) == ("input__0", 11, [30])
    assert (output.name, output.data_type, list(output.dims)) == ("output__0", 11, [1])
    assert config.max_batch_size == 1024
    assert config.HasField("dynamic_batching")


@pytest.mark.parametrize(
    ("objective", "parameters", "width"),
    [
        (THREE, "", 3),
        (THREE, CLASSES, 1),
        (THREE, CLASSES + parameter("predict_proba", "true"), 3),
        (NUMBER, "", 1),
    ],
)
def test_the_output_is_as_wide_as_the_parameters_have_it(
    tmp_path: Path, objective: str, parameters: str, width: int
) -> None:
    assert list(load(tmp_path, parameters, objective).config.output[0].dims) == [width]


def test_the_command_line_says_how_large_batches_are_where_the_configuration_does_not(tmp_path: Path) -> None:
    source = load(tmp_path).backend.source
    for settings, size in (({}, 4), ({"default-max-batch-size": "64"}, 64)):
        source.config.CopyFrom(ModelConfig(name="m", backend="fil"))
        FilModel(source, BackendOptions(settings=settings)).complete_config()
        assert source.config.max_batch_size == size
    source.config.CopyFrom(ModelConfig(name="m", backend="fil"))
    with pytest.raises(InvalidArgumentError, match="default-max-batch-size must be an integer of at least 1"):
        FilModel(source, BackendOptions(settings={"default-max-batch-size": "0"})).complete_config()


def test_what_the_configuration_lists_is_left_as_it_is(tmp_path: Path) -> None:
    config = load(tmp_path, "max_batch_size: 7\n" + INPUT + OUTPUT).config
    assert config.max_batch_size == 7
    assert not config.HasField("dynamic_batching")


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (INPUT + OUTPUT, "max_batch_size must be at least 1, got 0"),
        (
            INPUT.replace("30", "29"),
            r"input 'input__0' has dims \[29\] .*, but the model has 30 features: .* \[30\]",
        ),
        (
            OUTPUT.replace("1 }", "2 }"),
            r"output 'output__0' has dims \[2\] .* the model has 1 values for a row",
        ),
        (INPUT.replace("input__0", "x"), "has the one input 'input__0', but the configuration lists x"),
        (
            OUTPUT + OUTPUT.replace("__0", "__1"),
            "has the one output 'output__0', .* lists output__0, output__1",
        ),
        (
            INPUT.replace("FP32", "FP64"),
            "expects datatype TYPE_FP64 for input 'input__0', model provides TYPE_FP32",
        ),
        (INPUT.replace("dims", "optional: true dims"), "input 'input__0' may be neither optional nor ragged"),
        (
            INPUT.replace("dims", "allow_ragged_batch: true dims"),
            "'input__0' may be neither optional nor ragged",
        ),
        (INPUT + MADE, "forests have no batch_input and no batch_output"),
        (OUTPUT + CUT, "forests have no batch_input and no batch_output"),
        ("model_transaction_policy { decoupled: true }", "gives each request one response"),
    ],
)
def test_a_configuration_that_contradicts_the_forest_is_refused(
    tmp_path: Path, config: str, text: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        load(tmp_path, config)


def test_halimede_check_says_what_a_forest_cannot_have_of_ragged_inputs(tmp_path: Path) -> None:
    load(tmp_path)
    config = tmp_path / "m" / "config.pbtxt"
    for more, fixes in {
        MADE + CUT: [(4, "remove batch_input and batch_output")],
        MADE: [(4, "remove batch_input")],
        CUT: [(4, "remove batch_output")],
        "": [],
    }.items():
        config.write_text('backend: "fil" max_batch_size: 4\n' + INPUT + OUTPUT + more)
        (examination,) = examine([tmp_path])
        assert [(finding.line, finding.fix) for finding in examination.findings] == fixes


@pytest.mark.parametrize(
    ("key", "value", "objective", "text"),
    [
        ("output_class", "yes", BINARY, "'output_class' must be one of 'true' .* got 'yes'"),
        ("output_class", "true", NUMBER, "'output_class' is true, but the forest is no classifier"),
        ("predict_proba", "true", NUMBER, "'predict_proba' is true, but the forest is no classifier"),
        ("threshold", "half", BINARY, "'threshold' must be a number, got 'half'"),
        ("threshold", "0.3", THREE, "'threshold' is for two classes, but the forest has 3"),
        ("storage_type", "BIG", BINARY, "'storage_type' must be one of 'AUTO', 'DENSE', 'SPARSE', 'SPARSE8'"),
        ("algo", "FAST", BINARY, "'algo' must be one of 'ALGO_AUTO', 'NAIVE'"),
        ("layout", "flat", BINARY, "'layout' must be one of 'depth_first'"),
        ("blocks_per_sm", "-1", BINARY, "'blocks_per_sm' must be an integer of at least 0, got '-1'"),
        ("threads_per_tree", "0", BINARY, "'threads_per_tree' must be an integer of at least 1, got '0'"),
        ("transfer_threshold", "x", BINARY, "'transfer_threshold' must be an integer"),
        ("chunk_size", "0", BINARY, "'chunk_size' must be an integer of at least 1"),
        ("use_experimental_optimizations", "2", BINARY, "'use_experimental_optimizations' must be one of"),
    ],
)
def test_a_parameter_without_that_value_is_refused_by_name(
    tmp_path: Path, key: str, value: str, objective: str, text: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        load(tmp_path, parameter(key, value), objective)


def test_the_two_names_of_one_parameter_must_agree(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidArgumentError, match="'output_class' and 'is_classifier' are names for the same"
    ):
        load(tmp_path, CLASSES + parameter("is_classifier", "false"))


def test_parameters_without_effect_are_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {
        "storage_type": "SPARSE",
        "algo": "NAIVE",
        "layout": "layered",
        "blocks_per_sm": "2",
        "threads_per_tree": "4",
        "transfer_threshold": "2",
        "chunk_size": "32",
        "use_experimental_optimizations": "true",
    }
    with caplog.at_level(logging.INFO, "halimede"):
        load(tmp_path, "".join(parameter(key, value) for key, value in given.items()))
    (line,) = [text for text in caplog.messages if "change nothing here" in text]
    assert all(f"'{key}'" in line for key in given)


def test_rows_of_another_width_are_refused(tmp_path: Path) -> None:
    model = load(tmp_path)
    with pytest.raises(HalimedeError, match=r"unexpected shape for input 'input__0'.*\[-1,30\], got \[1,3\]"):
        model(input__0=floats([1, 2, 3]))
    assert predict(model, data("binary")[0][:2]).shape == (2, 1)


@pytest.mark.parametrize("package", ["treelite", "onnxruntime", "onnx"])
def test_without_its_packages_the_error_says_how_to_install_them(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    for module in [
        name for name in sys.modules if name.startswith(("halimede.backends.fil.", "halimede.backends.onnx."))
    ]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnsupportedError, match=rf'needs {package}, .* pip install "halimede\[fil\]"'):
        backend_class(ModelConfig(backend="fil"))


def test_a_server_answers_over_http_as_xgboost_does(tmp_path: Path) -> None:
    booster = boosted("binary", BINARY)
    version = tmp_path / "trees" / "1"
    version.mkdir(parents=True)
    booster.save_model(version / "xgboost.ubj")
    (tmp_path / "trees" / "config.pbtxt").write_text(
        'backend: "fil" max_batch_size: 32\n' + parameter("predict_proba", "true")
    )
    features, _ = data("binary")
    rows = np.nan_to_num(features[:5])
    entry = {"name": "input__0", "datatype": "FP32", "shape": [5, 30], "data": rows.reshape(-1).tolist()}
    with start_server(tmp_path) as server:
        url = f"http://{server.http}/v2/models/trees/infer"
        good = urllib.request.Request(url, json.dumps({"inputs": [entry]}).encode())
        with urllib.request.urlopen(good, timeout=30) as response:
            (output,) = json.load(response)["outputs"]
        bad = urllib.request.Request(url, json.dumps({"inputs": [{**entry, "shape": [10, 15]}]}).encode())
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(bad, timeout=30)
        with caught.value as error:
            message = json.load(error)["error"]
    assert (output["name"], output["datatype"], output["shape"]) == ("output__0", "FP32", [5, 1])
    np.testing.assert_allclose(np.array(output["data"])[:, None], truth(booster, rows), atol=1e-5)
    assert caught.value.code == 400
    assert "Expected [-1,30]" in message
    assert "got [10,15]" in message
