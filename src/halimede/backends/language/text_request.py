"""What a request asks of a model that generates text."""

from dataclasses import dataclass
from typing import Any

from halimede.backends.language import tensors
from halimede.backends.language.sampling import Sampling, choose_known, read_sampling
from halimede.core.errors import InvalidArgumentError
from halimede.core.requests import InferRequest
from halimede.core.tensors import decode_bytes


@dataclass(frozen=True, slots=True)
class TextRequest:
    """What is asked for.

    Attributes:
        prompt: the text that the model is to go on with.
        stream: the text comes piece by piece, in many responses.
        echo: the prompt comes before the text.
        sampling: how tokens are chosen.
        wanted: the outputs besides the text.
    """

    prompt: str
    stream: bool
    echo: bool
    sampling: Sampling
    wanted: frozenset[str]


def read_text_request(request: InferRequest, defaults: Sampling) -> TextRequest:
    """What the request asks for; what it leaves out of the sampling is as in `defaults`.

    Raises:
        InvalidArgumentError: an input has another shape, or says what cannot be.
    """
    stream = _flag(request, tensors.STREAM, default=False)
    exclude = _flag(request, tensors.EXCLUDE_INPUT, default=stream)
    if stream and not exclude:
        msg = f"{tensors.EXCLUDE_INPUT} cannot be false for a request with {tensors.STREAM}"
        raise InvalidArgumentError(msg)
    if tensors.SAMPLING_PARAMETERS in request.inputs:
        sampling = read_sampling(_text(request, tensors.SAMPLING_PARAMETERS), defaults)
    else:
        sampling = choose_known(request.parameters or {}, defaults)
    switches = {
        tensors.RETURN_FINISH_REASON: tensors.FINISH_REASON,
        tensors.RETURN_INPUT_TOKENS: tensors.INPUT_TOKENS,
        tensors.RETURN_OUTPUT_TOKENS: tensors.OUTPUT_TOKENS,
    }
    wanted = (output for switch, output in switches.items() if _flag(request, switch, default=False))
    prompt = _text(request, tensors.TEXT_INPUT)
    return TextRequest(prompt, stream, not exclude, sampling, frozenset(wanted))


def _text(request: InferRequest, name: str) -> str:
    tensor = request.inputs[name]
    elements = decode_bytes(tensor.data)
    _check_one(name, len(elements))
    try:
        return elements[0].decode()
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{name} is not UTF-8: {error}") from None


def _flag(request: InferRequest, name: str, *, default: bool) -> bool:
    tensor = request.inputs.get(name)
    if tensor is None:
        return default
    array: Any = tensor.array
    _check_one(name, array.size)
    return bool(array.item())


def _check_one(name: str, count: int) -> None:
    if count != 1:
        raise InvalidArgumentError(f"{name} must have one element, got {count}")
