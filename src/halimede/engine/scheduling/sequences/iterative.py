"""Iterative sequences: each request is a sequence by itself, which its model may ask to get again and again.

So a model that makes its answer step by step joins the steps of all its callers in one batch, a new caller from the
next step on.
"""

from halimede.config.model_config_pb2 import ModelSequenceBatching
from halimede.config.signature import Signature
from halimede.core.clock import Clock
from halimede.core.errors import UnavailableError
from halimede.core.requests import InferRequest
from halimede.core.sequences import ENDED
from halimede.engine.scheduling.batching import Outcome
from halimede.engine.scheduling.sequences.batcher import STOPPING, SequenceBatcher
from halimede.engine.scheduling.sequences.slots import Sequence, Slot


class IterativeBatcher(SequenceBatcher):
    """The scheduler of a model with `iterative_sequence`. Its clients know nothing of sequences."""

    def enqueue(self, request: InferRequest) -> None:
        """Let the request run when its turn comes, until its model is done with it.

        Raises:
            InvalidArgumentError: it has more than one row.
            UnavailableError: the server stops.
        """
        self.check_batch_size(request)
        if self.stopping:
            raise UnavailableError(STOPPING)
        self.begun += 1
        request.sequence_id = self.begun
        request.sequence_start, request.sequence_end = True, False
        self.open += 1
        self.accept(Sequence(self.begun, self), request)

    def lost_error(self, correlation_id: int | str) -> UnavailableError:
        """What becomes of a request whose instance has ended between two steps."""
        msg = f"the request to model '{self._name}' is lost: the instance that kept its state has ended. Send it again"
        return UnavailableError(msg)

    def release(self, slot: Slot) -> None:
        """The request is answered: so its sequence is over."""
        if slot.of is not None:
            slot.of.over = slot.of.over or ENDED
        super().release(slot)


def sequence_batcher(
    name: str, signature: Signature, config: ModelSequenceBatching, clock: Clock, outcome: Outcome
) -> SequenceBatcher:
    """The scheduler for a configuration."""
    kind = IterativeBatcher if config.iterative_sequence else SequenceBatcher
    return kind(name, signature, config, clock, outcome)
