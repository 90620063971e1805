"""A PyTorch module as a model."""

from __future__ import annotations

import torch

import triton_python_backend_utils as pb_utils


class AddSub(torch.nn.Module):
    """A sum and a difference."""

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum and the difference of two tensors of one shape."""
        return first + second, first - second


class TritonPythonModel:
    """Serves the module; tensors go in and out by DLPack, without copies."""

    def initialize(self, args: dict[str, str]) -> None:
        """Build the module."""
        self.module = AddSub().eval()

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """One response for each request, in their order."""
        responses = []
        for request in requests:
            first = torch.from_dlpack(pb_utils.get_input_tensor_by_name(request, "INPUT0"))
            second = torch.from_dlpack(pb_utils.get_input_tensor_by_name(request, "INPUT1"))
            with torch.inference_mode():
                total, difference = self.module(first, second)
            outputs = [
                pb_utils.Tensor.from_dlpack("OUTPUT0", total),
                pb_utils.Tensor.from_dlpack("OUTPUT1", difference),
            ]
            responses.append(pb_utils.InferenceResponse(output_tensors=outputs))
        return responses
