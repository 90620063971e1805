"""Run requests of sequences as the sequence batcher hands them to an instance."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from halimede.backends.batch import Batch
from halimede.backends.execution import execute
from halimede.config.signature import Signature
from halimede.core.requests import InferRequest, InferResponse, NullRequest
from halimede.core.sequences import ENDED
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


def check_accumulator(model: Loaded, names: Mapping[str, str] | None = None) -> None:
    """A model with INPUT (FP32[2]), START (FP32), OUTPUT and the state SUM gives the sum of each sequence.

    Args:
        model: with the configuration `ACCUMULATOR`.
        names: other names of those tensors.
    """
    called = {"INPUT": "INPUT", "START": "START", "OUTPUT": "OUTPUT", **(names or {})}

    def add(key: int, value: float, *, start: bool = False) -> Step:
        inputs: Inputs = {called["INPUT"]: np.array([[value, -value]], np.float32)}
        return Step(key, inputs, {called["START"]: np.array([[start]], np.float32)}, start=start)

    def sums(*steps: Step) -> list[float]:
        found = outputs(model, *steps)
        assert [list(each) for each in found] == [[called["OUTPUT"]]] * len(steps)
        return [each[called["OUTPUT"]][0][0] for each in found]  # type: ignore[index]

    assert [entry.name for entry in model.config.input] == [called["INPUT"]]
    assert [entry.name for entry in model.config.output] == [called["OUTPUT"]]
    assert sums(add(1, 1, start=True), add(2, 2, start=True), add(3, 3, start=True)) == [1, 2, 3]
    assert sums(add(1, 10), add(2, 10), add(3, 10)) == [11, 12, 13]
    assert sums(add(3, 10), add(1, 10)) == [23, 21]
    assert sums(add(2, 10)) == [22]
    assert sums(add(2, 1, start=True), add(0, 5), add(1, 1)) == [1, 5, 22]
    assert sums(add(2, 1), add(3, 1)) == [2, 24]
    assert model.instance.states is not None
    for key in (1, 2, 3):
        model.instance.end_sequence(key, key, ENDED)
    assert model.instance.states.byte_size == 0


ACCUMULATOR = """
    sequence_batching {
        control_input { name: "START" control { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } }
        state { input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_FP32 dims: [ 2 ] }
    }
"""
"""For `check_accumulator`."""


def _array(tensor: Tensor) -> Array:
    return np.asarray(tensor.array)
