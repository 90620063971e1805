"""Models that are the server's own code, run by a worker in place of a file's `TritonPythonModel`.

Such a model has requests and responses of its own kind, which it makes of messages and turns into them: what Python
models see costs as much again as a small model's own work. Only a decoupled one sees it too, for its senders.
"""

import importlib
import sys
from contextlib import nullcontext
from time import monotonic_ns
from typing import Any, Callable, ContextManager, Dict, List, Optional, Protocol, Sequence, Tuple, Union

import numpy as np

from .errors import TritonError
from .execution import Executions
from .messages import wire
from .messages.memory import Memory, Outgoing
from .messages.wire import Message
from .requests import EncodedRequest, InferenceRequest
from .responses import EncodedResponse, InferenceResponse
from .senders import FINAL, State
from .tensors import dlpack
from .tensors.tensors import Tensor

Buffer = Union[bytes, bytearray, memoryview]


class HostedModel(Protocol):
    """What a worker runs.

    Attributes:
        decoupled: any number of responses may answer a request: then batches go to `execute`, else to `run`.
    """

    decoupled: bool

    def complete_config(self, config: bytes) -> bytes:
        """The configuration, completed, before the model is initialized. Perhaps in another process."""

    def initialize(self, arguments: Dict[str, Any]) -> None:
        """Be ready to execute."""

    def execute(self, requests: List[InferenceRequest]) -> None:
        """Answer the requests through their senders.

        Raises:
            PlainError: the whole batch failed.
        """

    def received(self, encoded: EncodedRequest, memory: Memory) -> Any:
        """The request of a message, with the method `_cancel`.

        Raises:
            PlainError: the shared memory that its tensors lie in cannot be mapped.
        """

    def run(self, requests: List[Any]) -> List[Any]:
        """The responses, one a request.

        Raises:
            PlainError: the whole batch failed.
        """

    def encoded(self, response: Any, request: Any, outgoing: Outgoing) -> EncodedResponse:
        """The response to the request, for a message.

        Raises:
            MemoryError: there is no shared memory for it.
        """

    @property
    def keeps_states(self) -> bool:
        """Whether it is to be told of sequences that have ended."""

    @property
    def reserved_bytes(self) -> int:
        """Memory that it has reserved and not used yet."""

    def end_sequence(self, key: int, correlation_id: Union[int, str], reason: str) -> None:
        """Forget what is kept of a sequence."""

    def finalize(self) -> None:
        """Give everything back."""


def hosted_model(settings: Dict[str, Any]) -> HostedModel:
    """The model that the settings name.

    Args:
        settings: of the worker; `hosted` is `module:class` of the model, which is given the settings, and
            `hosted_directory` where its package lies, should the interpreter not find it.
    """
    if sys.path[:1] == [""]:
        del sys.path[0]  # what lies where the server was started is no part of it
    directory = settings["hosted_directory"]
    if directory not in sys.path:
        sys.path.append(directory)
    module, _, name = settings["hosted"].partition(":")
    model: HostedModel = getattr(importlib.import_module(module), name)(settings)
    return model


class HostedExecutions(Executions):
    """Executions of a hosted model."""

    @property
    def wants_ends(self) -> bool:
        """Whether it is to be told of sequences that have ended."""
        model: HostedModel = self._model
        return model.keeps_states

    def end_sequences(self, ended: "List[Tuple[int, Union[int, str], str]]") -> None:
        """Sequences have ended."""
        model: HostedModel = self._model
        for key, correlation_id, reason in ended:
            model.end_sequence(key, correlation_id, reason)

    def _execute(
        self, first: int, encoded: List[EncodedRequest], segments: Sequence[int]
    ) -> Optional[Message]:
        if self.decoupled:
            return super()._execute(first, encoded, segments)
        model: HostedModel = self._model
        memory = self.memory
        began = monotonic_ns()
        try:
            requests = [model.received(request, memory) for request in encoded]
            self._running[first] = requests
            if self._cancelled:
                self._heed_cancelled(first, requests)
            responses = model.run(requests)
            ended = monotonic_ns()
            outgoing = Outgoing(memory)
            answers = [
                model.encoded(response, request, outgoing) for request, response in zip(requests, responses)
            ]
            if outgoing.fresh:
                self._work.announce(outgoing.fresh)
            return wire.RESULT, first, began, ended, answers
        except BaseException as error:
            return self._failed(first, [], began, error)


def response_of(
    outputs: "List[Tuple[str, int, Tuple[int, ...], Buffer]]",
    parameters: str,
    error: "Optional[Tuple[int, str]]" = None,
) -> InferenceResponse:
    """A response.

    Args:
        outputs: of each name, number of the datatype, shape and bytes.
        parameters: as JSON, "" for none.
        error: the number of its kind, and its text.
    """
    response = InferenceResponse.__new__(InferenceResponse)
    response._outputs = [_tensor(*output) for output in outputs]
    response._parameters = parameters
    response._error = None
    if error is not None:
        # the server has kinds of errors that models of others do not
        response._error = TritonError.__new__(TritonError)
        response._error._code, response._error._message = error  # type: ignore[assignment] # a number will do
    return response


def send_response(request: InferenceRequest, response: Optional[InferenceResponse], final: bool) -> None:
    """Send a response of a decoupled model; nothing, if the request was answered in another way."""
    sender = request.get_response_sender()
    if sender.state in (State.UNANSWERED, State.ANSWERED):
        sender.send(response, FINAL if final else 0)


def sending_together(request: InferenceRequest) -> "Callable[[], ContextManager[None]]":
    """What a thread sends in a block of this, to any requests of the model, goes as one message at its end.

    Args:
        request: a request of a decoupled model.
    """
    transmitter = request.get_response_sender().transmitter
    return nullcontext if transmitter is None else transmitter.together


def _tensor(name: str, number: int, shape: Tuple[int, ...], data: Buffer) -> Tensor:
    # through its constructor it would be decoded, only to be encoded again
    tensor = Tensor.__new__(Tensor)
    tensor._name, tensor._datatype, tensor._shape = name, number, shape
    tensor._array = None
    tensor._data = np.frombuffer(data, np.uint8)
    tensor._shared = False
    tensor._device = dlpack.HOST
    return tensor
