"""What becomes of errors while a version is loaded."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from halimede.backends.base import ModelSource
from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.errors import HalimedeError, InternalError, OutOfMemoryError, UnsupportedError
from halimede.engine.lifecycle import loading
from halimede.engine.lifecycle.loading import load_version
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
