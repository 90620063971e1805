"""ONNX models, run by onnxruntime.

The instances of a model share one session a device: its runs are independent of each other, and so weights and
threads are there once, however many instances run at a time.
"""

import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.batch import Batch
from halimede.backends.decoupled import refuse_decoupled
from halimede.backends.file_looks import note
from halimede.backends.onnx.bound import bound_runs
from halimede.backends.onnx.device import DeviceRuns, device_runs
from halimede.backends.onnx.log import bring_messages_into_log
from halimede.backends.onnx.ports import session_ports
from halimede.backends.onnx.providers import has_cuda, load_cuda, providers, run_options, session_options
from halimede.backends.ports import Ports, check, complete
from halimede.config.model_config_pb2 import ModelConfig, ModelInstanceGroup
from halimede.config.model_files import hint
from halimede.config.sequence_tensors import backend_signature
from halimede.config.signature import Signature
from halimede.core.datatypes import BF16, BYTES
from halimede.core.device_tensors import CUDA, Device
from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError, NotFoundError
from halimede.core.tensors import Array

logger = logging.getLogger("halimede")

Run = Callable[[list[str], dict[str, Array], Any], Sequence[Array]]

_ONNX_BFLOAT16 = 16  # TensorProto.BFLOAT16
bring_messages_into_log()

_UNREADABLE = re.compile("Protobuf parsing failed|No graph was found|does not have a graph")
_STATUS = re.compile(r"\[ONNXRuntimeError\] : (\d+) : \w+ : (.*)", re.DOTALL)


class OnnxModel(BackendModel):
    """An ONNX model: a file, or a directory that holds `model.onnx` and what it refers to."""

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        super().__init__(source, options)
        self._path = _model_path(source)
        self._sessions: dict[tuple[str, int], Any] = {}
        self._lock = Lock()

    def complete_config(self) -> None:
        """Fill in inputs, outputs and batching as the model has them."""
        complete(self.source.config, self._ports(), dict(self.options.settings))

    def check_config(self) -> None:
        """Hold the complete configuration against the model."""
        refuse_decoupled(self.source.config)
        check(self.source.config, self._ports())

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance on the device that `spec` names."""
        config = self.source.config
        session = self._session(spec.kind, spec.device)
        instance = OnnxInstance(
            session,
            backend_signature(config),
            run_options(config, self.options),
            may_block=spec.kind == "KIND_GPU",
            device=(CUDA, spec.device) if spec.kind == "KIND_GPU" else None,
        )
        instance.states = self.sequence_states()
        return instance

    def close(self) -> None:
        """Give up the sessions; their memory is free once no instance holds them."""
        self._sessions.clear()

    def _ports(self) -> Ports:
        """What the model says of itself, asked of a session that the first instance will use."""
        return session_ports(self._session(*_first_place(self.source.config, self.options.gpus)))

    def _session(self, kind: str, device: int) -> Any:
        place = (kind, device) if kind == "KIND_GPU" else ("KIND_CPU", 0)
        with self._lock:
            session = self._sessions.get(place)
            if session is None:
                session = self._sessions[place] = self._load(*place)
        return session

    def _load(self, kind: str, device: int) -> Any:
        config = self.source.config
        chosen = providers(config, kind, device)
        options = session_options(config, self.options, self.source.directory)
        if kind == "KIND_GPU":
            load_cuda()
        try:
            # Without fallback: a provider that fails is an error, not a reason to run elsewhere unasked. By path:
            # a session keeps the bytes that it is given.
            session = onnxruntime.InferenceSession(str(self._path), options, [*chosen], enable_fallback=0)
        except Exception as error:  # onnxruntime's errors have no common base
            raised = onnx_error(error)
            if _UNREADABLE.search(raised.message):
                raised = InternalError(f"{raised.message}{note(self._path)}")
            raise raised from error
        started = session.get_providers()
        for name, _ in chosen:
            if name not in started:  # onnxruntime only logs that
                msg = (
                    f"unable to load model '{config.name}': onnxruntime's {name} did not start, and onnxruntime's "
                    f"own messages in the log say why"
                )
                raise InternalError(msg)
        return session


class OnnxInstance(Instance):
    """Runs batches in a session."""

    repeatable = True

    def __init__(
        self,
        session: Any,
        signature: Signature,
        options: onnxruntime.RunOptions,
        *,
        may_block: bool,
        device: Device | None = None,
    ) -> None:
        self.may_block = may_block
        self._options = options
        self._texts = [spec.name for spec in signature.inputs.values() if spec.datatype is BYTES]
        self._text_outputs = {spec.name for spec in signature.outputs.values() if spec.datatype is BYTES}
        self._scalars = any(not output.shape for output in session.get_outputs())
        specs = [*signature.inputs.values(), *signature.outputs.values()]
        self._run: Run | None
        if any(spec.datatype is BF16 for spec in specs):
            self._run = _Bfloat16Run(session, signature)
        else:
            # What `InferenceSession.run` calls. Its own checks repeat ours and cost 4 µs a run, as much again as
            # a small model's.
            self._run = session._sess.run  # noqa: SLF001
        self._bound = None if may_block else bound_runs(session, signature, options)
        self._on_device = None if device is None else device_runs(session, signature, options, device)
        self.device = None if self._on_device is None else device

    def execute(self, batch: Batch) -> None:
        """Run the batch for the outputs that its requests want."""
        if self._bound is not None and self._bound.takes(batch):
            try:
                self._bound.execute(batch)
            except Exception:  # onnxruntime's errors have no common base
                logger.debug("a run between bound buffers failed; an ordinary one says why, or does better")
            else:
                return
        if self._on_device is not None and self._ran_on_device(batch, self._on_device):
            return
        run = self._run
        assert run is not None
        inputs = batch.gather()
        for name, array in inputs.items():
            # kernels may read with instructions that need an element's alignment; a view on a message may lack it
            if not array.flags.aligned:
                inputs[name] = array.copy()
        for name in self._texts:
            if name in inputs:
                inputs[name] = _decoded(name, inputs[name])
        names = batch.wanted()
        try:
            arrays = run(names, inputs, self._options)
        except Exception as error:  # onnxruntime's errors have no common base
            raise onnx_error(error) from error
        outputs = dict(zip(names, arrays, strict=True))
        if self._scalars:
            # the configuration has no scalars; it says one element instead
            outputs = {name: array if array.ndim else array.reshape(1) for name, array in outputs.items()}
        for name in self._text_outputs:
            if name in outputs:
                outputs[name] = _encoded(outputs[name])
        batch.scatter(outputs)

    def close(self) -> None:
        """Let go of the session."""
        self._run = self._bound = self._on_device = None

    def _ran_on_device(self, batch: Batch, runs: DeviceRuns) -> bool:
        """Run the batch between tensors on the device, if it has such."""
        try:
            return runs.execute(batch)
        except HalimedeError:
            raise
        except Exception as error:  # onnxruntime's errors have no common base
            raise onnx_error(error) from error


class _Bfloat16Run:
    """`run` for a model with BF16 tensors, which numpy lacks: they pass as their 16 bits, uncopied."""

    def __init__(self, session: Any, signature: Signature) -> None:
        self._session = session
        self._inputs = {spec.name for spec in signature.inputs.values() if spec.datatype is BF16}
        self._outputs = {spec.name for spec in signature.outputs.values() if spec.datatype is BF16}

    def __call__(self, names: list[str], inputs: dict[str, Array], options: Any) -> list[Array]:
        values = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, _ONNX_BFLOAT16)
            if name in self._inputs
            else onnxruntime.OrtValue.ortvalue_from_numpy(array)
            for name, array in inputs.items()
        }
        results = self._session.run_with_ort_values(names, values, options)
        return [
            np.asarray(_Bits(value)) if name in self._outputs else value.numpy()
            for name, value in zip(names, results, strict=True)
        ]


class _Bits:
    """The 16-bit elements of an `OrtValue`, which lives for as long as an array is over them."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self.__array_interface__ = {
            "data": (value.data_ptr(), True),
            "shape": tuple(value.shape()),
            "typestr": BF16.numpy.str,
            "version": 3,
        }


def onnx_error(error: Exception) -> InternalError:
    """The error as clients read it, with onnxruntime's numeric status; 1 (FAIL) where it names none."""
    found = _STATUS.search(str(error))
    status, text = found.groups() if found else ("1", str(error))
    return InternalError(f"onnx runtime error {status}: {text.strip()}")


def _decoded(name: str, array: Array) -> Array:
    """The strings as `str`, which is all that onnxruntime takes from Python."""
    try:
        return _objects([element.decode() for element in array.reshape(-1).tolist()], array.shape)
    except UnicodeDecodeError as error:
        msg = (
            f"input '{name}' holds a string that is not UTF-8 ({error.reason} at byte {error.start}); "
            f"onnxruntime takes only UTF-8 from Python"
        )
        raise InvalidArgumentError(msg) from error


def _encoded(array: Array) -> Array:
    """The strings as `bytes`."""
    return _objects([element.encode() for element in array.reshape(-1).tolist()], array.shape)


def _objects(elements: Sequence[object], shape: tuple[int, ...]) -> Array:
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array.reshape(shape)


def _model_path(source: ModelSource) -> Path:
    """The model's file."""
    path = source.version_directory / (source.config.default_model_filename or "model.onnx")
    if path.is_dir():
        path /= "model.onnx"
    if not path.is_file():
        msg = (
            f"unable to load model '{source.name}': there is no file {path}; expected an ONNX file there, or "
            f"a directory that holds model.onnx. The setting default_model_filename names another"
            f"{hint(source.directory, 'onnxruntime')}"
        )
        raise NotFoundError(msg)
    return path


def _first_place(config: ModelConfig, gpus: tuple[int, ...]) -> tuple[str, int]:
    """Kind and device of the model's first instance, also before the configuration is normalised."""
    usable = gpus if has_cuda() else ()
    for group in config.instance_group:
        if group.kind == ModelInstanceGroup.KIND_GPU:
            return "KIND_GPU", next(iter([*group.gpus, *gpus, 0]))
        if group.kind != ModelInstanceGroup.KIND_AUTO:
            return "KIND_CPU", 0
        if group.gpus:
            usable = tuple(group.gpus)
        break
    return ("KIND_GPU", usable[0]) if usable else ("KIND_CPU", 0)
