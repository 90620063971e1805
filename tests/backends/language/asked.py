"""Requests to a language model, and their answers."""

import json
import threading
from typing import Any

import numpy as np

from halimede.backends.batch import Batch
from halimede.backends.language import tensors
from halimede.config.signature import Signature
from halimede.core.datatypes import BOOL, BYTES
from halimede.core.requests import InferRequest, InferResponse
from halimede.core.tensors import Tensor, encode_bytes


class Asked:
    """A request and its answer.

    Attributes:
        texts: of each response.
        outputs: name → value, of the last response with outputs.
        error: what it ended with.
    """

    def __init__(self, prompt: str, *, stream: bool = True, **sampling: Any) -> None:
        inputs = {
            tensors.TEXT_INPUT: Tensor(BYTES, (1,), encode_bytes([prompt])),
            tensors.SAMPLING_PARAMETERS: Tensor(BYTES, (1,), encode_bytes([json.dumps(sampling)])),
        }
        for name in (tensors.RETURN_FINISH_REASON, tensors.RETURN_INPUT_TOKENS, tensors.RETURN_OUTPUT_TOKENS):
            inputs[name] = Tensor.from_array(BOOL, np.array([True]))
        inputs[tensors.STREAM] = Tensor.from_array(BOOL, np.array([stream]))
        self.request = InferRequest("m", inputs, lambda response, final: None)
        self.texts: list[str] = []
        self.outputs: dict[str, Any] = {}
        self.count = 0
        self.error: Exception | None = None
        self.over = threading.Event()

    def send(self, response: InferResponse | None, final: bool) -> None:
        if response is not None and response.error is not None:
            self.error = response.error
        elif response is not None:
            values = {name: tensor.array.item() for name, tensor in response.outputs.items()}
            self.texts.append(values[tensors.TEXT_OUTPUT].decode())
            self.count += values[tensors.OUTPUT_TOKENS]
            self.outputs = values
        if final:
            self.over.set()

    def wait(self) -> "Asked":
        assert self.over.wait(60)
        return self

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.texts)


def batch_of(signature: Signature, *asked: Asked) -> Batch:
    """The requests as one batch."""
    by_request = {each.request: each for each in asked}
    batch = Batch(signature, list(by_request), len(asked))
    batch.send = lambda request, response, final: by_request[request].send(response, final)
    return batch
