"""The unfinished messages of a connection, as they count against the memory for bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from halimede.frontends.grpc.transport.call import Call
from halimede.frontends.grpc.transport.responses import Status
from halimede.net.receiving import BodyTooLargeError, ReceiveBudget, ReceiveError, Reception


class Half(Protocol):
    """What is asked of the receiving half of a connection."""

    @property
    def over_limit(self) -> bool:
        """Whether so much waits on the connection that the peer is granted no more."""

    def grant_stream(self, call: Call) -> None:
        """Let the peer send more on a stream."""

    def drop(self, call: Call) -> None:
        """Let go of a call that has ended."""


def receive_status(error: ReceiveError) -> Status:
    """The status of a call whose message cannot be received."""
    return Status.RESOURCE_EXHAUSTED if isinstance(error, BodyTooLargeError) else Status.UNAVAILABLE


class Receptions:
    """Which calls have a message that is not complete, or that waits for the end of the client's stream."""

    def __init__(self, budget: ReceiveBudget, half: Half, refuse: Callable[[Call, int, str], None]) -> None:
        self._budget = budget
        self._half = half
        self._refuse = refuse
        self._open: dict[Call, Reception] = {}

    def add(self, call: Call, length: int, size: int) -> None:
        """`size` more bytes are there of a message of `length`, which is no longer than the budget's `large_limit`."""
        reception = self._open.get(call)
        if reception is None:
            reception = self._open[call] = self._budget.open(
                _Receiver(call, self._half, self._refuse), length
            )
        reception.add(size)

    def close(self, call: Call) -> None:
        """The message is complete, or given up."""
        if self._open:
            reception = self._open.pop(call, None)
            if reception is not None:
                reception.close()

    def held(self, call: Call) -> int:
        """Bytes that count for the call."""
        reception = self._open.get(call)
        return 0 if reception is None else reception.held

    def held_back(self, call: Call) -> bool:
        """Whether the call's message waits for memory."""
        reception = self._open.get(call)
        return reception is not None and reception.held_back


class _Receiver:
    """One message that is being received."""

    __slots__ = ("_call", "_half", "_refuse")

    def __init__(self, call: Call, half: Half, refuse: Callable[[Call, int, str], None]) -> None:
        self._call = call
        self._half = half
        self._refuse = refuse

    def hold_back(self) -> None:
        """Nothing to do: `Receptions.held_back` keeps the client's window from growing."""

    def go_on(self) -> None:
        self._half.grant_stream(self._call)

    @property
    def may_send(self) -> bool:
        return not (self._call.paused or self._half.over_limit)

    def refuse_body(self, error: ReceiveError) -> None:
        self._refuse(self._call, receive_status(error), str(error))
        self._half.drop(self._call)
