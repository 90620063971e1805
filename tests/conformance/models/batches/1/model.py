"""How many requests and rows were executed together; HOLD is how long that takes, in milliseconds."""

import time

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        hold = [pb_utils.get_input_tensor_by_name(one, "HOLD").as_numpy() for one in requests]
        time.sleep(max(one.max() for one in hold) / 1000)  # sleeps: the work of a slow model
        rows = sum(len(one) for one in hold)
        responses = []
        for one in hold:
            told = np.repeat(np.array([[len(requests), rows]], np.int32), len(one), 0)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("TOLD", told)]))
        return responses
