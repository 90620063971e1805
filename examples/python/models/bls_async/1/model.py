"""A model that asks two other models of the server at the same time."""

from __future__ import annotations

import asyncio
import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Takes OUTPUT0 from one model and OUTPUT1 from another."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read from the configuration which model gives which output."""
        parameters = json.loads(args["model_config"])["parameters"]
        self.sources = {name: parameters[name]["string_value"] for name in ("OUTPUT0", "OUTPUT1")}

    async def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """One response for each request, in their order."""
        return [await self.answer(request) for request in requests]

    async def answer(self, request: pb_utils.InferenceRequest) -> pb_utils.InferenceResponse:
        """The outputs of both models, or the error of one."""
        infer_responses = await asyncio.gather(
            *(
                pb_utils.InferenceRequest(
                    model_name=model_name, requested_output_names=[output], inputs=request.inputs()
                ).async_exec()
                for output, model_name in self.sources.items()
            )
        )
        outputs = []
        for infer_response in infer_responses:
            if infer_response.has_error():
                return pb_utils.InferenceResponse(error=infer_response.error())
            outputs += infer_response.output_tensors()
        return pb_utils.InferenceResponse(output_tensors=outputs)
