"""Rows of text to features; how is said in measurements.py, with which the trees were trained."""

from __future__ import annotations

import numpy as np
from measurements import COLUMNS, features, parse

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Reads all rows of a batch, and computes their features at once."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> list[pb_utils.InferenceResponse]:
        """Features [rows, 40] for each request; one whose text is wrong has an error, and the others go on."""
        values: list[list[float]] = []
        places: list[slice | ValueError] = []
        for request in requests:
            texts = pb_utils.get_input_tensor_by_name(request, "ROW").as_numpy().ravel()
            try:
                rows = [parse(text.decode()) for text in texts]
            except ValueError as error:  # text that is not UTF-8 raises one, too
                places.append(error)
                continue
            places.append(slice(len(values), len(values) + len(rows)))
            values += rows

        found = features(np.array(values, np.float64).reshape(-1, COLUMNS))
        return [self.respond(place, found) for place in places]

    def respond(self, place: slice | ValueError, found: np.ndarray) -> pb_utils.InferenceResponse:
        """The request's rows of the batch, or what is wrong with its text."""
        if isinstance(place, ValueError):
            error = pb_utils.TritonError(f"ROW: {place}", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        return pb_utils.InferenceResponse([pb_utils.Tensor("FEATURES", found[place])])
