"""One execution of a batch by an instance: whatever happens, each request gets its response."""

import logging
from time import monotonic_ns

from halimede.backends.base import Instance
from halimede.backends.batch import Batch, fail
from halimede.backends.states import SequenceStates
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
    neighbours. Requests of sequences whose states have different shapes run one group after the other.
    """
    batch.started_ns = monotonic_ns()
    groups: list[list[int]] = []
    refused: dict[int, HalimedeError] = {}
    if instance.states is not None:
        groups, refused = instance.states.split(batch.requests)
    if refused or len(groups) > 1:
        _execute_groups(instance, batch, groups, refused)
    else:
        _execute_whole(instance, batch)
    batch.ended_ns = monotonic_ns()


def _execute_groups(
    instance: Instance, batch: Batch, groups: list[list[int]], refused: dict[int, HalimedeError]
) -> None:
    """Run the requests with the numbers of each group together; those that are refused get their errors."""
    responses = {number: InferResponse(error=error) for number, error in refused.items()}
    batch.inputs_ns = batch.outputs_ns = batch.started_ns
    for numbers in groups:
        requests = [batch.requests[number] for number in numbers]
        part = Batch(batch.signature, requests, sum([request.batch_size for request in requests]))
        _execute_whole(instance, part)
        responses.update(zip(numbers, part.responses, strict=True))
        batch.outputs_ns = part.outputs_ns or monotonic_ns()
    batch.responses = [responses[number] for number in range(len(batch.requests))]


def _execute_whole(instance: Instance, batch: Batch) -> None:
    error = _attempt(instance, batch)
    if error is not None:
        if instance.repeatable and len(batch.requests) > 1:
            _execute_singly(instance, batch)
        else:
            fail(batch, error)


def _attempt(instance: Instance, batch: Batch) -> HalimedeError | None:
    """Run the batch, and keep the states that it computed: what went wrong, or None."""
    batch.states = instance.states
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
    if batch.states is not None:
        _keep_states(batch, batch.states)
    return None


def _keep_states(batch: Batch, states: SequenceStates) -> None:
    """Keep what the batch computed; a request whose state cannot be kept has failed."""
    refused = states.keep(batch.requests, batch.taken)
    if refused:
        batch.responses = [
            InferResponse(error=refused[number]) if number in refused else response
            for number, response in enumerate(batch.responses)
        ]


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
