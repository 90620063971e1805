# mypy: disable-error-code="union-attr, arg-type"
"""As many responses as INPUT0 says, OUTPUT0 counting from 0: a decoupled model."""

from typing import Any

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The model."""

    def execute(self, requests: list[Any]) -> None:
        """Send the responses to each request."""
        for request in requests:
            count = int(pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy()[0])
            sender = request.get_response_sender()
            for number in range(count):
                output = pb_utils.Tensor("OUTPUT0", np.array([number], np.int32))
                sender.send(pb_utils.InferenceResponse([output]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
