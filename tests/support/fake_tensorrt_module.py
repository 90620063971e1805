"""A stand-in for the module `tensorrt`: what opening a model and building an engine use of it."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support.fake_tensorrt import FakeContext, FakeCuda, FakeEngine, FakeTensor

MODULES = ("backend", "builder", "log", "cuda_runtime")


class Severity(Enum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


class ILogger:
    """As `tensorrt.ILogger`."""

    Severity = Severity

    def __init__(self) -> None:
        pass


class Flags(Enum):
    """As `tensorrt.BuilderFlag` of TensorRT 10; that of TensorRT 11 has no precisions."""

    FP16 = 0
    BF16 = 1
    INT8 = 2
    VERSION_COMPATIBLE = 3


class FlagsOf11(Enum):
    VERSION_COMPATIBLE = 3


class Strategy(Enum):
    STATIC = 0
    ON_PROFILE_CHANGE = 1


class Pool(Enum):
    WORKSPACE = 0


class BuilderConfig:
    """As `tensorrt.IBuilderConfig`."""

    def __init__(self, module: "FakeTensorRT") -> None:
        self.flags: list[str] = []
        self.pools: dict[Any, int] = {}
        self.profiles: list[Any] = []
        self.builder_optimization_level = 3
        self._module = module
        self._cache = b""

    def set_flag(self, flag: Any) -> None:
        self.flags.append(flag.name)

    def set_memory_pool_limit(self, pool: Any, pool_size: int) -> None:
        self.pools[pool] = pool_size

    def create_timing_cache(self, serialized_timing_cache: bytes) -> bytes:
        return serialized_timing_cache

    def set_timing_cache(self, cache: bytes, ignore_mismatch: bool) -> bool:
        self._cache = cache
        return cache != b"foreign"

    def get_timing_cache(self) -> Any:
        return SimpleNamespace(serialize=lambda: self._cache + b"+measured")

    def add_optimization_profile(self, profile: Any) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1


class BuilderProfile:
    """As `tensorrt.IOptimizationProfile`."""

    def __init__(self) -> None:
        self.shapes: dict[str, Any] = {}
        self.values: dict[str, Any] = {}

    def set_shape(self, name: str, *sizes: tuple[int, ...]) -> None:
        if len(sizes[0]) != 2:
            raise ValueError("Shape provided does not match the network's")
        self.shapes[name] = sizes

    def set_shape_input(self, name: str, *values: tuple[int, ...]) -> None:
        self.values[name] = values


class FakeTensorRT(ModuleType):
    """The module, with an engine to read and a network to parse."""

    ILogger = ILogger
    ExecutionContextAllocationStrategy = Strategy
    MemoryPoolType = Pool

    def __init__(
        self, cuda: FakeCuda, tensors: Sequence[FakeTensor], profiles: Sequence[Any], version: str
    ) -> None:
        super().__init__("tensorrt")
        self.__version__ = version
        self.BuilderFlag = FlagsOf11 if version.startswith("11") else Flags
        self.tensors = tensors
        self.cuda = cuda
        self.readable = True
        self.parse_errors: list[Any] = []
        self.built: BuilderConfig | None = None
        self.buildable = True
        self.has_gpu = True
        self.logger: Any = None
        self.read: list[bytes] = []
        self.runtime = SimpleNamespace(engine_host_code_allowed=False)
        self._profiles = profiles

    def init_libnvinfer_plugins(self, logger: Any, namespace: str) -> bool:
        self.logger = logger
        return True

    def Runtime(self, logger: Any) -> Any:  # noqa: N802 - its name
        self.runtime.deserialize_cuda_engine = self._read
        return self.runtime

    def Builder(self, logger: Any) -> Any:  # noqa: N802
        self.logger = logger
        if not self.has_gpu:
            logger.log(Severity.ERROR, "CUDA initialization failure with error: 35")
            raise TypeError("pybind11::init(): factory function returned nullptr")
        inputs = [
            SimpleNamespace(name=tensor.name, shape=tensor.shape, is_shape_tensor=tensor.is_shape)
            for tensor in self.tensors
            if tensor.mode == "INPUT"
        ]
        network = SimpleNamespace(num_inputs=len(inputs), get_input=lambda index: inputs[index])
        return SimpleNamespace(
            create_network=lambda flags: network,
            create_builder_config=lambda: BuilderConfig(self),
            create_optimization_profile=BuilderProfile,
            build_serialized_network=self._build,
        )

    def OnnxParser(self, network: Any, logger: Any) -> Any:  # noqa: N802
        errors = self.parse_errors
        return SimpleNamespace(
            parse_from_file=lambda path: not errors,
            num_errors=len(errors),
            get_error=lambda index: errors[index],
        )

    def _build(self, network: Any, config: BuilderConfig) -> bytes | None:
        self.built = config
        if not self.buildable:
            self.logger.log(Severity.ERROR, "no tactic fits the workspace")
            return None
        return b"plan"

    def _read(self, data: bytes) -> Any:
        self.read.append(data)
        if not self.readable:
            self.logger.log(Severity.ERROR, "the engine was built by another version")
            return None
        engine: Any = FakeEngine(self.tensors, self._profiles)
        engine.contexts = []

        def create(strategy: Strategy) -> FakeContext:
            context: Any = FakeContext(self.tensors, self.cuda, lambda inputs: {"y": inputs["x"] + 1})
            context.strategy = strategy.name
            engine.contexts.append(context)
            return context  # type: ignore[no-any-return]

        engine.create_execution_context = create
        return engine


@contextmanager
def installed(
    patch: pytest.MonkeyPatch, tensors: Sequence[FakeTensor], profiles: Sequence[Any], version: str = "10.9.0"
) -> Iterator[FakeTensorRT]:
    """The module, and CUDA, as if they were installed and there were a GPU."""
    cuda = FakeCuda()
    module = FakeTensorRT(cuda, tensors, profiles, version)
    for name in MODULES:
        patch.delitem(sys.modules, f"halimede.backends.tensorrt.{name}", raising=False)
    patch.setitem(sys.modules, "tensorrt", module)
    runtime: Any = ModuleType("halimede.backends.tensorrt.cuda_runtime")
    make: Callable[[], FakeCuda] = lambda: cuda  # noqa: E731
    runtime.CudaRuntime = make
    patch.setitem(sys.modules, "halimede.backends.tensorrt.cuda_runtime", runtime)
    yield module
    for name in MODULES:
        sys.modules.pop(f"halimede.backends.tensorrt.{name}", None)
