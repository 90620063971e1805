"""A decoupled model that answers each request in a thread of its own, so that their responses interleave."""

from __future__ import annotations

import threading

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Sends the number n back n times."""

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> None:
        """Start the responses of each request, and return."""
        for request in requests:
            threading.Thread(target=self.respond, args=(request,), daemon=True).start()

    def respond(self, request: pb_utils.InferenceRequest) -> None:
        """Send the number as often as it says, then that this was all."""
        sender = request.get_response_sender()
        number = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        for _ in range(number[0]):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", number)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
