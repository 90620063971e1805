"""Control inputs: tensors by which a model learns where in its sequence a request stands."""

from collections.abc import Callable

import numpy as np

from halimede.config.model_config_pb2 import ModelSequenceBatching
from halimede.config.signature import Signature, control_datatype
from halimede.core.datatypes import BYTES, Datatype
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferRequest
from halimede.core.tensors import Tensor

_Control = ModelSequenceBatching.Control

_START, _READY, _END = (
    _Control.CONTROL_SEQUENCE_START,
    _Control.CONTROL_SEQUENCE_READY,
    _Control.CONTROL_SEQUENCE_END,
)


class Controls:
    """Makes the control inputs of one model's requests. Their shape is ``[1]``, with batching ``[1, 1]``."""

    def __init__(self, signature: Signature, config: ModelSequenceBatching) -> None:
        self._shape = (1, 1) if signature.max_batch_size > 0 else (1,)
        self._id_input = ""
        self._id_datatype: Datatype | None = None
        self._flags: dict[_Control.Kind, tuple[str, Tensor, Tensor]] = {}
        for entry in config.control_input:
            for control in entry.control:
                datatype = control_datatype(control)
                if control.kind == _Control.CONTROL_SEQUENCE_CORRID:
                    self._id_input, self._id_datatype = entry.name, datatype
                    continue
                false, true = (
                    control.int32_false_true or control.fp32_false_true or control.bool_false_true or (0, 1)
                )
                self._flags[control.kind] = (
                    entry.name,
                    self._tensor(datatype, false),
                    self._tensor(datatype, true),
                )
        self._combinations = {
            (start, end): self._combination(start, end) for start in (False, True) for end in (False, True)
        }
        self._encode = self._encoder()

    def check(self, correlation_id: int | str) -> None:
        """Return if the model can be told the id.

        Raises:
            InvalidArgumentError: it is a text, and the model takes a number.
        """
        if isinstance(correlation_id, str) and self._id_datatype not in (None, BYTES):
            msg = (
                f"correlation ID '{correlation_id}' is a string, but control input '{self._id_input}' takes "
                f"{self._id_datatype}; use a number, or set its data_type to TYPE_STRING"
            )
            raise InvalidArgumentError(msg)

    def add(self, request: InferRequest) -> None:
        """Give the request its control inputs; its inputs become a dictionary of its own."""
        inputs = request.inputs | self._combinations[request.sequence_start, request.sequence_end]
        if self._encode is not None:
            inputs[self._id_input] = self._encode(request.sequence_id)
        request.inputs = inputs

    def of_null_request(self) -> dict[str, Tensor]:
        """The control inputs of a slot without a request."""
        inputs = {name: false for name, false, _ in self._flags.values()}
        if self._encode is not None:
            inputs[self._id_input] = self._encode("" if self._id_datatype is BYTES else 0)
        return inputs

    def _combination(self, start: bool, end: bool) -> dict[str, Tensor]:
        values = {_START: start, _READY: True, _END: end}
        return {name: (true if values[kind] else false) for kind, (name, false, true) in self._flags.items()}

    def _encoder(self) -> Callable[[int | str], Tensor] | None:
        """What makes a tensor of an id, if the model takes one. 32 bits get the lower ones of a larger number."""
        datatype, shape = self._id_datatype, self._shape
        if datatype is None:
            return None
        if datatype is BYTES:

            def text(correlation_id: int | str) -> Tensor:
                data = str(correlation_id).encode()
                return Tensor(datatype, shape, len(data).to_bytes(4, "little") + data)

            return text
        size = datatype.itemsize
        mask = (1 << 8 * size) - 1

        def number(correlation_id: int | str) -> Tensor:
            assert isinstance(correlation_id, int), "texts were refused"
            return Tensor(datatype, shape, (correlation_id & mask).to_bytes(size, "little"))

        return number

    def _tensor(self, datatype: Datatype, value: float) -> Tensor:
        return Tensor(datatype, self._shape, np.array(value, datatype.numpy).tobytes())
