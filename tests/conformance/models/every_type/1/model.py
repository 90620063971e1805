"""Each input that is given comes back as an output."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            outputs = [pb_utils.Tensor(f"OUT_{one.name()}", one.as_numpy()) for one in request.inputs()]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
