"""Scores to names of classes, which lie beside this file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Names the best class of each row."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the names."""
        path = Path(pb_utils.get_model_dir()) / "labels.txt"
        self.labels = np.array([name.encode() for name in path.read_text().split()], np.object_)

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """A label and a confidence for each row."""
        responses = []
        for request in requests:
            scores = pb_utils.get_input_tensor_by_name(request, "SCORES").as_numpy()
            outputs = [
                pb_utils.Tensor("LABEL", self.labels[scores.argmax(axis=1)][:, None]),
                pb_utils.Tensor("CONFIDENCE", scores.max(axis=1, keepdims=True)),
            ]
            responses.append(pb_utils.InferenceResponse(outputs))
        return responses
