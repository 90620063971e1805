"""A model in the manner of the frameworks: a layer that is built once and called for each request."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import triton_python_backend_utils as pb_utils


class AddSub:
    """A sum and a difference as one matrix product."""

    def __init__(self) -> None:
        self.weights = np.array([[1, 1], [1, -1]], np.float32)

    def __call__(self, first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
        """The sum and the difference of two arrays of one shape."""
        return np.tensordot(self.weights, np.stack([first, second]), axes=1)


class TritonPythonModel:
    """Serves the layer."""

    def initialize(self, args: dict[str, str]) -> None:
        """Build the layer."""
        self.layer = AddSub()

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """One response for each request, in their order."""
        responses = []
        for request in requests:
            first = pb_utils.get_input_tensor_by_name(request, "INPUT0")
            second = pb_utils.get_input_tensor_by_name(request, "INPUT1")
            total, difference = self.layer(first.as_numpy(), second.as_numpy())
            outputs = [pb_utils.Tensor("OUTPUT0", total), pb_utils.Tensor("OUTPUT1", difference)]
            responses.append(pb_utils.InferenceResponse(output_tensors=outputs))
        return responses
