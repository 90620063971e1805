"""One execution of a batch by an instance: whatever happens, each request gets its response."""

import logging
from time import monotonic_ns

from halimede.backends.base import Instance
from halimede.backends.batch import Batch, fail
from halimede.config.model_config_pb2 import ModelConfig, ModelOptimizationPolicy
from halimede.core.errors import HalimedeError, InternalError
from halimede.core.requests import InferResponse

MIN_PRIORITY = 19
"""Niceness of what runs a model whose `optimization` has the priority PRIORITY_MIN."""

logger = logging.getLogger("halimede")


def niceness_of(config: ModelConfig) -> int:
    """The niceness, as of `nice(1)`, of what runs the model."""
    low = config.optimization.priority == ModelOptimizationPolicy.PRIORITY_MIN
    return MIN_PRIORITY if low else 0


def execute(instance: Instance, batch: Batch) -> None:
    """Run the batch and see to it that every request has a response; whatever goes wrong becomes an error.

    Where that is safe, a batch that fails is run again request by request: one bad request shall not fail its
    neighbours.
    """
    batch.started_ns = monotonic_ns()
    error = _attempt(instance, batch)
    if error is not None:
        if instance.repeatable and len(batch.requests) > 1:
            _execute_singly(instance, batch)
        else:
            fail(batch, error)
    batch.ended_ns = monotonic_ns()


def _attempt(instance: Instance, batch: Batch) -> HalimedeError | None:
    """Run the batch: what went wrong, or None."""
    try:
        instance.execute(batch)
    except HalimedeError as error:
        return _without_frames(error)
    except Exception as error:
        logger.exception("an execution failed")
        return InternalError(f"{type(error).__name__}: {error}")
    if not batch.signature.decoupled and len(batch.responses) != len(batch.requests):
        count = len(batch.responses)
        return InternalError(f"the backend gave {count} responses to {len(batch.requests)} requests")
    return None


def _without_frames(error: HalimedeError) -> HalimedeError:
    """The error, referring no more to the batch that refers to it, and so to tensors that may be on a GPU."""
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = None
        each = each.__cause__ or each.__context__
    return error


def _execute_singly(instance: Instance, batch: Batch) -> None:
    """Run each request of the batch by itself."""
    responses: list[InferResponse] = []
    for request in batch.requests:
        single = Batch(batch.signature, [request], request.batch_size)
        error = _attempt(instance, single)
        responses += [InferResponse(error=error)] if error is not None else single.responses
    batch.responses = responses
