"""Models that OpenVINO runs: its own format (`model.xml` with `model.bin`), and what it reads besides, as ONNX.

The instances of a model share one compiled model, so that weights and threads are there once; each has an infer
request of its own, and as many run at a time as there are streams.
"""

import logging
import re
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import openvino

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.batch import Batch
from halimede.backends.decoupled import refuse_decoupled
from halimede.backends.file_looks import XML, note
from halimede.backends.openvino.errors import openvino_error, plain_text
from halimede.backends.openvino.settings import CPU, OpenVinoSettings
from halimede.backends.openvino.shapes import (
    batches_by_layout,
    fixed_rows,
    name_of,
    outputs_follow,
    ports_of,
    reshape,
)
from halimede.backends.ports import check, complete
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.sequence_tensors import as_backend_sees, backend_signature
from halimede.config.signature import Signature, TensorSpec
from halimede.core.datatypes import BF16
from halimede.core.errors import (
    HalimedeError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    UnsupportedError,
)
from halimede.core.tensors import Array

logger = logging.getLogger("halimede")

_SMALL = 65_536
"""Bytes up to which a copy costs less than a tensor over memory that may not be written."""

_IR_VERSIONS = (10, 11)
"""The versions of OpenVINO's own format that it reads."""

_NET = re.compile(rb'<net\b[^>]*\bversion="(\d+)"')


class OpenVinoModel(BackendModel):
    """A model that OpenVINO reads."""

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        super().__init__(source, options)
        self._path = _model_path(source)
        self._core: Any = None
        self._read: Any = None
        self._compiled: Any = None
        self._rows = 0  # of the only batch that it takes
        self._pads = False
        self._lock = Lock()

    def complete_config(self) -> None:
        """Fill in inputs, outputs and batching as the model has them."""
        config = self.source.config
        settings = OpenVinoSettings.of(config)
        model = self._model(settings)
        unlisted = not config.input or not config.output
        lead = _lead(config.max_batch_size, settings)
        if not lead and unlisted and batches_by_layout(model):
            lead = -1
        self._reshape(settings, lead)
        complete(config, ports_of(model, self._rows), dict(self.options.settings))

    def check_config(self) -> None:
        """Hold the complete configuration against the model, whose inputs take its batch size."""
        config = self.source.config
        refuse_decoupled(config)
        settings = OpenVinoSettings.of(config)
        _refuse_ragged(config, settings)
        self._reshape(settings, _lead(config.max_batch_size, settings))
        check(config, ports_of(self._model(settings), self._rows))

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance with an infer request of its own."""
        config = self.source.config
        settings = OpenVinoSettings.of(config)
        if spec.kind == "KIND_GPU":
            msg = (
                f"unable to load model '{config.name}': the OpenVINO backend has no instances of KIND_GPU; say "
                f"KIND_CPU, and choose one of OpenVINO's devices by the parameter 'TARGET_DEVICE'"
            )
            raise InvalidArgumentError(msg)
        with self._lock:
            if self._compiled is None:
                self._compile(settings)
            request = self._compiled.create_infer_request()
        signature = backend_signature(config)
        may_block = settings.device != CPU
        instance = OpenVinoInstance(request, signature, self._rows, pad=self._pads, may_block=may_block)
        instance.states = self.sequence_states()
        return instance

    def close(self) -> None:
        """Give up the compiled model; its memory is free once no instance holds it."""
        self._read = self._compiled = self._core = None

    def _reshape(self, settings: OpenVinoSettings, lead: int) -> None:
        """Give the model's inputs their first dimension; see `shapes.reshape`.

        Where that cannot be free, as the model is made for batches of exactly `max_batch_size` rows, it stays fixed,
        and smaller batches are filled up.
        """
        config = as_backend_sees(self.source.config)
        model, largest = self._model(settings), config.max_batch_size
        self._rows, self._pads = (largest if settings.fixed_batch else 0), settings.pad
        ragged = any(entry.allow_ragged_batch for entry in config.input)  # there is nothing to fill up with
        is_fixed = lead == -1 and largest > 0 and fixed_rows(model) == largest and not ragged
        try:
            reshape(model, config, settings, lead)
        except InvalidArgumentError:
            if not is_fixed:
                raise
        else:
            if not is_fixed or outputs_follow(model):
                return
        reshape(model, config, settings, largest)
        self._rows, self._pads = largest, True
        logger.info(
            "model '%s' takes batches of exactly %d rows; smaller ones are filled up with zeros",
            config.name,
            largest,
        )

    def _model(self, settings: OpenVinoSettings) -> Any:
        """The model as read from its file, until it is compiled."""
        if self._read is not None:
            return self._read
        self._core = core = openvino.Core()
        if settings.device not in core.available_devices:
            msg = (
                f"model '{self.source.name}': OpenVINO has no device '{settings.device}' here (it has "
                f"{', '.join(core.available_devices)}); change the parameter 'TARGET_DEVICE'"
            )
            raise UnsupportedError(msg)
        # weights that stay mapped would end the server if someone cut the file short while it serves
        core.set_property({"ENABLE_MMAP": False})
        if settings.extension:
            self._extend(settings.extension)
        try:
            self._read = core.read_model(str(self._path))
        except Exception as error:  # OpenVINO's errors have no common base
            version = _ir_version(self._path)
            if version is not None and version not in _IR_VERSIONS:
                msg = (
                    f"unable to load model '{self.source.name}': {self._path} is IR of version {version}, and "
                    f"OpenVINO {openvino.__version__} reads versions {' and '.join(map(str, _IR_VERSIONS))}; "
                    f"convert the model with a release of OpenVINO that writes one of them"
                )
                raise InvalidArgumentError(msg) from error
            raised = self._error(error)
            raise type(raised)(f"{raised.message}{note(self._path, usual=XML)}") from error
        return self._read

    def _extend(self, library: str) -> None:
        path = self.source.directory / library
        try:
            self._core.add_extension(str(path))
        except Exception as error:
            msg = (
                f"model '{self.source.name}': cannot load the extension {path} that the parameter "
                f"'CPU_EXTENSION_PATH' names: {plain_text(error)}"
            )
            raise InvalidArgumentError(msg) from error

    def _compile(self, settings: OpenVinoSettings) -> None:
        config = self.source.config
        instances = sum(max(1, group.count) for group in config.instance_group)
        properties = settings.properties(self.options.cpu_threads, instances)
        model = self._model(settings)
        if settings.compile_threads is not None:
            supported = self._core.get_property(settings.device, "SUPPORTED_PROPERTIES")
            if "COMPILATION_NUM_THREADS" not in supported:
                msg = (
                    f"model '{config.name}': OpenVINO {openvino.__version__} has no COMPILATION_NUM_THREADS for "
                    f"the device {settings.device}; remove the parameter 'COMPILATION_NUM_THREADS'"
                )
                raise UnsupportedError(msg)
            properties["COMPILATION_NUM_THREADS"] = settings.compile_threads
        try:
            self._compiled = self._core.compile_model(model, settings.device, properties)
        except Exception as error:
            raise self._error(error) from error
        self._read = None  # it holds the weights a second time

    def _error(self, error: Exception) -> HalimedeError:
        return openvino_error(error, (self.source.name, str(self._path)))


class OpenVinoInstance(Instance):
    """Runs batches in an infer request."""

    repeatable = True

    def __init__(self, request: Any, signature: Signature, rows: int, *, pad: bool, may_block: bool) -> None:
        self.may_block = may_block
        self._request = request
        self._signature = signature
        self._rows = rows
        self._pad = pad
        self._held: dict[
            str, Array
        ] = {}  # the request has their addresses until the next run's take their place
        self._stateful = bool(request.query_state())
        compiled = request.get_compiled_model()
        self._inputs = [(name_of(port), *_form(port)) for port in compiled.inputs]
        self._outputs = {name_of(port): index for index, port in enumerate(compiled.outputs)}

    def execute(self, batch: Batch) -> None:
        """Run the batch for the outputs that its requests want."""
        arrays = batch.gather()
        padding = self._padding(batch.size)
        request = self._request
        try:
            for index, (name, bf16, scalar) in enumerate(self._inputs):
                array = arrays[name].reshape(()) if scalar else _padded(arrays[name], padding)
                arrays[name] = array = _fit(array)
                request.set_input_tensor(index, _tensor(array, bf16=bf16))
            self._held = arrays
            if self._stateful:
                request.reset_state()  # requests know nothing of each other
            # not `infer`, which does not tell that a run failed where the model has one thread (OpenVINO 2026.4)
            request.start_async()
            request.wait()
            outputs = {name: self._output(self._signature.outputs[name], padding) for name in batch.wanted()}
        except Exception as error:  # OpenVINO's errors have no common base
            raise openvino_error(error) from error
        batch.scatter(outputs)

    def close(self) -> None:
        """Let go of the infer request."""
        self._request = None
        self._held = {}

    def _padding(self, size: int) -> int:
        """Rows to add to a batch of that size.

        Raises:
            InternalError: the model takes batches of another size only.
        """
        if not self._rows or size == self._rows:
            return 0
        if not self._pad:
            msg = (
                f"expected requests with batch size '{self._rows}', got '{size}'... this error can be avoided by "
                f"setting 'ENABLE_BATCH_PADDING' parameter in model configuration to 'YES' at a performance cost."
            )
            raise InternalError(msg)
        return self._rows - size

    def _output(self, spec: TensorSpec, padding: int) -> Array:
        """An output, copied: the infer request writes the next run's over it."""
        tensor = self._request.get_output_tensor(self._outputs[spec.name])
        data = tensor.data.view(BF16.numpy) if spec.datatype is BF16 else tensor.data
        array: Array = data.copy()
        if array.ndim == 0:
            # the configuration has no scalars; it says one element instead
            return array.reshape(1)
        return array[: len(array) - padding] if padding else array


def _form(port: Any) -> tuple[bool, bool]:
    """Whether the elements of an input are BF16, and whether it is a scalar."""
    return port.element_type == openvino.Type.bf16, len(port.partial_shape) == 0


def _padded(array: Array, padding: int) -> Array:
    if not padding:
        return array
    return np.concatenate([array, np.zeros((padding, *array.shape[1:]), array.dtype)])


class _Writeable:
    """Says of an array's memory that it may be written, which OpenVINO asks for and does not do."""

    def __init__(self, array: Array) -> None:
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self._array = array


def _fit(array: Array) -> Array:
    """The array, or a copy where OpenVINO could not read its memory in place."""
    # kernels may read with instructions that need an element's alignment; a view on a message may lack it
    if not array.flags.aligned or not array.flags.c_contiguous:
        array = array.copy()
    if array.flags.writeable:
        return array
    return array.copy() if array.nbytes <= _SMALL else np.asarray(_Writeable(array))


def _tensor(array: Array, *, bf16: bool) -> Any:
    """An `openvino.Tensor` over the array's memory."""
    if bf16:
        return openvino.Tensor(array, array.shape, openvino.Type.bf16)
    return openvino.Tensor(array, shared_memory=True)


def _refuse_ragged(config: ModelConfig, settings: OpenVinoSettings) -> None:
    """Are there flat inputs for a model of one batch size, whose batches are rows?

    Raises:
        InvalidArgumentError: there are.
    """
    ragged = [entry.name for entry in config.input if entry.allow_ragged_batch]
    if settings.fixed_batch and ragged:
        msg = (
            f"model '{config.name}': input '{ragged[0]}' is ragged, so that no batch has a size that is known before; "
            f"remove the parameter 'SKIP_OV_DYNAMIC_BATCHSIZE'"
        )
        raise InvalidArgumentError(msg)


def _lead(max_batch_size: int, settings: OpenVinoSettings) -> int:
    """The first dimension of a model's inputs: -1 for any; 0 for a model that does not batch."""
    if max_batch_size == 0:
        return 0
    return max_batch_size if settings.fixed_batch else -1


def _ir_version(path: Path) -> int | None:
    """The version of OpenVINO's own format that a file says; None for one that says none, and for a directory."""
    if path.is_dir():
        return None
    with path.open("rb") as file:
        found = _NET.search(file.read(4096))
    return int(found[1]) if found else None


def _model_path(source: ModelSource) -> Path:
    """The model's file."""
    path = source.version_directory / (source.config.default_model_filename or "model.xml")
    if path.is_dir() and (path / path.name).is_file():
        path /= path.name
    if not path.exists():
        msg = (
            f"unable to load model '{source.name}': there is no file {path}; expected an OpenVINO model there "
            f"(model.xml, with model.bin beside it). For an ONNX file, say default_model_filename: "
            f'"model.onnx"'
        )
        raise NotFoundError(msg)
    return path
