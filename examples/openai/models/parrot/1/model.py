"""A stand-in for a language model: its tokens are words, and it says again what it was told last."""

import json
import threading
from typing import Any

import numpy as np

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Answers each request in a thread of its own."""

    def execute(self, requests: list[Any]) -> None:
        """Begin to answer the requests."""
        for request in requests:
            threading.Thread(target=self.speak, args=(request, request.get_response_sender())).start()

    def speak(self, request: Any, sender: Any) -> None:
        """Send each word as a response, until the client has gone."""
        prompt = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()[0].decode()
        sampling = pb_utils.get_input_tensor_by_name(request, "sampling_parameters")
        limit = json.loads(sampling.as_numpy()[0]).get("max_tokens", 100) if sampling else 100
        words = prompt.strip().splitlines()[-1].split()
        for number, word in enumerate(words[:limit], 1):
            if sender.is_cancelled():
                break
            reason = "length" if number == limit < len(words) else "stop" if number == len(words) else "None"
            outputs = {
                "text_output": np.array([(word if number == 1 else f" {word}").encode()], np.object_),
                "finish_reason": np.array([reason.encode()], np.object_),
                "num_input_tokens": np.array([len(prompt.split())], np.uint32),
                "num_output_tokens": np.array([1], np.uint32),
            }
            tensors = [pb_utils.Tensor(name, array) for name, array in outputs.items()]
            sender.send(pb_utils.InferenceResponse(tensors))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
