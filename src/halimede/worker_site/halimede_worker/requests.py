"""Requests: those that a model is to answer, and those that it makes of other models."""

import operator
import threading
from functools import partial
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Dict,
    List,
    Optional,
    Protocol,
    Sequence,
    Set,
    SupportsIndex,
    Tuple,
    Type,
    Union,
)

from .arguments import INT64, UINT32, UINT64, Signature
from .calls.bls import execute_inference, execute_inference_async
from .calls.preferred_memory import PreferredMemory, encode_preferred_memory
from .errors import TritonModelException
from .messages.memory import Memory, Outgoing, Reference
from .parameters import parameters_json
from .responses import InferenceResponse
from .runtime import Runtime, runtime
from .senders import InferenceResponseSender, Transmitter
from .tensors.tensors import Tensor, decode_tensor, encode_tensor
from .trace import InferenceTrace

if TYPE_CHECKING:
    from asyncio import Future

    from .calls.iterators import ResponseIterator
    from .states import States

EncodedRequest = Tuple[Any, ...]
"""What `InferenceRequest` calls number, id, correlation id, flags, timeout, parameters, names of the wanted outputs,
encoded inputs, the key under which the server knows its sequence, 0 for none, and the parts of clients' regions that
outputs go into, by the outputs' names, or None. For a request that is traced, the trace's number and context follow.

An input is its name, the number of its datatype, its shape, its bytes or where in shared memory they lie, and whether
others read them too.
"""

_UNTRACED_FIELDS = 10

RELEASE_ALL = 1
"""The flag of a request that is done with: `TRITONSERVER_REQUEST_RELEASE_ALL`."""

RELEASE_RESCHEDULE = 2
"""The flag of a request that has to come again: `TRITONSERVER_REQUEST_RELEASE_RESCHEDULE`."""

_MISSING: Any = object()

_asking = threading.Lock()
"""Held while a sender is made: a second one of the same request would be lost, and answer for the first."""

_NEW = Signature.constructor(
    "InferenceRequest(request_id: str = '', correlation_id: Union[int, str] = 0, inputs: Sequence[Tensor], "
    "requested_output_names: Sequence[str], model_name: str, model_version: int = -1, flags: int = 0, "
    "timeout: int = 0, preferred_memory: PreferredMemory = default, trace: InferenceTrace = InferenceTrace(), "
    "parameters: Optional[dict] = None)"
)
_SET_FLAGS = Signature.function("set_flags(flags: int)")
_SET_RELEASE_FLAGS = Signature.function("set_release_flags(flags: int)")
_EXEC = Signature.function("exec(decoupled: bool = False)")
_ASYNC_EXEC = Signature.function("async_exec(decoupled: bool = False)")


class Origin(Protocol):
    """Where served requests come from: what they need of the worker."""

    @property
    def memory(self) -> Memory:
        """Of the tensors."""

    @property
    def decoupled(self) -> bool:
        """Whether the model may send any number of responses."""

    @property
    def states(self) -> "Optional[States]":
        """What is kept of responses for the next requests of their sequences; None for nothing."""

    @property
    def transmitter(self) -> Transmitter:
        """What brings responses to the server. It must not hold senders: they tell the server when they are lost."""

    @property
    def request_class(self) -> "Type[InferenceRequest]":
        """What requests are made of: `InferenceRequest`, or what stands for it in the instance's `pb_utils`."""


class InferenceRequest:
    """A request: for this model if it came with `execute`, for another if the model made it.

    Args:
        request_id: any text.
        correlation_id: what the sequence is called, 0 if it is in none.
        inputs: input tensors.
        requested_output_names: none means all outputs.
        model_name: which model to ask.
        model_version: which version of it, -1 for the one that its policy chooses.
        flags: whether a sequence starts (1) and ends (2).
        timeout: how many microseconds the request may wait to be run, 0 without end.
        preferred_memory: where outputs should be.
        trace: `request.trace()` of the request that this one comes of.
        parameters: texts, whole numbers and truth values for the model.

    Raises:
        TypeError: an argument is missing or of another type.
        RuntimeError: the correlation id is negative or of more than 64 bits.
        TritonModelException: an input is None, the name of an output is empty, or a correlation id or parameter is of
            no type that they may have.
    """

    __module__ = "c_python_backend_utils"

    _runtime: ClassVar[Runtime] = runtime

    __slots__ = (
        "__weakref__",
        "_cancelled",
        "_correlation_id",
        "_encoded_inputs",
        "_flags",
        "_inputs",
        "_model_name",
        "_model_version",
        "_number",
        "_origin",
        "_parameters",
        "_placements",
        "_preferred_memory",
        "_request_id",
        "_rescheduled",
        "_sender",
        "_sequence_key",
        "_timeout",
        "_trace",
        "_wanted",
    )

    def __init__(
        self,
        request_id: "str | bytes" = "",
        correlation_id: "SupportsIndex | str" = 0,
        inputs: Sequence[Tensor] = _MISSING,
        requested_output_names: "Sequence[str | bytes]" = _MISSING,
        model_name: "str | bytes" = _MISSING,
        model_version: SupportsIndex = -1,
        flags: SupportsIndex = 0,
        timeout: SupportsIndex = 0,
        preferred_memory: PreferredMemory = _MISSING,
        trace: InferenceTrace = _MISSING,
        parameters: "Optional[dict[str, Any]]" = None,
    ) -> None:
        for name, value in (
            ("inputs", inputs),
            ("requested_output_names", requested_output_names),
            ("model_name", model_name),
        ):
            if value is _MISSING:
                raise _NEW.error(f"{name} is missing")
        self._request_id = _NEW.text("request_id", request_id)
        if correlation_id is None:
            raise _NEW.mismatch("correlation_id", "int or str", correlation_id)
        tensors = _NEW.instances("inputs", inputs, Tensor)
        names = _NEW.texts("requested_output_names", requested_output_names)
        self._model_name = _NEW.text("model_name", model_name)
        self._model_version = _NEW.whole("model_version", model_version, INT64)
        self._flags = _NEW.whole("flags", flags, UINT32)
        self._timeout = _NEW.whole("timeout", timeout, UINT64)
        self._preferred_memory: Optional[PreferredMemory] = None
        if preferred_memory is not _MISSING:
            self._preferred_memory = _NEW.instance("preferred_memory", preferred_memory, PreferredMemory)
        self._trace: Optional[InferenceTrace] = None
        if trace is not _MISSING:
            self._trace = _NEW.instance("trace", trace, InferenceTrace)

        self._parameters = parameters_json(parameters)
        self._correlation_id = _correlation_id(correlation_id)
        whose = f"for request with id '{self._request_id}' and model name '{self._model_name}' should not be empty."
        if None in tensors:
            raise TritonModelException("Input tensor " + whose)
        if "" in names:
            raise TritonModelException("Requested output name " + whose)
        self._inputs: Optional[List[Tensor]] = tensors  # type: ignore[assignment] # None is not among them
        self._wanted = tuple(dict.fromkeys(names))

        self._number = 0
        self._encoded_inputs: Tuple[Any, ...] = ()
        self._sequence_key = 0
        self._placements: Optional[Dict[str, Reference]] = None
        self._origin: Optional[Origin] = None
        self._sender: Optional[InferenceResponseSender] = None
        self._cancelled = False
        self._rescheduled = False

    def inputs(self) -> List[Tensor]:
        """The input tensors, in a new list; they are the same each time."""
        return list(self._tensors())

    def _tensors(self) -> List[Tensor]:
        """The input tensors, decoded when they are first asked for."""
        tensors = self._inputs
        if tensors is None:
            assert self._origin is not None, "only a served request has inputs to decode"
            memory = self._origin.memory
            self._inputs = tensors = [decode_tensor(encoded, memory) for encoded in self._encoded_inputs]
        return tensors

    def requested_output_names(self) -> Set[str]:
        """Names of the outputs to give. For a served request all of the model's if the client named none."""
        return set(self._wanted)

    def request_id(self) -> str:
        """What the client calls the request, "" if nothing."""
        return self._request_id

    def correlation_id(self) -> Union[int, str]:
        """What the sequence is called that the request belongs to, 0 if it belongs to none."""
        return self._correlation_id

    def flags(self) -> int:
        """Whether a sequence starts (1) and ends (2) with it."""
        return self._flags

    def set_flags(self, flags: SupportsIndex) -> None:
        """Say whether a sequence starts (1) and ends (2) with it.

        Raises:
            TypeError: the flags are no whole number of 32 bits.
        """
        self._flags = _SET_FLAGS.whole("flags", flags, UINT32)

    def timeout(self) -> int:
        """How many microseconds the request may wait to be run, 0 without end."""
        return self._timeout

    def parameters(self) -> str:
        """The parameters as JSON, `{}` if there are none."""
        return self._parameters or "{}"

    def trace(self) -> InferenceTrace:
        """The trace that the request belongs to."""
        if self._trace is None:
            self._trace = InferenceTrace()
        return self._trace

    def get_response_sender(self) -> InferenceResponseSender:
        """What answers the request, the same each time. That of a request to another model sends nothing."""
        sender = self._sender
        if sender is None:
            with _asking:
                sender = self._sender = self._sender or self._make_sender()
            if self._cancelled:
                sender._cancel()
        return sender

    def _make_sender(self) -> InferenceResponseSender:
        origin = self._origin
        if origin is None:
            return InferenceResponseSender(0, (), False, None)
        sender = InferenceResponseSender(self._number, self._wanted, origin.decoupled, origin.transmitter)
        states = origin.states
        if states is not None:
            sender._take = partial(_take_states, states, self._sequence_key)
        return sender

    def is_cancelled(self) -> bool:
        """Whether the client no longer waits for the answer."""
        return self._cancelled

    def _cancel(self) -> None:
        """The client no longer waits."""
        self._cancelled = True  # before the sender is looked for: a sender to be made then sees it
        sender = self._sender
        if sender is not None:
            sender._cancel()

    def set_release_flags(self, flags: SupportsIndex) -> None:
        """Say what becomes of the request after `execute`.

        Args:
            flags: `TRITONSERVER_REQUEST_RELEASE_ALL`, or `TRITONSERVER_REQUEST_RELEASE_RESCHEDULE` to get it again.

        Raises:
            TypeError: the flags are no whole number of 32 bits.
            TritonModelException: the request is not one that the model is to answer.
        """
        flags = _SET_RELEASE_FLAGS.whole("flags", flags, UINT32)
        if self._origin is None:
            raise TritonModelException(
                "Unable to set release flags. The request was made by the model; only a request that was passed to "
                "'execute' can be released or rescheduled."
            )
        self._rescheduled = bool(flags & RELEASE_RESCHEDULE)

    def exec(self, decoupled: bool = False) -> "InferenceResponse | ResponseIterator":
        """Have the other model run the request, and wait for its response.

        Args:
            decoupled: whether that model may send any number of responses; the result is an iterator of them then.

        Raises:
            TypeError: `decoupled` is no truth value.
            TritonModelException: the model is not loaded yet, or unloads.
        """
        return execute_inference(self, _EXEC.truth("decoupled", decoupled))

    def async_exec(self, decoupled: bool = False) -> "Future[InferenceResponse | ResponseIterator]":
        """Have the other model run the request, as `exec`: what it returns can be awaited.

        Raises:
            RuntimeError: no event loop is running.
            TypeError: `decoupled` is no truth value.
        """
        return execute_inference_async(self, _ASYNC_EXEC.truth("decoupled", decoupled))

    def _encoded(self, outgoing: Outgoing) -> Tuple[Any, ...]:
        """The request to another model, for a message.

        Returns:
            Model name and version, request id, correlation id, flags, timeout, parameters as JSON, names of outputs,
            inputs, and the preferred memory's type and device or None. If it comes of a request that is traced, the
            number of that trace follows.

        Raises:
            MemoryError: there is no shared memory for the inputs.
        """
        preferred = self._preferred_memory
        served = self._origin is not None
        trace = self._trace
        encoded = (
            self._model_name,
            int(self._runtime.args["model_version"]) if served else self._model_version,
            self._request_id,
            self._correlation_id,
            self._flags,
            self._timeout,
            self._parameters,
            self._wanted,
            tuple([encode_tensor(tensor, outgoing) for tensor in self.inputs()]),
            None if preferred is None else encode_preferred_memory(preferred),
        )
        return encoded if trace is None or not trace._number else (*encoded, trace._number)


def _take_states(states: "States", key: int, response: InferenceResponse) -> None:
    states.keep(key, states.take(response))


def _correlation_id(value: Any) -> Union[int, str]:
    if isinstance(value, str):
        return _NEW.text("correlation_id", value)
    try:
        number = int(operator.index(value))
    except TypeError:
        raise TritonModelException("Correlation ID must be integer or string") from None
    if not UINT64[0] <= number <= UINT64[1]:
        raise RuntimeError(f"Unable to cast correlation_id {number} to an unsigned integer of 64 bits.")
    return number


def decode_request(encoded: EncodedRequest, origin: Origin) -> InferenceRequest:
    """The request of a message, for the model to answer. Nothing is decoded before it is asked for.

    That of a decoupled model has its sender from the start: it may be asked for at any time, and once both are gone,
    the server hears of it.
    """
    made_of = origin.request_class
    request = made_of.__new__(made_of)
    request._trace = None
    if len(encoded) > _UNTRACED_FIELDS:
        request._trace = trace = InferenceTrace()
        trace._number, trace._context = encoded[_UNTRACED_FIELDS]
        encoded = encoded[:_UNTRACED_FIELDS]
    (
        request._number,
        request._request_id,
        request._correlation_id,
        request._flags,
        request._timeout,
        request._parameters,
        request._wanted,
        request._encoded_inputs,
        request._sequence_key,
        request._placements,
    ) = encoded
    request._inputs = None
    request._origin = origin
    request._sender = None
    request._cancelled = False
    request._rescheduled = False
    request._preferred_memory = None
    request._model_name = made_of._runtime.model_name
    if origin.decoupled:
        request.get_response_sender()
    return request


def encoded_form(request: InferenceRequest) -> Tuple[EncodedRequest, Memory]:
    """What `decode_request` has made the request of, and the memory in which its tensors may lie."""
    assert request._origin is not None, "it is served"
    encoded = (
        request._number,
        request._request_id,
        request._correlation_id,
        request._flags,
        request._timeout,
        request._parameters,
        request._wanted,
        request._encoded_inputs,
        request._sequence_key,
        None,  # its responses go by way of senders
    )
    return encoded, request._origin.memory
