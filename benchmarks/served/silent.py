"""Begins a text, and never ends it."""

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers with one piece."""

    def initialize(self, args):
        self._begun = []

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            piece = pb_utils.Tensor("text_output", np.array([b"a"], np.object_))
            sender.send(pb_utils.InferenceResponse([piece]))
            self._begun = [each for each in self._begun if not each.is_cancelled()]
            self._begun.append(sender)
