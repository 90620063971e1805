"""Requests and responses as messages to and from a worker."""

from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

import orjson

from halimede.backends.initial_states import initial_states
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.signature import Signature
from halimede.core.errors import UnavailableError
from halimede.core.requests import InferRequest, InferResponse, RepeatingResponse
from halimede.core.tensors import Tensor
from halimede.core.trace_context import TRACEPARENT, TRACESTATE, traceparent_of
from halimede.core.traces import SpanContext, Trace
from halimede.workers.error_numbers import ERRORS, code_number
from halimede.workers.memory import Encoded, PeerMemory, ServerOutgoing
from halimede_worker.messages.memory import SharedMemoryError
from halimede_worker.responses import DROPPED
from halimede_worker.states import EncodedState

START_FLAG = 1
END_FLAG = 2

SENT_TRACES: Final[WeakValueDictionary[int, Trace]] = WeakValueDictionary()
"""Traces of requests that workers have, by their numbers: a worker names them in the calls that come of those."""


def encode_request(
    number: int, request: InferRequest, outgoing: ServerOutgoing | None, all_outputs: tuple[str, ...]
) -> tuple[Any, ...]:
    """The request for EXECUTE.

    Args:
        number: what the worker calls it.
        request: the request.
        outgoing: takes its tensors; None if they are small enough to travel in the message, and none is in a region.
        all_outputs: the outputs that a request wants that names none.

    Raises:
        MemoryError: there is no shared memory for a large tensor.
    """
    parameters = request.parameters
    targets = None
    if outgoing is not None and request.targets:
        targets = {name: outgoing.piece(piece) for name, piece in request.targets.items()}
    inputs: list[Encoded]
    if outgoing is None:
        inputs = [
            (name, tensor.datatype.number, tensor.shape, tensor.data, tensor.shared)
            for name, tensor in request.inputs.items()
        ]
    else:
        inputs = [outgoing.tensor(name, tensor) for name, tensor in request.inputs.items()]
    encoded = (
        number,
        request.id,
        request.sequence_id,
        request.sequence_start * START_FLAG + request.sequence_end * END_FLAG,
        request.timeout_us,
        orjson.dumps(parameters).decode() if parameters else "",
        request.outputs or all_outputs,
        tuple(inputs),
        request.sequence_key,
        targets,
    )
    return encoded if request.trace is None else (*encoded, _encode_trace(request.trace))


def _encode_trace(trace: Trace) -> tuple[int, str | None]:
    """The trace's number, and its place among the spans of other programs: the headers that say it, as JSON."""
    SENT_TRACES[trace.number] = trace
    return trace.number, None if trace.context is None else _carrier(trace.context)


def _carrier(context: SpanContext) -> str:
    headers = {TRACEPARENT: traceparent_of(context)}
    if context.state:
        headers[TRACESTATE] = context.state
    return orjson.dumps(headers).decode()


def encode_states(config: ModelConfig, directory: Path) -> tuple[EncodedState, ...]:
    """The states of a model, and what sequences begin with, for INITIALIZE. Blocks.

    Args:
        config: of the model.
        directory: the model's, which may have files of initial states.

    Raises:
        HalimedeError: a file cannot be used.
    """
    initial = initial_states(config, directory)
    signature = Signature.from_config(config)
    lead = (1,) if config.max_batch_size > 0 else ()
    encoded: list[EncodedState] = []
    for name, state in signature.states.items():
        datatype, array = state.input.datatype, initial[name]
        content = bytes(Tensor.from_array(datatype, array).data)
        wanted = lead + state.output.dims
        encoded.append((name, state.output.name, datatype.number, wanted, lead + array.shape, content))
    return tuple(encoded)


def decode_response(encoded: tuple[Any, ...], memory: PeerMemory) -> InferResponse:
    """A response of a worker, its tensors as views."""
    outputs, parameters, error = encoded
    if error is not None:
        number, text = error
        return InferResponse(error=ERRORS[number](text))
    decode = memory.tensor
    try:
        tensors = [(tensor[0], decode(tensor)) for tensor in outputs if tensor[1] != DROPPED]
    except SharedMemoryError as error:
        return InferResponse(error=UnavailableError(f"the response of the model was lost: {error}"))
    by_name = dict(tensors)
    decoded = orjson.loads(parameters) if parameters else None
    if len(by_name) != len(tensors):
        return RepeatingResponse(tensors, decoded)
    return InferResponse(by_name, decoded)


def dropped_outputs(encoded: tuple[Any, ...]) -> list[str]:
    """Names of the outputs that the model gave in a response, and that were not requested."""
    return [tensor[0] for tensor in encoded[0] if tensor[1] == DROPPED]


def encode_response(response: InferResponse, outgoing: ServerOutgoing) -> tuple[Any, ...]:
    """A response for a worker that called another model.

    Raises:
        MemoryError: there is no shared memory for a large tensor.
    """
    if response.error is not None:
        return (), "", (code_number(response.error), response.error.message)
    return (
        tuple([outgoing.tensor(name, tensor) for name, tensor in response.tensors()]),
        orjson.dumps(response.parameters).decode() if response.parameters else "",
        None,
    )
