"""A model with a memory: it answers each request with the sum of its sequence so far."""

from __future__ import annotations

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Keeps a total for each sequence that runs on this instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Begin without sequences."""
        self.totals: dict[int | str, int] = {}

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """Answer the requests of a batch, each of which belongs to another sequence."""
        return [self.respond(request) for request in requests]

    def respond(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        """The total of the request's sequence."""
        value, start, ready = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy().item()
            for name in ("VALUE", "START", "READY")
        )
        total = 0
        if ready:  # otherwise it fills an empty slot of a direct batch
            sequence = request.correlation_id()
            total = value if start else self.totals[sequence] + value
            self.totals[sequence] = total
        return pb_utils.InferenceResponse([pb_utils.Tensor("TOTAL", np.array([[total]], np.int32))])

    def on_sequence_end(self, correlation_id: int | str, reason: str) -> None:
        """Forget a sequence that is over, for whatever reason."""
        self.totals.pop(correlation_id, None)
