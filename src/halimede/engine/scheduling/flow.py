"""Back-pressure on in-process backends that send responses from threads of their own.

A thread that sends a response waits for one of two reasons: the client is slower than the model, and who takes its
responses has said so (`InferRequest.congest`); or the event loop is, and has not taken those that were sent before.
"""

from threading import Condition, Lock, get_ident
from typing import Final

from halimede.core.requests import InferRequest

MAX_UNTAKEN: Final = 64
"""Responses of one request that may be on their way from its thread to the event loop."""

_FEW_UNTAKEN: Final = MAX_UNTAKEN // 2


class Flow:
    """What the threads of one model wait at. Made on the event loop, whose own thread never waits."""

    def __init__(self) -> None:
        self._loop_thread = get_ident()
        self._gates: dict[InferRequest, _Gate] = {}
        self._closed = False

    def open(self, request: InferRequest) -> None:
        """The request runs; its responses may be sent from now on, from any thread."""
        self._gates[request] = _Gate()
        request.on_drain = request.on_cancel = self._wake

    def wait(self, request: InferRequest) -> None:
        """Return when the next response of the request may be handed to the loop, which has to be done then.

        That is at once if the request is cancelled or has had its last response, and for all when the model closes.
        """
        gate = self._gates.get(request)
        if gate is None:
            return
        with gate.changed:
            while (
                (request.congested or gate.untaken >= MAX_UNTAKEN)
                and not (request.cancelled or gate.closed or self._closed)
                and get_ident() != self._loop_thread
            ):
                gate.changed.wait()
            gate.untaken += 1

    def taken(self, request: InferRequest, final: bool) -> None:
        """The loop has a response of the request, perhaps the last."""
        gate = self._gates.get(request)
        if gate is None:
            return
        with gate.changed:
            gate.untaken -= 1
            if final:
                gate.closed = True
            if final or gate.untaken == _FEW_UNTAKEN:
                gate.changed.notify_all()
        if final:
            del self._gates[request]
            request.on_drain = request.on_cancel = None

    def close(self) -> None:
        """Let every thread go on, whatever its client does. From any thread."""
        self._closed = True
        for request in list(self._gates):
            self._wake(request)

    def _wake(self, request: InferRequest) -> None:
        gate = self._gates.get(request)
        if gate is not None:
            with gate.changed:
                gate.changed.notify_all()


class _Gate:
    """Where the threads of one request wait.

    Attributes:
        changed: told of every change that may let them go on.
        untaken: responses that were handed to the loop, which has not had its turn.
        closed: the last response is sent.
    """

    __slots__ = ("changed", "closed", "untaken")

    def __init__(self) -> None:
        self.changed = Condition(Lock())
        self.untaken = 0
        self.closed = False
