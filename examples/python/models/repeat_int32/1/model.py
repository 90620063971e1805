"""A decoupled model: it sends as many responses as it likes, when it likes."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
from numpy.typing import NDArray

import triton_python_backend_utils as pb_utils
from c_python_backend_utils import InferenceResponseSender


class TritonPythonModel:
    """Sends the elements of a tensor one by one."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read how often an element is repeated in a response: the parameter `output_num_elements`."""
        config = json.loads(args["model_config"])
        if not pb_utils.using_decoupled_model_transaction_policy(config):
            raise pb_utils.TritonModelException("this model must be decoupled: see config.pbtxt")
        parameter = config["parameters"].get("output_num_elements", {"string_value": "1"})
        self.repetitions = int(parameter["string_value"])
        self.threads: list[threading.Thread] = []

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> None:
        """Start the responses of each request, and return; nothing is returned by a decoupled model."""
        for request in requests:
            wait = pb_utils.get_input_tensor_by_name(request, "WAIT").as_numpy()
            elements = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            delays = pb_utils.get_input_tensor_by_name(request, "DELAY").as_numpy()
            thread = threading.Thread(
                target=self.respond, args=(request.get_response_sender(), elements, delays), daemon=True
            )
            self.threads = [one for one in self.threads if one.is_alive()] + [thread]
            thread.start()
            time.sleep(wait[0] / 1000)

    def respond(
        self, sender: InferenceResponseSender, elements: NDArray[np.int32], delays: NDArray[np.uint32]
    ) -> None:
        """Send one response for each element; runs in a thread of its own."""
        for index, (element, delay) in enumerate(zip(elements, delays, strict=True)):
            time.sleep(delay / 1000)
            if sender.is_cancelled():
                break
            outputs = [
                pb_utils.Tensor("OUT", np.full(self.repetitions, element, np.int32)),
                pb_utils.Tensor("IDX", np.array([index], np.uint32)),
            ]
            sender.send(pb_utils.InferenceResponse(output_tensors=outputs))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def finalize(self) -> None:
        """Let the responses that are under way end."""
        for thread in self.threads:
            thread.join()
