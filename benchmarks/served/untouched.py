"""OUTPUT0 is INT32 [1], whatever INPUT0 holds: the input is not looked at."""

from typing import Any

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The model."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """A response to each request."""
        output = np.zeros(1, np.int32)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", output)]) for _ in requests]
