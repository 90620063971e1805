"""Batches that have run, for tests of what is counted."""

from halimede.backends.batch import Batch
from halimede.config.signature import Signature
from halimede.core.requests import InferRequest, InferResponse

_SIGNATURE = Signature(8, {}, {}, decoupled=False)


def ran(size: int, input_ns: int, infer_ns: int, output_ns: int, requests: int = 1) -> Batch:
    """A batch of `size` rows whose phases took that long."""
    batch = Batch(_SIGNATURE, [InferRequest("m", {}, _ignore) for _ in range(requests)], size)
    batch.started_ns = 1_000_000
    batch.inputs_ns = batch.started_ns + input_ns
    batch.outputs_ns = batch.inputs_ns + infer_ns
    batch.ended_ns = batch.outputs_ns + output_ns
    return batch


def _ignore(response: InferResponse | None, final: bool) -> None:
    """Nobody waits."""
