# mypy: disable-error-code="union-attr, arg-type"
"""OUTPUT0 is INPUT0 after three passes through the model `identity`, one after the other."""

from typing import Any

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The model."""

    def execute(self, requests: list[Any]) -> list[Any]:
        """A response to each request."""
        responses = []
        for request in requests:
            data = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            for _ in range(3):
                data = through_identity(data)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", data)]))
        return responses


def through_identity(data: Any) -> Any:
    """What the other model makes of it."""
    response = pb_utils.InferenceRequest(
        model_name="identity",
        requested_output_names=["OUTPUT0"],
        inputs=[pb_utils.Tensor("INPUT0", data)],
    ).exec()
    if response.has_error():
        raise pb_utils.TritonModelException(response.error().message())
    return pb_utils.get_output_tensor_by_name(response, "OUTPUT0").as_numpy()
