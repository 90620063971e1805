"""Files that are no models, and settings that choose among what is in them."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "halimede.backends.tensorflow.runtime", reason="needs TensorFlow: pip install 'halimede[tensorflow]'"
)

from halimede.backends.base import BackendOptions, InstanceSpec, ModelSource
from halimede.backends.isolation import runs_in_process
from halimede.backends.tensorflow.backend import TensorFlowModel
from halimede.backends.tensorflow.runtime import tf, v1
from halimede.core.errors import (
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)
from tests.backends.helpers import Loaded, floats, source_of
from tests.frameworks.tensorflow.tensorflow_models import (
    ADD_SUB,
    FROZEN,
    SAVED,
    Affine,
    add_sub,
    affine_graph,
    frozen,
    load_saved,
    saved,
    spec,
)
from tests.support.foreign_files import each_foreign_file

X_Y = """
    max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [2] }
    output { name: "y" data_type: TYPE_FP32 dims: [2] }
"""


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def sessions(model: Loaded) -> list[Any]:
    assert isinstance(model.backend, TensorFlowModel)
    return model.backend._sessions  # noqa: SLF001 - that sessions are shared shows in memory only


def test_missing_model_is_named_with_what_would_be_right(tmp_path: Path) -> None:
    with pytest.raises(
        NotFoundError, match=r"no file .*/m/1/model.savedmodel/saved_model.pb; .*model\.export"
    ):
        Loaded(source_of(tmp_path, SAVED))
    with pytest.raises(NotFoundError, match=r"no file .*/m/1/model.graphdef; expected a frozen graph"):
        Loaded(source_of(tmp_path, FROZEN + X_Y))


def test_directory_without_a_model_is_named(tmp_path: Path) -> None:
    source = source_of(tmp_path, SAVED)
    (source.version_directory / "model.savedmodel" / "variables").mkdir(parents=True)
    with pytest.raises(NotFoundError, match=r"no file .*/saved_model.pb; expected a SavedModel there"):
        Loaded(source)


@pytest.mark.parametrize("content", [b"not a model", b"", None])
def test_broken_saved_model_is_named(tmp_path: Path, content: bytes | None) -> None:
    source = saved(tmp_path, add_sub, ADD_SUB)
    file = source.version_directory / "model.savedmodel" / "saved_model.pb"
    file.write_bytes(file.read_bytes()[:-100] if content is None else content)
    with pytest.raises(
        InvalidArgumentError, match=r"saved_model.pb is (no SavedModel, or cut short: |empty)"
    ):
        Loaded(source)


@pytest.mark.parametrize("content", [b"not a graph", b"", None])
def test_broken_graph_is_named(tmp_path: Path, content: bytes | None) -> None:
    source = frozen(tmp_path, affine_graph, X_Y)
    file = source.version_directory / "model.graphdef"
    file.write_bytes(file.read_bytes()[:-10] if content is None else content)
    with pytest.raises(InvalidArgumentError, match=r"model.graphdef is (no graph, or cut short: \S|empty)"):
        Loaded(source)


@pytest.mark.parametrize("damage", ["truncated", "missing", "no variables"])
def test_broken_weights_are_tensorflows_error(tmp_path: Path, damage: str) -> None:
    affine = Affine(64)
    source = saved(tmp_path, affine.__call__, [spec("x", (None, 64))], module=affine)
    variables = source.version_directory / "model.savedmodel" / "variables"
    data = variables / "variables.data-00000-of-00001"
    if damage == "truncated":
        data.write_bytes(data.read_bytes()[:1000])
    elif damage == "missing":
        data.unlink()
    else:
        for file in variables.iterdir():
            file.unlink()
        variables.rmdir()
    with pytest.raises(HalimedeError, match=r"tensorflow error: \S"):
        Loaded(source)


def test_operator_that_is_not_known_is_named(tmp_path: Path) -> None:
    source = frozen(tmp_path, affine_graph, X_Y)
    graph = v1.GraphDef()
    graph.node.add(name="y", op="NoSuchOperator")
    (source.version_directory / "model.graphdef").write_bytes(graph.SerializeToString())
    with pytest.raises(InvalidArgumentError, match="NoSuchOperator"):
        Loaded(source)


def two_signatures(directory: Path, text: str = "", names: tuple[str, str] = ("up", "down")) -> ModelSource:
    source = source_of(directory, SAVED + text)
    up, down = (
        tf.function(lambda x, by=by: {"y": x + by}, input_signature=[spec("x")]).get_concrete_function()
        for by in (1.0, -1.0)
    )
    signatures = dict(zip(names, (up, down), strict=True))
    tf.saved_model.save(tf.Module(), str(source.version_directory / "model.savedmodel"), signatures)
    return source


def test_signature_is_chosen_by_its_name(tmp_path: Path) -> None:
    model = Loaded(two_signatures(tmp_path, parameter("TF_SIGNATURE_DEF", "down")))
    assert model(x=floats([1, 2]))["y"].tolist() == [[0, 1]]


def test_signature_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    for text, name in ((parameter("TF_SIGNATURE_DEF", "left"), "left"), ("", "serving_default")):
        message = f"has no signature '{name}'; its signatures are: down, up. .*'TF_SIGNATURE_DEF'"
        with pytest.raises(InvalidArgumentError, match=message):
            Loaded(two_signatures(tmp_path / name, text))


def test_only_signature_needs_no_name(tmp_path: Path) -> None:
    model = Loaded(saved(tmp_path, add_sub, ADD_SUB, signature="other"))
    assert model(a=floats([1, 2]), b=floats([1, 1]))["sum"].tolist() == [[2, 3]]


def test_tags_that_are_not_there_are_refused_with_those_that_are(tmp_path: Path) -> None:
    message = "no graph with the tags 'gpu'; the tags of its graphs are: serve. The parameter 'TF_GRAPH_TAG'"
    with pytest.raises(InvalidArgumentError, match=message):
        load_saved(tmp_path / "wrong", add_sub, ADD_SUB, parameter("TF_GRAPH_TAG", "gpu"))
    model = load_saved(tmp_path / "right", add_sub, ADD_SUB, parameter("TF_GRAPH_TAG", "serve"))
    assert model.config.max_batch_size == 4


def with_variable() -> None:
    x = v1.placeholder(tf.float32, [None, 2], "x")
    offset = v1.get_variable("offset", initializer=[1.0, 2.0], use_resource=False)
    v1.assign(offset, [10.0, 20.0], name="fill")
    v1.global_variables_initializer()
    tf.add(x, offset, "y")


@pytest.mark.parametrize("place", ["m/1", "m"])
def test_init_ops_run_before_the_model_serves(tmp_path: Path, place: str) -> None:
    source = frozen(tmp_path, with_variable, X_Y + parameter("TF_INIT_OPS_FILE", "init_ops.json"))
    (tmp_path / place / "init_ops.json").write_text(json.dumps({"init_ops": ["init", "fill"]}))
    assert Loaded(source)(x=floats([1, 2]))["y"].tolist() == [[11, 22]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is not there: neither .*/m/1/init.json nor .*/m/init.json"),
        ("{", "is no JSON: "),
        ("[]", 'must be like {"init_ops": '),
        ('{"init_ops": ["start"]}', "names the operation 'start', which the graph lacks"),
    ],
)
def test_wrong_init_ops_are_named(tmp_path: Path, content: str | None, message: str) -> None:
    source = frozen(tmp_path, with_variable, X_Y + parameter("TF_INIT_OPS_FILE", "init.json"))
    if content is not None:
        (source.directory / "init.json").write_text(content)
    with pytest.raises(HalimedeError, match=message):
        Loaded(source)


def test_variables_without_values_are_an_error_at_load(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="uninitialized value offset"):
        Loaded(frozen(tmp_path, with_variable, X_Y))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            parameter("TF_NUM_INTRA_THREADS", "many"),
            "'TF_NUM_INTRA_THREADS' must be an integer of at least 0",
        ),
        (parameter("TF_NUM_INTER_THREADS", "-1"), "'TF_NUM_INTER_THREADS' must be an integer of at least 0"),
        (parameter("TF_USE_PER_SESSION_THREADS", "2"), "'TF_USE_PER_SESSION_THREADS' must be true or false"),
        (
            parameter("MAX_SESSION_SHARE_COUNT", "0"),
            "'MAX_SESSION_SHARE_COUNT' must be an integer of at least 1",
        ),
        (
            'optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }',
            "TensorFlow has no CPU Execution Accelerator 'openvino'",
        ),
        (
            'optimization { execution_accelerators { gpu_execution_accelerator { name: "fast" } } }',
            "unknown Execution Accelerator 'fast'",
        ),
        ('model_operations { op_library_filename: "no.so" }', "custom operator library 'no.so': .*no.so"),
    ],
)
def test_setting_that_means_nothing_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(HalimedeError, match=message):
        load_saved(tmp_path, add_sub, ADD_SUB, text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"version": "1"}, "version=1: only version 2 of TensorFlow"),
        ({"allow-soft-placement": "maybe"}, "allow-soft-placement must be true or false, got 'maybe'"),
        ({"gpu-memory-fraction": "2"}, "gpu-memory-fraction must be a number from 0 to 1, got '2'"),
        ({"default-max-batch-size": "x"}, "default-max-batch-size must be an integer"),
    ],
)
def test_command_line_that_means_nothing_is_refused_by_name(
    tmp_path: Path, settings: dict[str, str], message: str
) -> None:
    with pytest.raises(HalimedeError, match=message):
        load_saved(tmp_path, add_sub, ADD_SUB, options=BackendOptions(settings))


def test_what_has_no_effect_on_a_cpu_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = 'optimization { execution_accelerators { gpu_execution_accelerator { name: "auto_mixed_precision" } } }'
    options = BackendOptions({"gpu-memory-fraction": "0.5", "version": "2", "allow-soft-placement": "true"})
    load_saved(tmp_path, add_sub, ADD_SUB, text, options=options)
    assert "'auto_mixed_precision' has no effect" in caplog.text
    assert "gpu-memory-fraction has no effect" in caplog.text


def test_instances_on_gpus_are_refused(tmp_path: Path) -> None:
    model = load_saved(tmp_path, add_sub, ADD_SUB)
    with pytest.raises(UnsupportedError, match="runs on CPUs only; say KIND_CPU"):
        model.backend.create_instance(InstanceSpec("m_1", 1, "KIND_GPU"))


@pytest.mark.parametrize(("share", "count"), [("1", 4), ("3", 2), ("4", 1)])
def test_so_many_instances_share_a_session_as_the_model_says(tmp_path: Path, share: str, count: int) -> None:
    model = load_saved(tmp_path, add_sub, ADD_SUB, parameter("MAX_SESSION_SHARE_COUNT", share))
    for index in range(1, 4):
        model.backend.create_instance(InstanceSpec(f"m_{index}", index))
    assert len(sessions(model)) == count


@pytest.mark.parametrize("own", ["True", "off"])
def test_operators_that_run_at_once_give_the_same(tmp_path: Path, own: str) -> None:
    text = parameter("TF_NUM_INTER_THREADS", "2") + parameter("TF_USE_PER_SESSION_THREADS", own)
    model = load_saved(tmp_path, add_sub, ADD_SUB, text)
    options = sessions(model)[0]._session._config  # noqa: SLF001 - TensorFlow's own session, whose graph and options nothing else shows
    assert (options.inter_op_parallelism_threads, options.use_per_session_threads) == (2, own == "True")
    assert model(a=floats([1, 2]), b=floats([1, 1]))["sum"].tolist() == [[2, 3]]


def test_threads_of_an_operator_are_the_first_models(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load_saved(tmp_path / "first", add_sub, ADD_SUB)
    with caplog.at_level(logging.WARNING):
        load_saved(tmp_path / "second", add_sub, ADD_SUB, parameter("TF_NUM_INTRA_THREADS", "7"))
    assert "TF_NUM_INTRA_THREADS 7 has no effect" in caplog.text


def test_models_have_processes_of_their_own_unless_they_say_otherwise(tmp_path: Path) -> None:
    assert runs_in_process(source_of(tmp_path / "a", SAVED))
    assert not runs_in_process(source_of(tmp_path / "b", SAVED + parameter("isolation", "thread")))


QUIET = """
import ctypes, logging, os, sys
logging.basicConfig(stream=sys.stdout, level=logging.DEBUG)
libc = ctypes.CDLL(None)

class Writer:
    def find_spec(self, name, *_):  # what TensorFlow writes depends on the processor, and may be nothing
        if name == "tensorflow":
            libc.fputs(b"from a library\\n", ctypes.c_void_p.in_dll(libc, "stderr"))

sys.meta_path.insert(0, Writer())
from halimede.backends.tensorflow.runtime import tf
os.write(2, b"mine\\n")
assert "keras" not in sys.modules and "TF_USE_LEGACY_KERAS" not in os.environ
import keras
print("keras", keras.backend.backend())
"""


def test_tensorflow_is_imported_quietly_and_keras_is_left_to_others() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", QUIET],
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "mine\n")
    assert "DEBUG:halimede:tensorflow: from a library" in done.stdout
    assert "keras tensorflow" in done.stdout


def test_missing_tensorflow_is_named_with_how_to_install_it() -> None:
    script = """
import sys
sys.modules["tensorflow"] = None
from halimede.backends.registry import backend_class
from halimede.config.model_config_pb2 import ModelConfig
backend_class(ModelConfig(name="m", platform="tensorflow_savedmodel"))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert 'pip install "halimede[tensorflow]"' in done.stderr


def test_unused_input_is_taken_and_makes_no_difference(tmp_path: Path) -> None:
    affine = Affine()
    model = load_saved(tmp_path, lambda x, unused: affine(x), [spec("x"), spec("unused")], module=affine)
    assert model(x=floats([1, 2]), unused=floats([9, 9]))["y"].tolist() == [[3, 4]]
    assert np.array_equal(model(x=floats([0, 0]), unused=floats([1, 1]))["y"], [[0, 1]])


@each_foreign_file
def test_an_unreadable_file_is_told_by_what_it_looks_like(tmp_path: Path, content: bytes, text: str) -> None:
    source = saved(tmp_path / "saved", add_sub, ADD_SUB)
    (source.version_directory / "model.savedmodel" / "saved_model.pb").write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=rf"is no SavedModel, .* \({text}[^)]*\)$"):
        Loaded(source)
    source = frozen(tmp_path / "frozen", affine_graph, X_Y)
    (source.version_directory / "model.graphdef").write_bytes(content)
    with pytest.raises(InvalidArgumentError, match=rf"is no graph, .* \({text}[^)]*\)$"):
        Loaded(source)
