"""Backend `dyna_sequence`: `sequence` with accumulators by correlation id. For tests of the sequence batcher."""

from collections.abc import Hashable

import numpy as np

from halimede.backends.base import Instance, InstanceSpec
from halimede.backends.testing.sequence import SequenceInstance, SequenceModel, is_set
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferRequest
from halimede.core.tensors import Array, Tensor

_SMALLEST, _LARGEST = -(1 << 63), (1 << 64) - 1


class DynaSequenceModel(SequenceModel):
    """As the backend `sequence`, with the controls END and CORRID too.

    An accumulator belongs to a CORRID. The response to the END has CORRID added to it; a CORRID that is a text has to
    be that of a whole number.
    """

    controls = ("START", "END", "READY", "CORRID")

    def create_instance(self, spec: InstanceSpec) -> Instance:
        """An instance, with accumulators of its own."""
        return DynaSequenceInstance(self.source.config, self.delay_ms)


class DynaSequenceInstance(SequenceInstance):
    """Keeps the accumulators, by what the control CORRID says."""

    def belongs_to(self, row: int, request: InferRequest) -> Hashable:
        """CORRID, as a number.

        Raises:
            InvalidArgumentError: it is the text of none.
        """
        return _number(request.inputs["CORRID"])

    def answer(self, request: InferRequest, total: Array) -> Array:
        """The accumulator, to which the END adds CORRID."""
        if not is_set(request.inputs["END"]):
            return total
        number = _number(request.inputs["CORRID"])
        added = np.array([number], np.int64 if number < 0 else np.uint64)
        answer: Array = total + added.astype(total.dtype)
        return answer


def _number(corrid: Tensor) -> int:
    """The correlation id of the control input.

    Raises:
        InvalidArgumentError: it is the text of no whole number, or of one of more than 64 bits.
    """
    value = corrid.array.reshape(-1)[0]
    try:
        number = int(value)
    except ValueError:
        number = _SMALLEST - 1
    if not _SMALLEST <= number <= _LARGEST:
        text = value.decode(errors="replace")
        msg = (
            f"the backend dyna_sequence needs correlation IDs that are whole numbers of 64 bits, got '{text}'"
        )
        raise InvalidArgumentError(msg)
    return number
