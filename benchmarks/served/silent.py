# mypy: disable-error-code="union-attr, arg-type"
"""Begins a text, and never ends it."""

from typing import Any

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """The model."""

    def initialize(self, _args: dict[str, str]) -> None:
        """Nothing has begun."""
        self._begun: list[Any] = []

    def execute(self, requests: list[Any]) -> None:
        """Send the first piece of each text."""
        for request in requests:
            sender = request.get_response_sender()
            piece = pb_utils.Tensor("text_output", np.array([b"a"], np.object_))
            sender.send(pb_utils.InferenceResponse([piece]))
            self._begun = [each for each in self._begun if not each.is_cancelled()]
            self._begun.append(sender)
