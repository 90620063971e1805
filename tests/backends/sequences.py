"""Run requests of sequences as the sequence batcher hands them to an instance."""

from dataclasses import dataclass, field

import numpy as np

from halimede.backends.batch import Batch
from halimede.backends.execution import execute
from halimede.config.signature import Signature
from halimede.core.requests import InferRequest, InferResponse, NullRequest
from halimede.core.tensors import Array, Tensor
from tests.backends.helpers import Inputs, Loaded, request


@dataclass
class Step:
    """A request of a sequence.

    Attributes:
        key: of the sequence; 0 for a null request.
        inputs: what the client sends.
        controls: what the batcher adds.
        start: it begins the sequence.
        outputs: those that it wants, none for all.
    """

    key: int
    inputs: Inputs
    controls: Inputs = field(default_factory=dict)
    start: bool = False
    outputs: tuple[str, ...] = ()

    def request(self) -> InferRequest:
        """The request, with its control inputs."""
        made = request({**self.inputs, **self.controls}, self.outputs)
        if not self.key:
            made = NullRequest("m", made.inputs, made.respond, outputs=self.outputs)
        made.sequence_key = made.sequence_id = self.key
        made.sequence_start = self.start
        return made


def batch_of(signature: Signature, *steps: Step) -> Batch:
    """The requests as one batch."""
    requests = [step.request() for step in steps]
    return Batch(signature, requests, len(requests))


def run(model: Loaded, *steps: Step) -> list[InferResponse]:
    """Their responses, from one batch."""
    batch = batch_of(model.signature, *steps)
    execute(model.instance, batch)
    return list(batch.responses)


def outputs(model: Loaded, *steps: Step) -> list[dict[str, list[object]]]:
    """Their outputs as lists, none of which may be an error."""
    return [values(response) for response in run(model, *steps)]


def values(response: InferResponse) -> dict[str, list[object]]:
    """Its outputs as lists."""
    assert response.error is None, response.error
    return {name: _array(tensor).tolist() for name, tensor in response.outputs.items()}


def _array(tensor: Tensor) -> Array:
    return np.asarray(tensor.array)
