"""A model that asks another model of the server, and waits for it."""

from __future__ import annotations

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Hands its inputs to the model that the request names, and that model's outputs back."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """One response for each request, in their order."""
        return [self.answer(request) for request in requests]

    def answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        """What the named model answers, be it an error."""
        model_name = pb_utils.get_input_tensor_by_name(request, "MODEL_NAME").as_numpy()[0]
        infer_request = pb_utils.InferenceRequest(
            model_name=model_name,
            requested_output_names=["OUTPUT0", "OUTPUT1"],
            inputs=[pb_utils.get_input_tensor_by_name(request, name) for name in ("INPUT0", "INPUT1")],
        )
        infer_response = infer_request.exec()
        if infer_response.has_error():
            return pb_utils.InferenceResponse(error=infer_response.error())
        outputs = [
            pb_utils.get_output_tensor_by_name(infer_response, name) for name in ("OUTPUT0", "OUTPUT1")
        ]
        return pb_utils.InferenceResponse(output_tensors=outputs)
