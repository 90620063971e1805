"""PyTorch models: TorchScript, programs of `torch.export`, packages of AOTInductor and modules of Python code.

Which of them a file is, its content says. Instances have modules of their own unless ENABLE_WEIGHT_SHARING lets them
share one a device; calls of one module may overlap.
"""

import logging
from collections.abc import Sequence
from threading import Lock

import torch

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.decoupled import refuse_decoupled
from halimede.backends.parameters import text_parameter
from halimede.backends.ports import Port as TensorPort
from halimede.backends.ports import complete_batching, describe, describe_output
from halimede.backends.pytorch.compile import PARAMETER as COMPILE
from halimede.backends.pytorch.compile import compiling
from halimede.backends.pytorch.errors import pytorch_error
from halimede.backends.pytorch.exported import Exported
from halimede.backends.pytorch.files import RUNTIME, Kind, file_kind, model_path
from halimede.backends.pytorch.instance import PyTorchInstance
from halimede.backends.pytorch.module import Module
from halimede.backends.pytorch.package import Package
from halimede.backends.pytorch.ports import Port, Side, check_batch_inputs, check_tensor, listed_names
from halimede.backends.pytorch.program import Program, TorchScript
from halimede.backends.pytorch.settings import Settings, process
from halimede.config.model_config_pb2 import ModelConfig, ModelInput, ModelOutput
from halimede.config.sequence_tensors import as_backend_sees, sequence_names
from halimede.core.datatypes import FP32
from halimede.core.errors import HalimedeError, InternalError, InvalidArgumentError, UnsupportedError

logger = logging.getLogger("halimede")

_RUNTIMES = ("", "libtriton_pytorch.so", RUNTIME)


class PyTorchModel(BackendModel):
    """A PyTorch model: one file."""

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        super().__init__(source, options)
        config = source.config
        if config.runtime not in _RUNTIMES:
            msg = (
                f"unable to load model '{source.name}': the pytorch backend has no runtime '{config.runtime}'; leave "
                f"it out, or set '{RUNTIME}' for a module of Python code"
            )
            raise UnsupportedError(msg)
        self._path = model_path(source)
        self._kind = file_kind(source.name, self._path)
        self._compiling = compiling(config)
        if self._compiling is not None and self._kind in (Kind.SCRIPT, Kind.PACKAGE):
            msg = (
                f"unable to load model '{source.name}': parameter '{COMPILE}' is for modules and programs of "
                f"torch.export, and {self._path.name} is {self._kind.value}"
            )
            raise InvalidArgumentError(msg)
        choice = text_parameter(config, "isolation")
        if self._kind is Kind.MODULE and choice in ("none", "thread"):
            msg = (
                f"unable to load model '{source.name}': parameter 'isolation' cannot be '{choice}' for a module of "
                f"Python code, whose instances always have processes of their own; leave it out"
            )
            raise InvalidArgumentError(msg)
        self._settings = Settings.from_config(source.config)
        process.set_up(source.config, options)
        self._shared: dict[str | None, Program] = {}
        self._first: Program | None = None
        self._programs: list[Program] = []
        self._lock = Lock()

    def complete_config(self) -> None:
        """Fill in inputs, outputs and batching as the file tells them; TorchScript and modules tell none of them."""
        config = self.source.config
        if config.input and config.output:
            return
        program = self._described()
        if isinstance(program, Package):
            program.describe()
        if any(port.shape is None for port in _ports(program)):
            return
        if program.batches:
            complete_batching(config, dict(self.options.settings))
        elif config.max_batch_size != 0:
            msg = (
                f"autofill failed for model '{config.name}': model does not support batching while non-zero "
                f"max_batch_size is specified"
            )
            raise InternalError(msg)
        batched = config.max_batch_size > 0
        taken = sequence_names(config)
        if not config.input:
            for port in program.inputs.ports:
                if taken.isdisjoint((port.name, *port.aliases)):
                    describe(config.input.add(), _tensor(port), batched=batched)
        if not config.output:
            for port in program.outputs.ports:
                if taken.isdisjoint((port.name, *port.aliases)):
                    describe_output(config, _tensor(port))

    def check_config(self) -> None:
        """Hold the complete configuration against the program."""
        config = self.source.config
        refuse_decoupled(config)
        program = self._described()
        inputs, outputs = program.inputs, program.outputs
        if not (config.input or config.batch_input) or not config.output:
            msg = (
                f"unable to load model '{config.name}': {self._kind.value} does not say all datatypes and shapes, so "
                f"config.pbtxt must list input and output. It takes {inputs.text} and gives {outputs.text}"
                f"{_example(inputs, outputs)}"
            )
            raise InvalidArgumentError(msg)
        if isinstance(program, Package):
            _check_rows(config, program)
        config = as_backend_sees(config)
        check_batch_inputs(config, inputs)
        sides: tuple[tuple[Side, Sequence[ModelInput | ModelOutput]], ...]
        sides = (inputs, config.input), (outputs, config.output)
        for side, entries in sides:
            places = side.places(config, listed_names(config, side.word))
            for entry in entries:
                port = side.port(places[entry.name]) or Port(entry.name)
                check_tensor(config, side, entry, port)
                required = port.required and not side.keyed
                if isinstance(entry, ModelInput) and entry.optional and required:
                    msg = (
                        f"unable to load model '{config.name}', input '{entry.name}' is optional in the "
                        f"configuration, but the model has no default for it"
                    )
                    raise InvalidArgumentError(msg)

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance on the device that `spec` names."""
        device = {"KIND_GPU": f"cuda:{spec.device}", "KIND_CPU": "cpu"}.get(spec.kind)
        with self._lock:
            program = self._shared.get(device) or self._take_first(device) or self._load(device)
            if self._settings.shared:
                self._shared[device] = program
        instance = PyTorchInstance(program, as_backend_sees(self.source.config), self._settings, program.home)
        instance.states = self.sequence_states()
        return instance

    def close(self) -> None:
        """Give back the weights."""
        while self._programs:
            self._programs.pop().close()
        self._shared.clear()
        self._first = None
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # PyTorch keeps what is free for itself: others may want it

    def _described(self) -> Program:
        """A program that says what the model takes and gives; the first instance uses it if it is on its device."""
        with self._lock:
            if self._first is None:
                # a package is on the device that it was compiled for
                self._first = self._load(None if self._kind is Kind.PACKAGE else "cpu")
            return self._first

    def _take_first(self, device: str | None) -> Program | None:
        """What `_described` has loaded, if it is still there and the device is its own."""
        first, self._first = self._first, None
        if first is not None and device != first.home:
            self._programs.remove(first)
            first.close()
            return None
        return first

    def _load(self, device: str | None) -> Program:
        where = f"unable to load model '{self.source.name}'"
        try:
            program = self._opened(device)
        except HalimedeError as error:
            raise type(error)(f"{where}: {error.message}") from error
        except Exception as error:  # PyTorch's errors have no common base
            raise pytorch_error(f"{where}: {self._path.name}", error) from error
        self._programs.append(program)
        return program

    def _opened(self, device: str | None) -> Program:
        match self._kind:
            case Kind.SCRIPT:
                return TorchScript(str(self._path), device)
            case Kind.EXPORTED:
                return Exported(str(self._path), device, self._compiling)
            case Kind.PACKAGE:
                return Package(self._path, device)
            case Kind.MODULE:
                return Module(self._path, device, as_backend_sees(self.source.config), self._compiling)


def _ports(program: Program) -> Sequence[Port]:
    """What it says of what it takes and gives; nothing known of a dictionary, or of a list of any length."""
    unknown = [Port(side.word) for side in (program.inputs, program.outputs) if side.keyed or side.counted]
    return [*program.inputs.ports, *program.outputs.ports, *unknown]


def _check_rows(config: ModelConfig, package: Package) -> None:
    """Can the package take batches as large as the configuration allows?

    Raises:
        InvalidArgumentError: it cannot, or does not say so.
    """
    most, limit = config.max_batch_size, package.checks.most_rows
    if most > 1 and package.checks.inputs is None:
        msg = (
            f"unable to load model '{config.name}': max_batch_size is {most}, but the package was written without "
            f"its source and so does not say whether it batches; set max_batch_size to 1 or 0"
        )
        raise InvalidArgumentError(msg)
    if limit is not None and most > limit:
        msg = (
            f"unable to load model '{config.name}': max_batch_size is {most}, but the package was compiled for at most "
            f"{limit} rows"
        )
        raise InvalidArgumentError(msg)
    if most > 0 and package.least_rows > 1:
        logger.info(
            "model '%s': the package was compiled for %d rows or more, so smaller batches are filled up; compile it "
            "with aot_inductor.check_lowerbound off, and they are not",
            config.name,
            package.least_rows,
        )


def _tensor(port: Port) -> TensorPort:
    """A value of which the program says all."""
    assert port.shape is not None
    return TensorPort(port.name, port.datatype, port.shape)


def _example(inputs: Side, outputs: Side) -> str:
    """The tensors as `config.pbtxt` lists them, with a datatype and a shape to start from; "" if they have no names."""
    if not (inputs.ports and outputs.ports):
        return ""
    tensor = '{side} {{ name: "{name}" data_type: {datatype} dims: [ -1 ] }}'
    lines = " ".join(
        tensor.format(side=side.word, name=port.name, datatype=(port.datatype or FP32).config_name)
        for side in (inputs, outputs)
        for port in side.ports
        if port.required
    )
    return f". With your datatypes and dims in place of these, it would be: {lines}"
