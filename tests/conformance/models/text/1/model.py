"""Text, as often as asked, and the parameters."""

import json

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy().reshape(-1)[0].decode()
        count = pb_utils.get_input_tensor_by_name(request, "count")
        count = 1 if count is None else int(count.as_numpy().reshape(-1)[0])
        seen = json.loads(request.parameters())
        said = np.array([[f"{text}{index}" for index in range(count)]], np.object_)
        told = np.array([[json.dumps(seen, sort_keys=True)]], np.object_)
        outputs = [pb_utils.Tensor("text_output", said), pb_utils.Tensor("seen", told)]
        return pb_utils.InferenceResponse(outputs)
