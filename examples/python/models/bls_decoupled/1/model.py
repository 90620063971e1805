"""A model that asks a decoupled model and works with each of its responses as it comes."""

from __future__ import annotations

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Adds up what `square_int32` answers."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """One response for each request, in their order."""
        return [self.answer(request) for request in requests]

    def answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        """The sum of the responses, or the first error among them."""
        infer_request = pb_utils.InferenceRequest(
            model_name="square_int32",
            requested_output_names=["OUT"],
            inputs=[pb_utils.get_input_tensor_by_name(request, "IN")],
        )
        total = np.zeros(1, np.int32)
        for infer_response in infer_request.exec(decoupled=True):
            if infer_response.has_error():
                return pb_utils.InferenceResponse(error=infer_response.error())
            if infer_response.output_tensors():  # the last response may be empty
                total += pb_utils.get_output_tensor_by_name(infer_response, "OUT").as_numpy()
        return pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("OUT", total)])
