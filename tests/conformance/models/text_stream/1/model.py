"""Text, a response for each time asked."""

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy().reshape(-1)[0].decode()
            count = pb_utils.get_input_tensor_by_name(request, "count")
            count = 1 if count is None else int(count.as_numpy().reshape(-1)[0])
            sender = request.get_response_sender()
            for index in range(count):
                said = pb_utils.Tensor("text_output", np.array([f"{text}{index}"], np.object_))
                sender.send(pb_utils.InferenceResponse([said]))
            if text == "error":
                sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("at the end")))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
