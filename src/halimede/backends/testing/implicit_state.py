"""Backend `implicit_state`: what may be done with a state of a sequence, and what may not. For tests."""

from math import prod

import numpy as np

from halimede.backends.base import BackendModel, Instance, InstanceSpec
from halimede.backends.batch import Batch
from halimede.backends.decoupled import check_tensors, refuse_decoupled
from halimede.config.model_config_pb2 import ModelSequenceBatching
from halimede.core.datatypes import BY_NUMBER, INT8, INT32, Datatype
from halimede.core.errors import InvalidArgumentError, UnsupportedError
from halimede.core.requests import InferResponse
from halimede.core.tensors import Array, Tensor

CONTROLS = ("START", "END", "READY")
STATE = ("INPUT_STATE", "OUTPUT_STATE")

UNDEFINED, NOT_UPDATED, SAME_BUFFER, GROWABLE = range(4)
"""What TEST_CASE may be."""


class ImplicitStateModel(BackendModel):
    """INPUT and TEST_CASE (INT32[1]), and the controls START, END and READY → OUTPUT (INT32[1]).

    The model may have the state INPUT_STATE → OUTPUT_STATE: INT32[1], or INT8 of any fixed dims for states that grow.
    The state may be an output, too. TEST_CASE says what a request does:

    * 0: it makes a state that the model does not have, which is an error.
    * 1: it answers with the sum of input and the first number of the state, and leaves the state as it is.
    * 2: it asks for the state, and has no output.
    * 3: it asks for a state that grows on a GPU, which is an error, as the backend runs on CPUs.
    """

    def check_config(self) -> None:
        """The model has those tensors and controls, and that state or none."""
        config = self.source.config
        refuse_decoupled(config)
        batching = config.sequence_batching
        if sorted(entry.name for entry in batching.control_input) != sorted(CONTROLS):
            raise self._error("'START', 'END' and 'READY' must be configured as the control inputs")
        outputs = {"OUTPUT": INT32}
        for state in batching.state:
            outputs |= self._check_state(state)
        check_tensors(config, inputs={"INPUT": INT32, "TEST_CASE": INT32}, outputs=outputs)

    def _check_state(self, state: ModelSequenceBatching.State) -> dict[str, Datatype]:
        """The output that shows the state, if the model has one.

        Raises:
            InvalidArgumentError: the backend has no such state.
        """
        datatype = BY_NUMBER.get(state.data_type)
        number = datatype is INT32 and [*state.dims] == [1]
        grows = datatype is INT8 and min(state.dims) > 0 and prod(state.dims) >= INT32.itemsize
        if (state.input_name, state.output_name) != STATE or datatype is None or not (number or grows):
            msg = (
                "the state must be INPUT_STATE, OUTPUT_STATE with TYPE_INT32 and dims [1], or with TYPE_INT8"
            )
            raise self._error(msg)
        shown = any(output.name == state.output_name for output in self.source.config.output)
        return {state.output_name: datatype} if shown else {}

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance, with states of its own."""
        instance = ImplicitStateInstance(self.source.config.name)
        instance.states = self.sequence_states()
        return instance

    def _error(self, text: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"model '{self.source.config.name}': {text}")


class ImplicitStateInstance(Instance):
    """Does what requests ask for with the states of their sequences."""

    may_block = False

    def __init__(self, name: str) -> None:
        self._name = name

    def execute(self, batch: Batch) -> None:
        """Do what the batch's only request says, as the model does not batch."""
        inputs = batch.gather()
        outputs = self._outputs(inputs)
        batch.computed()
        wanted = batch.requests[0].outputs
        batch.responses = [
            InferResponse({name: each for name, each in outputs.items() if not wanted or name in wanted})
        ]

    def _outputs(self, inputs: dict[str, Array]) -> dict[str, Tensor]:
        """What the request is answered with.

        Raises:
            InvalidArgumentError: the model has no such state, or there is no such test case.
            UnsupportedError: it asks for the memory of a GPU.
        """
        case = int(inputs["TEST_CASE"].reshape(-1)[0])
        if "INPUT_STATE" not in inputs:
            state = "undefined_state" if case == UNDEFINED else "OUTPUT_STATE"
            msg = f"unable to add state '{state}'. State configuration is missing for model '{self._name}'."
            raise InvalidArgumentError(msg)
        if case == UNDEFINED:
            raise InvalidArgumentError("state 'undefined_state' is not a valid state name.")
        if case == NOT_UPDATED:
            total: Array = inputs["INPUT"] + inputs["INPUT_STATE"].reshape(-1).view(np.int32)[:1]
            return {"OUTPUT": Tensor.from_array(INT32, total)}
        if case == SAME_BUFFER:
            return {}
        if case == GROWABLE:
            raise UnsupportedError("growable memory should always provide memory in GPU")
        raise InvalidArgumentError(f"there is no TEST_CASE {case}; there are 0 to 3")
