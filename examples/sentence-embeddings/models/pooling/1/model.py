"""The vectors of a text's tokens to one vector: their mean, scaled to length 1."""

from __future__ import annotations

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Pools the tokens of each text."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """One vector [rows, 384] for each request."""
        responses = []
        for request in requests:
            states = pb_utils.get_input_tensor_by_name(request, "last_hidden_state").as_numpy()
            mask = pb_utils.get_input_tensor_by_name(request, "attention_mask").as_numpy()
            embedding = pool(states, mask.astype(np.float32))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("EMBEDDING", embedding)]))
        return responses


def pool(states: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The mean of the states [rows, tokens, width] where the mask [rows, tokens] is 1, scaled to length 1."""
    total = np.einsum("nt,ntw->nw", mask, states)
    mean = total / mask.sum(axis=1, keepdims=True)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)
