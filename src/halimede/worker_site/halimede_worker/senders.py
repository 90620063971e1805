"""Response senders: how a model answers a request, at once or later, once or many times, from any thread."""

import enum
import threading
from typing import (
    Callable,
    Container,
    ContextManager,
    Dict,
    Optional,
    Protocol,
    Sequence,
    SupportsIndex,
    Tuple,
    Union,
)

from .arguments import UINT32, Signature
from .errors import TritonModelException
from .responses import InferenceResponse, keep_wanted
from .window import Window

FINAL = 1
"""The flag of a request's last response: `TRITONSERVER_RESPONSE_COMPLETE_FINAL`."""


class Transmitter(Protocol):
    """What brings responses to the server."""

    def transmit(
        self, number: int, response: Optional[InferenceResponse], final: bool, dropped: Sequence[str] = ()
    ) -> None:
        """Send a response to the request of that number; None only says that no more will follow.

        What nobody requested is no longer in the response: `dropped` has the names. Called by one thread at a time for
        one request.
        """

    def together(self) -> "ContextManager[None]":
        """What this thread sends in the block goes as one message at its end. Nothing may be waited for in it."""

    def transmit_abandoned(self, number: int) -> None:
        """Say that no more can follow, although the last response never came.

        The garbage collector calls it, at any place in any thread: it must not wait for a lock.
        """


class State(enum.Enum):
    """What became of a sender."""

    UNANSWERED = enum.auto()
    """Nothing was sent."""
    ANSWERED = enum.auto()
    """Something was sent; more may follow."""
    CLOSED = enum.auto()
    """Something was sent; the request is complete."""
    REVOKED = enum.auto()
    """Nothing was sent, and the request was answered in another way."""
    DETACHED = enum.auto()
    """The request is one that the model itself made."""


_UNSUPPORTED_FLAG = "Unable to send response. Unsupported flag provided."
_NO_RESPONSE = "Inference Response object must be provided when the response flags is set to zero."
_DETACHED = "Unable to send response. Response sender has no reference to the decoupled state of the model."
_SECOND = "Unable to send response. Non-decoupled model cannot send more than one response."
_PREMATURE = (
    "Unable to send response. Non-decoupled model cannot send complete final before sending a response."
)
_CLOSED = "Unable to send response. Response sender has been closed."

Move = Union[State, str]
Moves = Dict[State, Tuple[Move, Move, Move]]

# The state that follows, or why not, for: a response, a response with the final flag, the final flag alone.
_ONE_RESPONSE: Moves = {
    State.UNANSWERED: (State.ANSWERED, State.CLOSED, _PREMATURE),
    State.ANSWERED: (_SECOND, _SECOND, State.CLOSED),
    State.CLOSED: (_SECOND, _SECOND, _CLOSED),
    State.REVOKED: (_CLOSED, _CLOSED, _PREMATURE),
    State.DETACHED: (_DETACHED, _DETACHED, _DETACHED),
}
_MANY_RESPONSES: Moves = {
    State.UNANSWERED: (State.ANSWERED, State.CLOSED, State.CLOSED),
    State.ANSWERED: (State.ANSWERED, State.CLOSED, State.CLOSED),
    State.CLOSED: (_CLOSED, _CLOSED, _CLOSED),
    State.REVOKED: (_CLOSED, _CLOSED, _CLOSED),
    State.DETACHED: (_DETACHED, _DETACHED, _DETACHED),
}
_WHEN_CLOSED = {State.UNANSWERED: State.REVOKED, State.ANSWERED: State.CLOSED}

_SEND = Signature.function("send(response: Optional[InferenceResponse] = None, flags: int = 0)")


class InferenceResponseSender:
    """Answers one request. Models get it from `request.get_response_sender()`; it outlives the request.

    All but `send` and `is_cancelled` is for those who run the model.

    Args:
        number: the request's.
        wanted: names of the outputs that were requested.
        decoupled: whether the model may send any number of responses, or one.
        transmitter: what brings responses to the server; None for a request that the model itself made.
    """

    __module__ = "c_python_backend_utils"

    __slots__ = (
        "__weakref__",
        "_cancelled",
        "_lock",
        "_moves",
        "_number",
        "_state",
        "_take",
        "_transmitter",
        "_wanted",
        "_window",
    )

    def __init__(
        self, number: int, wanted: Container[str], decoupled: bool, transmitter: Optional[Transmitter]
    ) -> None:
        self._number = number
        self._wanted = wanted
        self._transmitter = transmitter
        self._moves = _MANY_RESPONSES if decoupled else _ONE_RESPONSE
        self._window = Window() if decoupled else None
        self._lock = threading.Lock()
        self._take: Optional[Callable[[InferenceResponse], None]] = None  # what takes states out of responses
        self._cancelled = False
        self._state = State.DETACHED if transmitter is None else State.UNANSWERED

    def send(self, response: Optional[InferenceResponse] = None, flags: SupportsIndex = 0) -> None:
        """Send a response, or say that there will be no more, or both.

        Returns once the response is on its way; waits while the client is too many responses behind. Outputs that
        were not requested are removed from the response.

        Args:
            response: may be left out with the final flag.
            flags: 0, or `TRITONSERVER_RESPONSE_COMPLETE_FINAL` if no response will follow.

        Raises:
            TypeError: an argument is of another type.
            TritonModelException: the flags are neither, there is no response, or none may be sent any more.
        """
        if response is not None:
            _SEND.instance("response", response, InferenceResponse)
        flags = _SEND.whole("flags", flags, UINT32)
        if flags not in (0, FINAL):
            raise TritonModelException(_UNSUPPORTED_FLAG)
        if not flags and response is None:
            raise TritonModelException(_NO_RESPONSE)
        with self._lock:  # until the response is gone: none may come after the last
            move = self._moves[self._state][2 if response is None else flags]
            if isinstance(move, str):
                raise TritonModelException(move)
            self._transmit(response, flags == FINAL)
            self._state = move

    def _transmit(self, response: Optional[InferenceResponse], final: bool) -> None:
        assert self._transmitter is not None, "a detached sender has no legal move"
        if response is None:
            self._transmitter.transmit(self._number, None, final)
            return
        window = self._window
        if window is not None and not window.take():
            raise TritonModelException(_CLOSED)
        try:
            if self._take is not None:
                self._take(response)
            dropped = keep_wanted(response, self._wanted)
            self._transmitter.transmit(self._number, response, final, dropped)
        except BaseException:
            if window is not None:
                window.credit(1)
            raise

    def is_cancelled(self) -> bool:
        """Whether the client no longer waits for responses."""
        return self._cancelled

    @property
    def full(self) -> bool:
        """Whether the client is so many responses behind that `send` would wait."""
        return self._window is not None and self._window.full

    @property
    def transmitter(self) -> Optional[Transmitter]:
        """What brings its responses to the server; None for a request that the model itself made."""
        return self._transmitter

    @property
    def state(self) -> State:
        """What became of the sender."""
        return self._state

    def credit(self, responses: int) -> None:
        """The server took so many responses: so many more may be sent."""
        if self._window is not None:
            self._window.credit(responses)

    def close(self) -> None:
        """The request is complete without this sender's doing; nothing more may be sent."""
        if self._window is not None:
            self._window.close()  # before the lock, which whoever waits holds
        with self._lock:
            self._state = _WHEN_CLOSED.get(self._state, self._state)

    def _cancel(self) -> None:
        """The client is gone: nobody waits for it any more."""
        self._cancelled = True
        if self._window is not None:
            self._window.unbind()

    def __del__(self) -> None:
        # a request that can never be answered; when the interpreter exits, the server knows by that
        try:
            if self._state in (State.UNANSWERED, State.ANSWERED) and self._transmitter is not None:
                self._transmitter.transmit_abandoned(self._number)
        except Exception:  # noqa: S110 - nobody is there to hear of it
            pass
