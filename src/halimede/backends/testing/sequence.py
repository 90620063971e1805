"""Backend `sequence`: adds up what the requests of each sequence bring. For tests of the sequence batcher."""

from collections.abc import Hashable
from time import sleep

import numpy as np

from halimede.backends.base import BackendModel, BackendOptions, Instance, InstanceSpec, ModelSource
from halimede.backends.batch import Batch
from halimede.backends.decoupled import refuse_decoupled
from halimede.backends.parameters import integer_parameter
from halimede.config.model_config_pb2 import ModelConfig, ModelInput, ModelOutput
from halimede.config.signature import Signature
from halimede.core.datatypes import BF16, BOOL, BY_NUMBER, BYTES
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Array, Tensor


class SequenceModel(BackendModel):
    """INPUT (numbers[n]) and the controls START and READY → OUTPUT (numbers[n]), each of its elements the accumulator.

    START sets the accumulator to the sum of the input; later requests add to it; READY=0 leaves it as it is, and has
    no output. With the strategy direct, an accumulator belongs to a row of the batch, which its sequence keeps; with
    oldest, to a correlation id. Integers wrap around.

    Parameters: `execute_delay_ms`, the time an execution takes.
    """

    controls: tuple[str, ...] = ("START", "READY")

    def __init__(self, source: ModelSource, options: BackendOptions) -> None:
        super().__init__(source, options)
        self.delay_ms = integer_parameter(source.config, "execute_delay_ms") or 0

    def check_config(self) -> None:
        """The model has exactly these controls, INPUT, and OUTPUT, which is like it."""
        config = self.source.config
        refuse_decoupled(config)
        names = [entry.name for entry in config.sequence_batching.control_input]
        if sorted(names) != sorted(self.controls):
            *others, last = [f"'{name}'" for name in self.controls]
            raise self._error(f"{', '.join(others)} and {last} must be configured as the control inputs")
        if config.sequence_batching.state:
            raise self._error(f"the backend {config.backend} keeps its accumulators itself; remove state")
        if len(config.input) != 1 or len(config.input[0].dims) != 1:
            raise self._error("model must have one input 'INPUT' with vector shape, any length")
        if len(config.output) != 1:
            raise self._error("model must have one output 'OUTPUT' with vector shape, any length")
        if list(config.output[0].dims) != list(config.input[0].dims):
            raise self._error("model must have output 'OUTPUT' with shape matching 'INPUT'")
        for side, name, entry in (
            ("input", "INPUT", config.input[0]),
            ("output", "OUTPUT", config.output[0]),
        ):
            self._check_tensor(side, name, entry)
        if config.output[0].data_type != config.input[0].data_type:
            raise self._error("model must have output 'OUTPUT' with data-type matching 'INPUT'")

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance, with accumulators of its own."""
        return SequenceInstance(self.source.config, self.delay_ms)

    def _check_tensor(self, side: str, name: str, entry: ModelInput | ModelOutput) -> None:
        if entry.name != name:
            raise self._error(f"model {side} must be named '{name}'")
        if BY_NUMBER[entry.data_type] in (BF16, BOOL, BYTES):
            raise self._error(f"model {side} must have TYPE_INT32 data-type, or another one of numbers")

    def _error(self, text: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"model '{self.source.config.name}': {text}")


class SequenceInstance(Instance):
    """Keeps the accumulators."""

    def __init__(self, config: ModelConfig, delay_ms: int) -> None:
        signature = Signature.from_config(config)
        self.may_block = delay_ms > 0
        self._delay_s = delay_ms / 1000
        self._lead = (1,) if signature.max_batch_size > 0 else ()
        self._datatype = signature.outputs["OUTPUT"].datatype
        self._in_rows = not config.sequence_batching.HasField("oldest")
        # what it belongs to → the key of its sequence, and the accumulator itself, an array of one element
        self._accumulators: dict[Hashable, tuple[int, Array]] = {}
        self._places: dict[int, Hashable] = {}  # the other way round

    def execute(self, batch: Batch) -> None:
        """Add each request's input to its accumulator, and answer with that."""
        batch.gathered()
        if self._delay_s:
            sleep(self._delay_s)
        with np.errstate(over="ignore"):
            responses = [self._respond(row, request) for row, request in enumerate(batch.requests)]
        batch.computed()
        batch.responses = responses

    def end_sequence(self, key: int, correlation_id: int | str, reason: str) -> None:
        """Forget the accumulator of the sequence."""
        place = self._places.pop(key, None)
        if place in self._accumulators and self._accumulators[place][0] == key:
            del self._accumulators[place]

    def belongs_to(self, row: int, request: InferRequest) -> Hashable:
        """What the request's accumulator belongs to."""
        return row if self._in_rows else request.sequence_id

    def answer(self, request: InferRequest, total: Array) -> Array:
        """What a request is answered with; `total` is its accumulator."""
        return total

    def _respond(self, row: int, request: InferRequest) -> InferResponse:
        inputs = request.inputs
        if not is_set(inputs["READY"]):
            return InferResponse()
        array = inputs["INPUT"].array
        total: Array = array.reshape(-1).sum(keepdims=True, dtype=array.dtype)
        try:
            place = self.belongs_to(row, request)
            if not is_set(inputs["START"]) and place in self._accumulators:
                total = total + self._accumulators[place][1]
            self._accumulators[place] = (request.sequence_key, total)
            self._places[request.sequence_key] = place
            answer = self.answer(request, total)
        except InvalidArgumentError as error:
            return InferResponse(error=error)
        if request.outputs and "OUTPUT" not in request.outputs:
            return InferResponse()
        filled = np.full((*self._lead, array.size), answer[0], array.dtype)
        return InferResponse({"OUTPUT": Tensor.from_array(self._datatype, filled)})


def is_set(control: Tensor) -> bool:
    """Whether the control input of one request says yes."""
    return bool(control.array.reshape(-1)[0])
