"""PyTorch models: TorchScript (`model.pt`) and programs of `torch.export` (`model.pt2`).

Which of them a file is, its content says. Instances have modules of their own unless ENABLE_WEIGHT_SHARING lets them
share one a device; calls of one module may overlap.
"""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.decoupled import refuse_decoupled
from halimede.backends.onnx_config import complete_batching
from halimede.backends.pytorch_errors import pytorch_error
from halimede.backends.pytorch_exported import Exported
from halimede.backends.pytorch_files import program_class
from halimede.backends.pytorch_instance import PyTorchInstance
from halimede.backends.pytorch_ports import Port, Side, check_tensor, listed_names
from halimede.backends.pytorch_program import Program
from halimede.backends.pytorch_settings import Settings, process
from halimede.config.model_config_pb2 import ModelInput, ModelOutput
from halimede.core.errors import InternalError, InvalidArgumentError, NotFoundError, UnsupportedError


class PyTorchModel(BackendModel):
    """A PyTorch model: one file."""

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        super().__init__(source, options)
        if source.config.runtime:
            msg = (
                f"unable to load model '{source.name}': runtime '{source.config.runtime}' asks for a module of "
                f"Python code, which the pytorch backend does not run; save it with torch.export.save or "
                f"torch.jit.save, or use the backend 'python'"
            )
            raise UnsupportedError(msg)
        self._path = _model_path(source)
        self._settings = Settings.from_config(source.config)
        process.set_up(source.config, options)
        self._shared: dict[str | None, Program] = {}
        self._first: Program | None = None
        self._programs: list[Program] = []
        self._lock = Lock()

    def complete_config(self) -> None:
        """Fill in inputs, outputs and batching as an exported program has them; TorchScript says none of them."""
        config = self.source.config
        if config.input and config.output:
            return
        program = self._described()
        if not isinstance(program, Exported):
            return
        ports = [*program.inputs.ports, *program.outputs.ports]
        if all(port.shape is not None and port.shape[:1] == (-1,) for port in ports):
            complete_batching(config, dict(self.options.settings))
        elif config.max_batch_size != 0:
            msg = (
                f"autofill failed for model '{config.name}': model does not support batching while non-zero "
                f"max_batch_size is specified"
            )
            raise InternalError(msg)
        batched = config.max_batch_size > 0
        if not config.input:
            for port in program.inputs.ports:
                _describe(config.input.add(), port, batched=batched)
        if not config.output:
            for port in program.outputs.ports:
                _describe(config.output.add(), port, batched=batched)

    def check_config(self) -> None:
        """Hold the complete configuration against the program."""
        config = self.source.config
        refuse_decoupled(config)
        program = self._described()
        inputs, outputs = program.inputs, program.outputs
        if not (config.input or config.batch_input) or not config.output:
            msg = (
                f"unable to load model '{config.name}': TorchScript says neither datatypes nor shapes, so "
                f"config.pbtxt must list input and output. forward takes {inputs.text} and gives {outputs.text}"
            )
            raise InvalidArgumentError(msg)
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
        return PyTorchInstance(program, self.source.config, self._settings, device)

    def close(self) -> None:
        """Give back the weights."""
        for program in self._programs:
            program.close()
        self._programs.clear()
        self._shared.clear()
        self._first = None

    def _described(self) -> Program:
        """A program that says what the model takes and gives; the first instance uses it if it is on the CPU."""
        with self._lock:
            if self._first is None:
                self._first = self._load("cpu")
            return self._first

    def _take_first(self, device: str | None) -> Program | None:
        """What `_described` has loaded, if it is still there and the device is its own."""
        first, self._first = self._first, None
        if first is not None and device != "cpu":
            self._programs.remove(first)
            first.close()
            return None
        return first

    def _load(self, device: str | None) -> Program:
        kind = program_class(self.source.name, self._path)
        try:
            program = kind(str(self._path), device)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(
                f"unable to load model '{self.source.name}': {error.message}"
            ) from error
        except Exception as error:  # PyTorch's errors have no common base
            raise pytorch_error(
                f"unable to load model '{self.source.name}': {self._path.name}", error
            ) from error
        self._programs.append(program)
        return program


def _describe(entry: ModelInput | ModelOutput, port: Port, *, batched: bool) -> None:
    assert port.datatype is not None
    assert port.shape is not None
    entry.name = port.name
    entry.data_type = port.datatype.number  # type: ignore[assignment]  # the stub wants the enumeration's class
    dims = port.shape[1:] if batched else port.shape
    entry.dims.extend(dims or (1,))
    if not dims and batched:
        entry.reshape.SetInParent()


def _model_path(source: ModelSource) -> Path:
    """The model's file."""
    config = source.config
    default = "model.pt2" if config.platform == "torch_aoti" else "model.pt"
    path = source.version_directory / (config.default_model_filename or default)
    if not path.is_file():
        msg = (
            f"unable to load model '{source.name}': there is no file {path}; expected TorchScript (model.pt) or "
            f"a program of torch.export (model.pt2) there. The setting default_model_filename names another"
        )
        raise NotFoundError(msg)
    return path
