"""What models import: the two modules, with the names of the original and no others."""

import ast
import json
import struct
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import c_python_backend_utils as native
import triton_python_backend_utils as pb_utils
from halimede_worker.runtime import runtime

UTILS = {
    "TRITON_STRING_TO_NUMPY",
    "serialize_byte_tensor",
    "deserialize_bytes_tensor",
    "get_input_tensor_by_name",
    "get_output_tensor_by_name",
    "get_input_config_by_name",
    "get_output_config_by_name",
    "using_decoupled_model_transaction_policy",
    "triton_to_numpy_type",
    "numpy_to_triton_type",
    "triton_string_to_numpy",
    "ModelConfig",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITONSERVER_REQUEST_RELEASE_ALL",
    "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE",
    "json",
    "struct",
    "np",
    "get_model_dir",
}
SHARED = {
    "TritonError",
    "TritonModelException",
    "Tensor",
    "InferenceRequest",
    "InferenceResponse",
    "Logger",
    "PreferredMemory",
    "TRITONSERVER_MEMORY_GPU",
    "TRITONSERVER_MEMORY_CPU",
    "MetricFamily",
    "load_model",
    "unload_model",
    "is_model_ready",
}
NATIVE = {
    "InferenceResponseSender",
    "ResponseIterator",
    "InferenceTrace",
    "Metric",
    "MetricKind",
    "COUNTER",
    "GAUGE",
    "HISTOGRAM",
    "MemoryType",
    "SharedMemory",
    "shared_memory",
    "async_event_future_done_callback",
}


def public(module: ModuleType) -> set[str]:
    return {name for name in vars(module) if not name.startswith("_")}


def test_utils_have_the_names_of_the_original_and_no_others() -> None:
    assert public(pb_utils) == UTILS | SHARED
    assert set(pb_utils.__all__) == UTILS | SHARED


def test_native_module_has_the_names_of_the_original_and_no_others() -> None:
    assert public(native) == NATIVE | SHARED
    assert set(native.__all__) == NATIVE | SHARED


@pytest.mark.parametrize("name", sorted(SHARED))
def test_both_modules_mean_the_same(name: str) -> None:
    assert getattr(pb_utils, name) is getattr(native, name)


def test_leaked_modules_are_what_they_seem() -> None:
    assert pb_utils.json is json
    assert pb_utils.struct is struct
    assert pb_utils.np is np


def test_constants_have_the_numbers_of_the_original() -> None:
    assert pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START == 1
    assert pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END == 2
    assert pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL == 1
    assert pb_utils.TRITONSERVER_REQUEST_RELEASE_ALL == 1
    assert pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE == 2
    assert int(pb_utils.TRITONSERVER_MEMORY_GPU) == 0
    assert int(pb_utils.TRITONSERVER_MEMORY_CPU) == 1


def test_kinds_of_metrics_are_attributes_of_the_family() -> None:
    for name in ("COUNTER", "GAUGE", "HISTOGRAM"):
        kind = getattr(native.MetricKind, name)
        assert getattr(native, name) is kind
        assert getattr(pb_utils.MetricFamily, name) is kind


def test_model_directory_is_that_of_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "version_directory", "/models/m/1")
    assert pb_utils.get_model_dir() == "/models/m/1"


def test_free_memory_goes_down_by_what_is_lent_and_up_again() -> None:
    before = native.shared_memory.free_memory()
    segment, _ = runtime.memory.take(1 << 21)
    assert native.shared_memory.free_memory() == before - (1 << 21)
    runtime.memory.give_back([segment.number])
    assert native.shared_memory.free_memory() == before
    runtime.memory.trim()


def test_failure_of_a_coroutine_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    failed: Future[object] = Future()
    failed.set_exception(ValueError("in the background"))
    native.async_event_future_done_callback(failed)
    assert "ValueError: in the background" in capsys.readouterr().err


def test_nothing_is_logged_of_a_coroutine_that_did_not_fail(capsys: pytest.CaptureFixture[str]) -> None:
    done: Future[object] = Future()
    done.set_result(None)
    cancelled: Future[object] = Future()
    cancelled.cancel()
    native.async_event_future_done_callback(done)
    native.async_event_future_done_callback(cancelled)
    assert capsys.readouterr().err == ""


def test_worker_needs_nothing_but_numpy_and_no_server(tmp_path: Path) -> None:
    site = Path(str(pb_utils.__file__)).parent
    script = (
        "import sys\n"
        f"sys.path.insert(0, {str(site)!r})\n"
        "import triton_python_backend_utils, c_python_backend_utils\n"
        "print('halimede' in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "False\n"


def test_worker_is_written_in_the_oldest_python_that_it_supports() -> None:
    site = Path(str(pb_utils.__file__)).parent
    sources = [*site.glob("*.py"), *site.glob("halimede_worker/**/*.py")]
    assert len(sources) > 20
    for source in sources:
        ast.parse(source.read_text(), str(source), feature_version=(3, 8))


def test_classes_print_as_those_of_the_original() -> None:
    for name in ("Tensor", "InferenceRequest", "InferenceResponse", "TritonError", "TritonModelException"):
        assert str(getattr(pb_utils, name)) == f"<class 'c_python_backend_utils.{name}'>"
    for name in ("InferenceResponseSender", "ResponseIterator", "Metric", "MetricFamily", "Logger"):
        assert str(getattr(native, name)) == f"<class 'c_python_backend_utils.{name}'>"
    assert str(pb_utils.ModelConfig) == "<class 'triton_python_backend_utils.ModelConfig'>"
