"""Continuous batching: one step for the texts of all callers, then the next, with whoever is there by then."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import triton_python_backend_utils as pb_utils

START = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
AGAIN = pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE
END = "\x00"


@dataclass
class Text:
    """What is kept of a caller's text between two steps.

    Attributes:
        state: of the network, after all characters so far: (hidden,).
        left: so many characters may follow.
    """

    state: np.ndarray
    left: int


class TritonPythonModel:
    """Writes texts with a recurrent network."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the weights, which `build.py` has trained."""
        with np.load(Path(pb_utils.get_model_dir()) / "weights.npz") as weights:
            self.embed, self.recur, self.bias = weights["embed"], weights["recur"], weights["bias"]
            self.project, self.offset = weights["project"], weights["offset"]
            self.characters = str(weights["characters"])
        self.texts: dict[int, Text] = {}  # by correlation id, which the server gives each request

    def execute(self, requests: list[pb_utils.InferenceRequest]) -> None:
        """Write one character of each text; requests whose text goes on come again in the next batch."""
        requests = [request for request in requests if self.is_going_on(request)]
        if not requests:
            return
        texts = [self.texts[request.correlation_id()] for request in requests]
        states = np.stack([text.state for text in texts])
        best = np.argmax(states @ self.project + self.offset, axis=1)
        states = np.tanh(self.embed[best] + states @ self.recur + self.bias)
        for request, text, state, index in zip(requests, texts, states, best, strict=True):
            text.state = state
            self.answer(request, text, self.characters[index], len(requests))

    def is_going_on(self, request: pb_utils.InferenceRequest) -> bool:
        """Begin the text if the request is new; end it if its caller is gone, or the prompt is wrong."""
        sender = request.get_response_sender()
        try:
            if request.flags() & START:
                self.texts[request.correlation_id()] = self.begin(request)
        except ValueError as error:
            failure = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
            sender.send(pb_utils.InferenceResponse(error=failure), FINAL)
            return False
        if request.is_cancelled():
            self.forget(request, sender)
            return False
        return True

    def begin(self, request: pb_utils.InferenceRequest) -> Text:
        """Read the prompt."""
        prompt = pb_utils.get_input_tensor_by_name(request, "PROMPT").as_numpy().item().decode()
        most = pb_utils.get_input_tensor_by_name(request, "MAX_TOKENS")
        unknown = set(prompt) - set(self.characters)
        if unknown:
            raise ValueError(f"PROMPT has characters that the network does not know: {sorted(unknown)}")
        state = np.zeros(len(self.bias), np.float32)
        for character in prompt:
            embedding = self.embed[self.characters.index(character)]
            state = np.tanh(embedding + state @ self.recur + self.bias)
        return Text(state, 1000 if most is None else most.as_numpy().item())

    def answer(self, request: pb_utils.InferenceRequest, text: Text, character: str, callers: int) -> None:
        """Send the character, and ask for the request again unless it was the last one."""
        sender = request.get_response_sender()
        if character == END or text.left <= 0:
            self.forget(request, sender)
            return
        text.left -= 1
        outputs = [
            pb_utils.Tensor("TOKEN", np.array([[character.encode()]], np.object_)),
            pb_utils.Tensor("CALLERS", np.array([[callers]], np.int32)),
        ]
        sender.send(pb_utils.InferenceResponse(outputs))
        request.set_release_flags(AGAIN)

    def forget(self, request: pb_utils.InferenceRequest, sender: pb_utils.InferenceResponseSender) -> None:
        """End the text and its request."""
        self.texts.pop(request.correlation_id(), None)
        sender.send(flags=FINAL)

    def on_sequence_end(self, correlation_id: int, reason: str) -> None:
        """Forget a text whose caller left between two steps: its request does not come again."""
        self.texts.pop(correlation_id, None)
