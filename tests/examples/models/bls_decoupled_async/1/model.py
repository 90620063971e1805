"""Adds up the responses of `square_int32` with the iterators of two asynchronous calls at the same time."""

from __future__ import annotations

import asyncio

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    async def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        responses = []
        for request in requests:
            infer_requests = [
                pb_utils.InferenceRequest(
                    model_name="square_int32",
                    inputs=[pb_utils.get_input_tensor_by_name(request, "IN")],
                    requested_output_names=["OUT"],
                )
                for _ in range(2)
            ]
            total = 0
            for infer_responses in await asyncio.gather(
                *(infer_request.async_exec(decoupled=True) for infer_request in infer_requests)
            ):
                for infer_response in infer_responses:
                    if infer_response.has_error():
                        raise pb_utils.TritonModelException(infer_response.error().message())
                    if len(infer_response.output_tensors()) > 0:
                        total += int(pb_utils.get_output_tensor_by_name(infer_response, "OUT").as_numpy()[0])
            tensor = pb_utils.Tensor("SUM", np.array([total]))
            responses.append(pb_utils.InferenceResponse(output_tensors=[tensor]))
        return responses
