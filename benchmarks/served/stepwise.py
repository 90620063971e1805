# mypy: disable-error-code="union-attr, arg-type"
"""A step each time that a request comes: as many responses as INPUT0 says, OUTPUT0 counting from 1. Iterative."""

from typing import Any

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The model."""

    def initialize(self, args: dict[str, str]) -> None:
        """No request has come."""
        self.steps: dict[int, int] = {}

    def execute(self, requests: list[Any]) -> None:
        """One step of each request."""
        for request in requests:
            wanted = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy().item()
            start = pb_utils.get_input_tensor_by_name(request, "START").as_numpy().item()
            caller = pb_utils.get_input_tensor_by_name(request, "CORRID").as_numpy().item()
            step = 1 if start else self.steps[caller] + 1
            output = pb_utils.Tensor("OUTPUT0", np.array([[step]], np.int32))
            response = pb_utils.InferenceResponse([output])
            sender = request.get_response_sender()
            if step < wanted:
                self.steps[caller] = step
                sender.send(response)
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            else:
                self.steps.pop(caller, None)
                sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
