# mypy: disable-error-code="union-attr, arg-type"
"""OUTPUT0 is INPUT0, taken through numpy, whatever its datatype and shape."""

from typing import Any

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The model."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """A response to each request."""
        responses = []
        for request in requests:
            data = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", data)]))
        return responses
