"""Strings in capitals."""

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            strings = pb_utils.get_input_tensor_by_name(request, "S").as_numpy()
            capitals = np.array([one.upper() for one in strings.reshape(-1)], np.object_).reshape(
                strings.shape
            )
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", capitals)]))
        return responses
