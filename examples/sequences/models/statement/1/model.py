"""A model that calls another one with a sequence."""

from __future__ import annotations

import itertools

import numpy as np

import triton_python_backend_utils as pb_utils

START = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
END = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END


class TritonPythonModel:
    """Sends the values of a request to `accumulator`, one by one."""

    def initialize(self, args: dict[str, str]) -> None:
        """Make correlation ids that no other instance uses."""
        self.names = (f"{args['model_instance_name']}:{number}" for number in itertools.count())

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """The totals of each request."""
        return [self.respond(request) for request in requests]

    def respond(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        """The totals of the request's values, or the error of the first that failed."""
        values = pb_utils.get_input_tensor_by_name(request, "VALUES").as_numpy()
        sequence = next(self.names)
        totals = []
        for index, value in enumerate(values):
            infer_request = pb_utils.InferenceRequest(
                model_name="accumulator",
                requested_output_names=["TOTAL"],
                inputs=[pb_utils.Tensor("VALUE", value.reshape(1, 1))],
                correlation_id=sequence,
                flags=START * (index == 0) | END * (index == len(values) - 1),
            )
            infer_response = infer_request.exec()
            if infer_response.has_error():
                return pb_utils.InferenceResponse(error=infer_response.error())
            totals.append(pb_utils.get_output_tensor_by_name(infer_response, "TOTAL").as_numpy().item())
        return pb_utils.InferenceResponse([pb_utils.Tensor("TOTALS", np.array(totals, np.int32))])
