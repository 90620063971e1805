"""The stand-ins for TensorRT and CUDA against the real packages, which can be imported without a GPU."""

import pytest

from halimede.core.errors import InternalError
from halimede.core.gpus import visible_gpus
from tests.support.fake_tensorrt import FakeContext, FakeCuda, FakeEngine
from tests.support.fake_tensorrt_module import (
    BuilderConfig,
    BuilderProfile,
    FakeTensorRT,
    Flags,
    Pool,
    Strategy,
)


def test_the_stand_ins_names_are_tensorrts() -> None:
    tensorrt = pytest.importorskip("tensorrt", reason="needs TensorRT: pip install 'halimede[tensorrt]'")
    for stand_in, real in (
        (FakeEngine, tensorrt.ICudaEngine),
        (FakeContext, tensorrt.IExecutionContext),
        (BuilderConfig, tensorrt.IBuilderConfig),
        (BuilderProfile, tensorrt.IOptimizationProfile),
    ):
        names = [
            name for name, value in vars(stand_in).items() if callable(value) and not name.startswith("_")
        ]
        assert [name for name in names if not hasattr(real, name)] == []
    for name in ("num_io_tensors", "num_optimization_profiles"):
        assert hasattr(tensorrt.ICudaEngine, name)
    assert hasattr(tensorrt.IBuilderConfig, "builder_optimization_level")
    assert hasattr(tensorrt.Runtime, "engine_host_code_allowed")
    for name in ("create_network", "create_builder_config", "create_optimization_profile"):
        assert hasattr(tensorrt.Builder, name)
    for name in ("build_serialized_network", "deserialize_cuda_engine", "parse_from_file", "get_error"):
        owner = {"b": tensorrt.Builder, "d": tensorrt.Runtime}.get(name[0], tensorrt.OnnxParser)
        assert hasattr(owner, name)
    for name in ("Runtime", "Builder", "OnnxParser", "init_libnvinfer_plugins"):
        assert hasattr(FakeTensorRT, name)
        assert hasattr(tensorrt, name)
    for word in Strategy:
        assert hasattr(tensorrt.ExecutionContextAllocationStrategy, word.name)
    for pool in Pool:
        assert hasattr(tensorrt.MemoryPoolType, pool.name)
    precisions = tensorrt.__version__.startswith("10.")
    for flag in Flags:
        expected = precisions or flag is Flags.VERSION_COMPATIBLE
        assert hasattr(tensorrt.BuilderFlag, flag.name) == expected


def test_tensorrts_messages_are_kept_for_errors() -> None:
    tensorrt = pytest.importorskip("tensorrt", reason="needs TensorRT: pip install 'halimede[tensorrt]'")
    from halimede.backends.tensorrt.log import MESSAGES

    assert tensorrt.init_libnvinfer_plugins(MESSAGES, "")
    MESSAGES.reason()
    for severity in (tensorrt.ILogger.Severity.ERROR, tensorrt.ILogger.Severity.INFO):
        MESSAGES.log(severity, f"said as {severity.name}")
    assert MESSAGES.reason() == "said as ERROR"
    assert MESSAGES.reason() == ""


def test_cudas_calls_are_those_of_the_stand_in() -> None:
    pytest.importorskip("cuda.bindings", reason="needs cuda-python: pip install 'halimede[tensorrt]'")
    from halimede.backends.tensorrt.cuda_runtime import CudaRuntime

    calls = [name for name, value in vars(CudaRuntime).items() if callable(value) and name[0] != "_"]
    assert [name for name in calls if not hasattr(FakeCuda, name)] == []


@pytest.mark.skipif(bool(visible_gpus()), reason="there is a GPU")
def test_without_a_driver_cudas_own_words_are_told() -> None:
    pytest.importorskip("cuda.bindings", reason="needs cuda-python: pip install 'halimede[tensorrt]'")
    from halimede.backends.tensorrt.cuda_runtime import CudaRuntime

    with pytest.raises(InternalError, match=r"^cannot use device 0: .* \(cudaError\w+\)$"):
        CudaRuntime().use_device(0)
    with pytest.raises(InternalError, match=r"^cannot allocate 8 bytes on the GPU: .* \(cudaError\w+\)$"):
        CudaRuntime().allocate(8)
