"""Responses: what a model answers, and what it gets from models that it calls."""

from typing import Any, Container, Dict, Optional, Sequence, Tuple

from .arguments import Signature
from .errors import ErrorCode, TritonError, TritonModelException
from .messages.memory import Memory, Outgoing, Reference
from .parameters import parameters_json
from .tensors.tensors import Tensor, decode_tensor, encode_tensor

EncodedResponse = Tuple[Tuple[Any, ...], str, Optional[Tuple[int, str]]]
"""Outputs, parameters as JSON or "", None or the error's code and message."""

_NEW = Signature.constructor(
    "InferenceResponse(output_tensors: Sequence[Tensor] = [], error: Optional[TritonError] = None, "
    "parameters: Optional[dict] = None)"
)


_TENSORS = {Tensor}


class InferenceResponse:
    """The answer to a request: tensors or an error.

    Args:
        output_tensors: outputs; those that were not requested are dropped when the response is sent.
        error: why there are none. With an error the outputs count for nothing.
        parameters: texts, whole numbers and truth values for whoever sent the request.

    Raises:
        TypeError: an argument is of another type.
        TritonModelException: an output is None, or a parameter is of no type that parameters may have.
    """

    __module__ = "c_python_backend_utils"

    __slots__ = ("_error", "_outputs", "_parameters")

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: Optional[TritonError] = None,
        parameters: "Optional[dict[str, Any]]" = None,
    ) -> None:
        if error is not None:
            _NEW.instance("error", error, TritonError)
        self._error = error
        self._parameters = "" if parameters is None else parameters_json(parameters)
        if type(output_tensors) is list and set(map(type, output_tensors)) <= _TENSORS:
            self._outputs: Sequence[Tensor] = output_tensors[:]
            return
        outputs = _NEW.instances("output_tensors", output_tensors, Tensor)
        if None in outputs:
            raise TritonModelException("Output tensor for inference response should not be empty.")
        self._outputs = outputs  # type: ignore[assignment] # None is not among them

    def output_tensors(self) -> "list[Tensor]":
        """The outputs, in a new list."""
        return list(self._outputs)

    def has_error(self) -> bool:
        """Whether the request failed."""
        return self._error is not None

    def error(self) -> Optional[TritonError]:
        """Why the request failed, None if it did not."""
        return self._error

    def parameters(self) -> str:
        """The parameters as JSON, `{}` if there are none."""
        return self._parameters or "{}"


DROPPED = 0
"""In place of a datatype's number, with an output of which only the name is sent: nobody requested it."""


def keep_wanted(response: InferenceResponse, wanted: Container[str]) -> Sequence[str]:
    """Take the outputs that nobody requested out of the response: their names."""
    for output in response._outputs:
        if output._name not in wanted:
            names = [output._name for output in response._outputs if output._name not in wanted]
            response._outputs = [output for output in response._outputs if output._name in wanted]
            return names
    return ()


def encode_response(
    response: InferenceResponse,
    wanted: Optional[Container[str]],
    outgoing: Outgoing,
    placements: Optional[Dict[str, Reference]] = None,
    dropped: Sequence[str] = (),
) -> EncodedResponse:
    """The response for a message. Outputs that nobody requested leave the response itself.

    Args:
        response: any outputs will do: the server compares them to the configuration.
        wanted: names of the outputs that were requested; None if a sender has left the response only those.
        outgoing: takes the tensors.
        placements: name → part of a client's region, of outputs that go into one; None for none.
        dropped: names of the outputs that a sender has taken out.

    Raises:
        MemoryError: there is no shared memory for the outputs.
    """
    error = response._error
    if error is not None:
        return (), response._parameters, (int(error._code), error._message)
    if wanted is not None:
        dropped = keep_wanted(response, wanted)
    outputs: Tuple[Any, ...]
    if placements:
        outputs = _placed(response, outgoing, placements)
    else:
        outputs = tuple([encode_tensor(output, outgoing) for output in response._outputs])
    if dropped:
        outputs += tuple([(name, DROPPED, (), b"", False) for name in dropped])
    return outputs, response._parameters, None


def _placed(
    response: InferenceResponse, outgoing: Outgoing, placements: Dict[str, Reference]
) -> Tuple[Any, ...]:
    """The outputs for the message, those in `placements` written to regions of clients."""
    outputs = []
    for output in response._outputs:
        target = placements.get(output._name)
        outputs.append(encode_tensor(output, outgoing if target is None else outgoing.into(target)))
    return tuple(outputs)


def decode_response(encoded: EncodedResponse, memory: Memory) -> InferenceResponse:
    """The response that a message holds."""
    outputs, parameters, error = encoded
    response = InferenceResponse.__new__(InferenceResponse)
    response._outputs = [decode_tensor(output, memory) for output in outputs]
    response._parameters = parameters
    response._error = None if error is None else TritonError(error[1], ErrorCode(error[0]))
    return response
