"""Models that are the server's own code, run by a worker in place of a file's `TritonPythonModel`.

Such a model has tensors of its own kind. It takes those of a request, and gives those of a response, by their bytes,
which are copied only where that cannot be helped: what came in shared memory is viewed there.
"""

import importlib
import sys
from typing import Any, Dict, List, Optional, Protocol, Tuple, Union

import numpy as np

from . import dlpack
from .errors import TritonError
from .requests import InferenceRequest
from .responses import InferenceResponse
from .senders import FINAL, State
from .tensors import Tensor

Buffer = Union[bytes, bytearray, memoryview]

HostedTensor = Tuple[str, int, Tuple[int, ...], Buffer, bool]
"""Name, number of the datatype, shape, bytes of the elements, whether others read them too."""


class HostedModel(Protocol):
    """What a worker runs."""

    decoupled: bool

    def complete_config(self, config: bytes) -> bytes:
        """The configuration, completed, before the model is initialized. Perhaps in another process."""

    def initialize(self, arguments: Dict[str, Any]) -> None:
        """Be ready to execute."""

    def execute(self, requests: List[InferenceRequest]) -> Optional[List[InferenceResponse]]:
        """The responses, one a request; None if it is decoupled."""

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


def received_inputs(request: InferenceRequest) -> List[HostedTensor]:
    """The inputs of a request that is served.

    Raises:
        MemoryError: the shared memory that they lie in cannot be mapped.
    """
    assert request._origin is not None, "only a served request was received"
    memory = request._origin.memory
    return [
        (name, number, shape, payload if isinstance(payload, bytes) else memory.view(payload).data, shared)
        for name, number, shape, payload, shared in request._encoded_inputs
    ]


def wanted_outputs(request: InferenceRequest) -> Tuple[str, ...]:
    """The outputs that the request wants, in the order in which it names them; all of them if it names none."""
    return request._wanted


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


def _tensor(name: str, number: int, shape: Tuple[int, ...], data: Buffer) -> Tensor:
    # through its constructor it would be decoded, only to be encoded again
    tensor = Tensor.__new__(Tensor)
    tensor._name, tensor._datatype, tensor._shape = name, number, shape
    tensor._array = None
    tensor._data = np.frombuffer(data, np.uint8)
    tensor._shared = False
    tensor._device = dlpack.HOST
    return tensor
