"""What becomes of errors while a version is loaded."""

import errno
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.core.errors import (
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    OutOfMemoryError,
    UnsupportedError,
)
from halimede.engine.lifecycle import loading
from halimede.engine.lifecycle.loading import create_instances, load_version
from halimede.engine.settings import EngineSettings
from halimede.workers.host import WorkerHost

SETTINGS = EngineSettings(model_repositories=())


def failing(error: Exception) -> Callable[..., NoReturn]:
    def open_backend(*_: Any) -> NoReturn:
        raise error

    return open_backend


def load_error(monkeypatch: pytest.MonkeyPatch, error: Exception, name: str = "m") -> HalimedeError:
    monkeypatch.setattr(loading, "open_backend", failing(error))
    source = ModelSource(name, 1, Path("/models") / name, ModelConfig(name=name, backend="identity"))
    with pytest.raises(HalimedeError) as caught:
        load_version(source, SETTINGS, cast(WorkerHost, None))
    return caught.value


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError("no"), "MemoryError: no"),
        (OSError(errno.ENOSPC, "No space left on device"), "OSError: [Errno 28] No space left on device"),
        (InternalError("onnx runtime error 1: Failed to allocate memory"), "onnx runtime error 1: Failed to"),
        (RuntimeError("CUDA out of memory."), "RuntimeError: CUDA out of memory."),
        (OutOfMemoryError("as it is"), "as it is"),
    ],
)
def test_out_of_memory_is_told_as_that_with_its_text(
    monkeypatch: pytest.MonkeyPatch, error: Exception, text: str
) -> None:
    told = load_error(monkeypatch, error)
    assert type(told) is OutOfMemoryError
    assert str(told).startswith(text)


def test_a_model_called_out_of_memory_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "unable to load model 'OOM': there is no file /models/OOM/1/model.onnx"
    assert type(load_error(monkeypatch, InternalError(text), "OOM")) is InternalError
    text = "unable to load model 'BLOOM': there is no file"
    assert type(load_error(monkeypatch, UnsupportedError(text), "BLOOM")) is UnsupportedError


def test_other_errors_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    told = load_error(monkeypatch, OSError(errno.ENOENT, "No such file"))
    assert type(told) is InternalError
    assert str(told) == "FileNotFoundError: [Errno 2] No such file"


def test_a_backend_is_told_what_the_server_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[BackendOptions] = []

    def open_backend(_source: ModelSource, options: BackendOptions, *_: Any) -> NoReturn:
        seen.append(options)
        raise UnsupportedError("enough")

    monkeypatch.setattr(loading, "open_backend", open_backend)
    source = ModelSource("m", 1, Path("/models/m"), ModelConfig(name="m", backend="identity"))
    settings = EngineSettings(
        model_repositories=(), backend_config={"identity": {"k": "v"}}, cpu_threads=3, gpus=(0, 2), verbose=1
    )
    with pytest.raises(UnsupportedError):
        load_version(source, settings, cast(WorkerHost, None))
    assert seen == [BackendOptions({"k": "v"}, cpu_threads=3, gpus=(0, 2), verbose=1)]


def test_each_instance_is_warmed_up_and_that_is_counted(tmp_path: Path) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    text = """
        name: "m" backend: "identity" instance_group { count: 2 }
        input { name: "A" data_type: TYPE_FP32 dims: 2 } output { name: "A" data_type: TYPE_FP32 dims: 2 }
        model_warmup {
            name: "first" batch_size: 1
            inputs { key: "A" value { data_type: TYPE_FP32 dims: 2 zero_data: true } }
        }
    """
    config = parse_text(text, "test")
    normalise(config)
    loaded = load_version(ModelSource("m", 1, tmp_path / "m", config), SETTINGS, cast(WorkerHost, None))
    assert [each.spec.name for each in loaded.instances] == ["m_0_0", "m_0_1"]
    assert loaded.statistics.execution_count == 2
    loaded.close()


@pytest.mark.parametrize("completes", [True, False])
def test_a_configuration_is_checked_when_its_model_is_loaded_whoever_completed_it(
    tmp_path: Path, completes: bool
) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    text = """
        name: "m" backend: "identity" max_batch_size: 4
        input { name: "A" data_type: TYPE_FP32 dims: 2 } output { name: "A" data_type: TYPE_FP32 dims: 2 }
        dynamic_batching { default_queue_policy { timeout_action: 7 } }
    """
    config = parse_text(text, "test")
    normalise(config)
    settings = EngineSettings(model_repositories=(), auto_complete_config=completes)
    with pytest.raises(InvalidArgumentError, match="'timeout_action' must be one of REJECT, DELAY, not 7"):
        load_version(ModelSource("m", 1, tmp_path / "m", config), settings, cast(WorkerHost, None))


@pytest.mark.parametrize(
    ("runtime", "kind"),
    [("libtriton_other.so", "backend"), ("model.py", "Python backend based backend")],
)
def test_a_runtime_that_python_models_do_not_have_is_refused(tmp_path: Path, runtime: str, kind: str) -> None:
    source = ModelSource("m", 1, tmp_path, ModelConfig(name="m", backend="python", runtime=runtime))
    settings = EngineSettings(model_repositories=(), backend_directory=tmp_path / "backends")
    with pytest.raises(InvalidArgumentError) as caught:
        load_version(source, settings, cast(WorkerHost, None))
    assert str(caught.value).startswith(
        f"unable to find {kind} library '{runtime}' for model 'm', searched: '{tmp_path}/1' '{tmp_path}' "
        f"'{tmp_path}/backends/python'. "
    )


class TwoAtOnce:
    """A backend that notes which threads make its instances; the first waits for the second, if it comes."""

    def __init__(self, creates_side_by_side: bool) -> None:
        self.creates_side_by_side = creates_side_by_side
        self.together = False
        self._both = threading.Barrier(2)

    def create_instance(self, _spec: InstanceSpec) -> Instance:
        """Notes whether another instance is being made."""
        if threading.current_thread() is not threading.main_thread():
            self._both.wait(60)
            self.together = True
        return cast(Instance, self)

    def close(self) -> None:
        """It holds nothing."""


@pytest.mark.parametrize(
    ("variable", "creates_side_by_side", "together"),
    [
        (None, True, True),
        (None, False, False),
        ("0", True, False),
        ("1", False, True),
        ("nonsense", True, True),
        ("", False, False),
    ],
)
def test_an_environment_variable_says_whether_instances_are_made_at_once(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, creates_side_by_side: bool, together: bool
) -> None:
    monkeypatch.delenv("TRITON_PARALLEL_INSTANCE_LOADING", raising=False)
    if variable is not None:
        monkeypatch.setenv("TRITON_PARALLEL_INSTANCE_LOADING", variable)
    backend = TwoAtOnce(creates_side_by_side)
    specs = [InstanceSpec(f"m_{index}", index, "KIND_CPU", 0) for index in range(2)]
    with ExitStack() as undo:
        assert len(create_instances(cast(BackendModel, backend), specs, undo)) == 2
    assert backend.together is together


@pytest.mark.parametrize(
    ("names", "note"),
    [
        ((), ""),
        (("weights.bin",), " (pointers of Git LFS, to be fetched by 'git lfs pull': weights.bin)"),
        (
            tuple(f"a/{number}" for number in range(5)),
            " (pointers of Git LFS, to be fetched by 'git lfs pull': a/0, a/1, a/2, and 2 more)",
        ),
    ],
)
@pytest.mark.parametrize("raised", [InvalidArgumentError("bad weights"), ValueError("bad weights")])
def test_files_that_were_never_fetched_are_named_if_a_model_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], note: str, raised: Exception
) -> None:
    source = ModelSource("m", 1, tmp_path, parse_text('backend: "identity"', "test"))
    for name in names:
        path = source.version_directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n")

    def fail(*_: object) -> NoReturn:
        raise raised

    monkeypatch.setattr(loading, "open_backend", fail)
    with pytest.raises(HalimedeError) as caught:
        load_version(source, SETTINGS, cast(WorkerHost, None))
    assert caught.value.message.removeprefix("ValueError: ") == f"bad weights{note}"
