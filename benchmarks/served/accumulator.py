# mypy: disable-error-code="union-attr, arg-type"
"""OUTPUT0 is the sum of INPUT0 over the requests of the sequence so far."""

from typing import Any

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The model."""

    def initialize(self, args: dict[str, str]) -> None:
        """No sequence has begun."""
        self.totals: dict[int, Any] = {}

    def execute(self, requests: list[Any]) -> list[Any]:
        """A response to each request, null requests included."""
        return [self.answer(request) for request in requests]

    def answer(self, request: Any) -> Any:
        """The response to one request."""
        data = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        start, ready, end, correlation_id = (
            pb_utils.get_input_tensor_by_name(request, name).as_numpy().item()
            for name in ("START", "READY", "END", "CORRID")
        )
        if not ready:
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.zeros_like(data))])
        total = data if start else self.totals[correlation_id] + data
        self.totals[correlation_id] = total
        if end:
            del self.totals[correlation_id]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", total)])
