"""A step of an ensemble that runs: the request that its model was sent, and where the responses go."""

from collections.abc import Callable, Mapping

from halimede.core.clock import MICROSECOND
from halimede.core.errors import HalimedeError
from halimede.core.requests import InferRequest, InferResponse, NestedRequest, ParameterValue
from halimede.core.tensors import Tensor
from halimede.engine.ensembles.iterations import Iteration, Sequence
from halimede.engine.ensembles.routes import Stage, Step
from halimede.engine.served_model import Find

Answered = Callable[["RunningStep", InferResponse | None, bool], None]
"""``answered(step, response, final)``, as `Respond` has it."""


class RunningStep:
    """A step that runs in one iteration.

    Attributes:
        step: the step.
        iteration: where it runs.
        request: what its model was sent; None once it has its final response.
        sequence: the sequence that its request belongs to, if a step before has changed it.
        answered: it had a response.
        held: requests that wait for room and stem from its responses.
    """

    __slots__ = ("_answered", "answered", "held", "iteration", "request", "sequence", "step")

    def __init__(self, step: Step, iteration: Iteration, answered: Answered) -> None:
        self._answered = answered
        self.step = step
        self.iteration = iteration
        self.request: InferRequest | None = None
        self.sequence: Sequence | None = None
        self.answered = False
        self.held = 0

    def respond(self, response: InferResponse | None, final: bool) -> None:
        """Take a response of the model."""
        self._answered(self, response, final)

    def make_request(self, outer: InferRequest, now: Callable[[], int]) -> InferRequest:
        """The request for the step's model, with the step's tensors and all else as the ensemble's request has it.

        Args:
            outer: the ensemble's request.
            now: the time, in nanoseconds.
        """
        iteration = self.iteration
        inputs: dict[str, Tensor] = {}
        sequence: Sequence | None = None
        for source in self.step.sources:
            tensor = iteration.take(source)
            if tensor is not None:
                inputs[source.name] = tensor
            sequences = (iteration.outer(source.up) if source.up else iteration).sequences
            if sequences is not None:
                sequence = sequences.get(source.slot.index, sequence)
        timeout_us = outer.timeout_us
        if timeout_us:  # that of a queue: what was spent in those before is gone
            timeout_us = max(1, timeout_us - (now() - outer.received_ns) // MICROSECOND)
        planned = self.step.planned
        request = NestedRequest(
            planned.model_name,
            inputs,
            self.respond,
            model_version=planned.model_version,
            id=outer.id,
            outputs=self.step.wanted,
            parameters=outer.parameters,
            priority=outer.priority,
            timeout_us=timeout_us,
            sequence_id=outer.sequence_id,
            sequence_start=outer.sequence_start,
            sequence_end=outer.sequence_end,
        )
        if outer.targets is not None:
            request.targets = {}  # its inputs may be in regions
        if sequence is not None:
            request.sequence_id, request.sequence_start, request.sequence_end = sequence
        self.sequence = sequence
        self.request = request
        return request


def staying_outputs(step: Step, find: Find) -> tuple[str, ...]:
    """Outputs that only such steps read as take them in the memory of a device."""
    return tuple(
        name
        for name, slot in step.targets
        if all(_takes_device_tensors(stage, find) for stage in (*slot.readers, *slot.inner))
    )


def _takes_device_tensors(stage: Stage, find: Find) -> bool:
    if not isinstance(stage, Step):
        return False  # the ensemble's response
    try:
        return find(stage.planned.model_name, stage.planned.model_version).takes_device_tensors
    except HalimedeError:
        return False  # it is gone, as the step will say


def changed_sequence(
    parameters: Mapping[str, ParameterValue], sequence: Sequence | None, outer: InferRequest
) -> Sequence | None:
    """The sequence that the steps after a response belong to; None for that of the ensemble's request.

    Args:
        parameters: those of the response; a model sets `sequence_id`, `sequence_start` and `sequence_end` to change it.
        sequence: what held for the step that responded.
        outer: the ensemble's request.
    """
    if not any(name in parameters for name in ("sequence_id", "sequence_start", "sequence_end")):
        return sequence
    number = parameters.get("sequence_id")
    if not isinstance(number, int | str):
        number = outer.sequence_id if sequence is None else sequence.id
    return Sequence(
        number, bool(parameters.get("sequence_start", False)), bool(parameters.get("sequence_end", False))
    )
