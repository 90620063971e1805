"""What of its inputs was there."""

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            names = ",".join(sorted(one.name() for one in request.inputs()))
            responses.append(
                pb_utils.InferenceResponse([pb_utils.Tensor("GIVEN", np.array([[names]], np.object_))])
            )
        return responses
