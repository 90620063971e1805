"""A response for each element; errors and other ends where MODE says so."""

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            mode = pb_utils.get_input_tensor_by_name(request, "MODE")
            mode = "" if mode is None else mode.as_numpy()[0].decode()
            sender = request.get_response_sender()
            if mode == "raise":
                raise ValueError("raised before the first response")
            for index, value in enumerate(values):
                response = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([value], np.int32))])
                if mode == "error" and index == 1:
                    response = pb_utils.InferenceResponse(error=pb_utils.TritonError("second response"))
                last = mode == "final with the last" and index == len(values) - 1
                sender.send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0)
            if mode == "raise at the end":
                raise ValueError("raised after the last response")
            if mode != "final with the last" or not len(values):
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            if mode == "after final":
                sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
