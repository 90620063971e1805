"""TensorRT engines (`model.plan`), run through the published Python API of TensorRT 10 and later.

All instances on a GPU share one engine, so that its weights are there once; each has execution contexts of its own.
"""

import ctypes
from pathlib import Path
from threading import Lock
from typing import Any

import tensorrt

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.decoupled import refuse_decoupled
from halimede.backends.file_looks import note
from halimede.backends.ports import check, complete
from halimede.backends.tensorrt.cuda_runtime import CudaRuntime
from halimede.backends.tensorrt.engine import EngineDescription, describe
from halimede.backends.tensorrt.instance import TensorRTInstance
from halimede.backends.tensorrt.log import MESSAGES
from halimede.backends.tensorrt.profiles import (
    all_profiles,
    check_batch,
    check_shape_tensors,
    group_profiles,
    largest_batch,
    ports_of,
)
from halimede.backends.tensorrt.settings import TensorRTSettings, model_file
from halimede.core.errors import InternalError, InvalidArgumentError, NotFoundError, UnsupportedError


class TensorRTModel(BackendModel):
    """A model that TensorRT has built an engine of."""

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        super().__init__(source, options)
        if not options.gpus:
            msg = f"unable to load model '{source.name}': TensorRT needs an NVIDIA GPU, and this server sees none"
            raise UnsupportedError(msg)
        self._settings = TensorRTSettings.of(source.config, options.settings)
        self._cuda = CudaRuntime()
        self._engines: dict[int, tuple[Any, EngineDescription]] = {}
        self._runtime: Any = None
        self._lock = Lock()

    def complete_config(self) -> None:
        """Fill in inputs, outputs and batching as the engine and its profiles have them."""
        config = self.source.config
        engine = self._description()
        if config.max_batch_size == 0 and not (config.input and config.output):
            config.max_batch_size = largest_batch(engine, all_profiles(config, engine.profiles))
        listed = {entry.name for entry in config.input}
        complete(config, ports_of(engine), dict(self.options.settings))
        shape_tensors = {tensor.name for tensor in engine.inputs if tensor.is_shape}
        for entry in config.input:
            if entry.name not in listed and entry.name in shape_tensors:
                entry.is_shape_tensor = True

    def check_config(self) -> None:
        """Hold the complete configuration against the engine."""
        config = self.source.config
        refuse_decoupled(config)
        engine = self._description()
        check_batch(config, engine, all_profiles(config, engine.profiles))
        check_shape_tensors(config, engine)
        check(config, ports_of(engine))

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance on the GPU that `spec` names, with a context for each profile of its group."""
        config = self.source.config
        settings = self._settings
        engine, description = self._engine(spec.device)
        group = spec.name.rpartition("_")[0]
        contexts = []
        self._cuda.use_device(spec.device)
        for profile in group_profiles(config, group, description.profiles):
            strategy = getattr(tensorrt.ExecutionContextAllocationStrategy, settings.allocation)
            context = engine.create_execution_context(strategy)
            if context is None:
                raise self._failure("cannot create an execution context")
            contexts.append((profile, context))
        instance = TensorRTInstance(
            self._cuda,
            spec.device,
            description,
            contexts,
            MESSAGES.reason,
            priority=settings.priority,
            pinned=(settings.pinned_inputs, settings.pinned_outputs),
        )
        try:
            instance.choose_profiles()
            instance.states = self.sequence_states()
        except BaseException:
            instance.close()
            raise
        return instance

    def close(self) -> None:
        """Give up the engines, which frees them, as no instance is left."""
        while self._engines:
            device, _ = self._engines.popitem()
            self._cuda.use_device(device)
        self._runtime = None

    def _description(self) -> EngineDescription:
        """What the engine says of itself, on the first GPU that instances are to be on."""
        for group in self.source.config.instance_group:
            for gpu in group.gpus:
                return self._engine(gpu)[1]
        return self._engine(self.options.gpus[0])[1]

    def _engine(self, device: int) -> tuple[Any, EngineDescription]:
        """The engine on that GPU, which the first to ask loads."""
        with self._lock:
            found = self._engines.get(device)
            if found is None:
                self._cuda.use_device(device)
                engine = self._load(device)
                found = self._engines[device] = engine, describe(engine)
        return found

    def _load(self, device: int) -> Any:
        path = self._path(device)
        if self._runtime is None:
            load_plugins(self._settings.plugins)
            tensorrt.init_libnvinfer_plugins(MESSAGES, "")
            self._runtime = tensorrt.Runtime(MESSAGES)
            self._runtime.engine_host_code_allowed = self._settings.version_compatible
        engine = self._runtime.deserialize_cuda_engine(path.read_bytes())
        if engine is None:
            raise self._failure(
                f"cannot read the engine {path} with TensorRT {tensorrt.__version__}; engines are for the version "
                f"and the kind of GPU that they were built with (halimede build-engine builds them here){note(path)}"
            )
        return engine

    def _path(self, device: int) -> Path:
        """The file of the engine for that GPU.

        Raises:
            NotFoundError: there is none.
        """
        source = self.source
        path = source.version_directory / model_file(source.config, self._cuda.capability(device))
        if not path.is_file():
            msg = (
                f"unable to load model '{source.name}': there is no file {path}; expected a TensorRT engine there. "
                f"halimede build-engine makes one of an ONNX file"
            )
            raise NotFoundError(msg)
        return path

    def _failure(self, what: str) -> InternalError:
        said = MESSAGES.reason()
        return InternalError(
            f"unable to load model '{self.source.name}': {what}" + (f": {said}" if said else "")
        )


def load_plugins(paths: tuple[str, ...]) -> None:
    """Load libraries, which add their plugins to TensorRT's registry; loading one twice changes nothing.

    Raises:
        InvalidArgumentError: one cannot be loaded.
    """
    for path in paths:
        try:
            ctypes.CDLL(path)
        except OSError as error:
            msg = f"--backend-config=tensorrt,plugins: cannot load '{path}': {error}"
            raise InvalidArgumentError(msg) from error
