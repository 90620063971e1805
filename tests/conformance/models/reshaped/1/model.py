"""The input's shape as the model sees it, and the input as it is."""

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            array = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            one = pb_utils.get_input_tensor_by_name(request, "ONE").as_numpy()
            shape = np.array(
                [",".join(map(str, array.shape)) + ";" + ",".join(map(str, one.shape))], np.object_
            )
            shapes = np.repeat(shape.reshape(1, 1), array.shape[0], 0)
            outputs = [pb_utils.Tensor("OUT", array), pb_utils.Tensor("ONE_OUT", one)]
            responses.append(pb_utils.InferenceResponse([*outputs, pb_utils.Tensor("SHAPES", shapes)]))
        return responses
