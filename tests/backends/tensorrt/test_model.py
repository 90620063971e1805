"""Opening and closing a TensorRT model, with stand-ins for TensorRT and CUDA."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from halimede.backends.base import BackendOptions, InstanceSpec, ModelSource
from halimede.backends.batch import Batch
from halimede.backends.registry import backend_class
from halimede.config.normalise import normalise
from halimede.config.parse import parse_text
from halimede.config.signature import Signature
from halimede.core.errors import (
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)
from halimede.engine.validation import validate
from tests.backends.helpers import floats, request
from tests.support.fake_tensorrt import FakeTensor, output
from tests.support.fake_tensorrt_module import FakeTensorRT, installed
from tests.support.foreign_files import each_foreign_file

TENSORS = (FakeTensor("x", (-1, 4)), output("y", (-1, 4)))
PROFILES = ({"x": [(1, 4), (2, 4), (8, 4)]}, {"x": [(1, 4), (32, 4), (64, 4)]})


@pytest.fixture
def tensorrt(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTensorRT]:
    with installed(monkeypatch, TENSORS, PROFILES) as module:
        yield module


class Opened:
    """A model that is completed and checked."""

    def __init__(
        self, directory: Path, text: str = "", gpus: tuple[int, ...] = (0, 1), **settings: str
    ) -> None:
        version = directory / "m" / "1"
        version.mkdir(parents=True, exist_ok=True)
        if not list(version.iterdir()):
            (version / "model.plan").write_bytes(b"engine")
        self.config = parse_text(f'name: "m" backend: "tensorrt" {text}', "test")
        normalise(self.config, gpus)
        source = ModelSource("m", 1, directory / "m", self.config)
        options = BackendOptions({key.replace("_", "-"): value for key, value in settings.items()}, gpus=gpus)
        self.model = backend_class(self.config)(source, options)
        self.model.complete_config()
        self.model.check_config()

    def instance(self, name: str = "m_0", device: int = 0) -> Any:
        return self.model.create_instance(InstanceSpec(name, 0, "KIND_GPU", device))

    def run(self, instance: Any, rows: int) -> Any:
        """The output of one request with so many rows of ones."""
        signature = Signature.from_config(self.config)
        one = request({"x": np.ones((rows, 4), np.float32)})
        validate(one, signature)
        batch = Batch(signature, [one], rows)
        instance.execute(batch)
        return batch.responses[0].outputs["y"].array


def test_a_model_is_completed_and_runs(tensorrt: FakeTensorRT, tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    assert opened.config.max_batch_size == 8
    assert opened.config.HasField("dynamic_batching")
    assert [entry.name for entry in opened.config.input] == ["x"]
    instance = opened.instance()
    np.testing.assert_array_equal(opened.run(instance, 1), floats([2, 2, 2, 2]))
    assert tensorrt.read == [b"engine"]
    instance.close()
    opened.model.close()
    assert not tensorrt.cuda.memory
    assert not tensorrt.cuda.streams


def test_instances_share_the_engine_of_their_gpu(tensorrt: FakeTensorRT, tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    for device in (0, 0, 1, 1):
        opened.instance(device=device)
    assert tensorrt.read == [b"engine"] * 2
    assert len(tensorrt.cuda.streams) == 4


def test_a_group_has_a_context_for_each_of_its_profiles(tensorrt: FakeTensorRT, tmp_path: Path) -> None:
    opened = Opened(
        tmp_path,
        """instance_group { name: "g" profile: ["1", "0"] }
        parameters { key: "execution_context_allocation_strategy" value { string_value: "ON_PROFILE_CHANGE" } }""",
    )
    assert opened.config.max_batch_size == 64
    instance: Any = opened.instance("g_0")
    contexts = instance._contexts  # noqa: SLF001 - how many contexts are free is told to nobody
    assert {index: context.profile for index, context in contexts.items()} == {0: 0, 1: 1}
    assert {context.strategy for context in contexts.values()} == {"ON_PROFILE_CHANGE"}
    for rows in (40, 2):
        assert opened.run(instance, rows).shape == (rows, 4)
    assert [contexts[index].runs for index in (0, 1)] == [1, 1]


def test_engines_may_bring_their_own_runtime_only_if_allowed(tensorrt: FakeTensorRT, tmp_path: Path) -> None:
    Opened(tmp_path)
    assert tensorrt.runtime.engine_host_code_allowed is False
    Opened(tmp_path, version_compatible="true")
    assert tensorrt.runtime.engine_host_code_allowed is True


@pytest.mark.usefixtures("tensorrt")
def test_a_plugin_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    library = tmp_path / "plugin.so"
    library.write_bytes(b"no library")
    with pytest.raises(InvalidArgumentError) as caught:
        Opened(tmp_path, plugins=str(library))
    assert caught.value.message.startswith(f"--backend-config=tensorrt,plugins: cannot load '{library}': ")


@each_foreign_file
def test_an_unreadable_file_is_told_by_what_it_looks_like(
    tensorrt: FakeTensorRT, tmp_path: Path, content: bytes, text: str
) -> None:
    tensorrt.readable = False
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.plan").write_bytes(content)
    with pytest.raises(InternalError, match=rf"cannot read the engine .* \({text}[^)]*\)"):
        Opened(tmp_path)


def test_a_file_that_is_no_engine_is_told_with_tensorrts_words(
    tensorrt: FakeTensorRT, tmp_path: Path
) -> None:
    tensorrt.readable = False
    with pytest.raises(InternalError) as caught:
        Opened(tmp_path)
    assert "unable to load model 'm': cannot read the engine" in caught.value.message
    assert "with TensorRT 10.9.0; engines are for the version and the kind of GPU" in caught.value.message
    assert caught.value.message.endswith(": the engine was built by another version")
    tensorrt.readable = True
    Opened(tmp_path)


@pytest.mark.usefixtures("tensorrt")
def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(
        NotFoundError, match=r"there is no file .*/m/1/other\.plan; expected a TensorRT engine"
    ):
        Opened(tmp_path, 'default_model_filename: "other.plan"')


def test_each_kind_of_gpu_may_have_its_own_file(tensorrt: FakeTensorRT, tmp_path: Path) -> None:
    opened = Opened(tmp_path, 'cc_model_filenames { key: "9.1" value: "second.plan" }')
    (tmp_path / "m" / "1" / "second.plan").write_bytes(b"other engine")
    opened.instance(device=1)
    assert tensorrt.read == [b"engine", b"other engine"]


@pytest.mark.usefixtures("tensorrt")
def test_contradictions_are_told(tmp_path: Path) -> None:
    with pytest.raises(HalimedeError, match="configuration specified max_batch_size 9, but the engine's"):
        Opened(tmp_path, "max_batch_size: 9")
    tensors = (
        'input { name: "x" data_type: TYPE_FP16 dims: 4 } output { name: "y" data_type: TYPE_FP32 dims: 4 }'
    )
    with pytest.raises(
        HalimedeError, match="expects datatype TYPE_FP16 for input 'x', model provides TYPE_FP32"
    ):
        Opened(tmp_path, f"max_batch_size: 8 {tensors}")


@pytest.mark.usefixtures("tensorrt")
def test_without_a_gpu_it_is_told_that_one_is_needed(tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedError, match="'m': TensorRT needs an NVIDIA GPU, and this server sees none"
    ):
        Opened(tmp_path, gpus=())


@pytest.mark.usefixtures("tensorrt")
@pytest.mark.parametrize(("module", "package"), [("tensorrt", "tensorrt"), ("cuda", "cuda-python")])
def test_without_the_packages_the_error_says_how_to_install_them(
    module: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (module, *(each for each in sys.modules if each.startswith(f"{module}."))):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "halimede.backends.tensorrt.cuda_runtime")
    with pytest.raises(UnsupportedError) as caught:
        Opened(tmp_path)
    assert caught.value.message == (
        f"the tensorrt backend needs {package}, which is not installed; install it with: "
        f'pip install "halimede[tensorrt]"'
    )
