"""Ten probabilities to the word of the likeliest digit."""

from __future__ import annotations

import numpy as np

import triton_python_backend_utils as pb_utils

WORDS = np.array(
    [b"zero", b"one", b"two", b"three", b"four", b"five", b"six", b"seven", b"eight", b"nine"], np.object_
)


class TritonPythonModel:
    """Names the likeliest digit."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """A word [rows, 1] for each request."""
        responses = []
        for request in requests:
            probabilities = pb_utils.get_input_tensor_by_name(request, "probabilities").as_numpy()
            words = WORDS[probabilities.argmax(axis=1)]
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("word", words[:, np.newaxis])]))
        return responses
