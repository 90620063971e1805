"""The replies of one connection that its client does not take, against the memory for all such answers."""

from __future__ import annotations

from typing import Protocol

from halimede.frontends.grpc.transport.call import Call
from halimede.frontends.grpc.transport.flow import Sender
from halimede.frontends.grpc.transport.responses import Status
from halimede.net.unsent import UnsentAnswers


class CrowdedConnection(Protocol):
    """What is asked of a connection while memory for answers is short."""

    def refuse(self, call: Call, status: int, text: str) -> None:
        """End a call for a reason of the transport's own."""

    def abort(self) -> None:
        """End now."""


class UnreadReplies:
    """Counts what waits on a connection for the client's windows and the socket."""

    __slots__ = ("_answers", "_connection", "_sender")

    def __init__(self, connection: CrowdedConnection, sender: Sender[Call], answers: UnsentAnswers) -> None:
        self._connection = connection
        self._sender = sender
        self._answers = answers
        sender.on_unsent = self._changed
        sender.fits = answers.fits
        sender.crowd_out = self._crowd_out

    def _changed(self) -> None:
        self._answers.update(self)

    def _crowd_out(self, call: Call) -> None:
        self._connection.refuse(call, Status.UNAVAILABLE, self._answers.refusal)

    # the answers call

    @property
    def to_take(self) -> int:
        """Bytes of messages that wait."""
        return self._sender.queued

    @property
    def waits(self) -> bool:
        """Whether there are such."""
        return self._sender.queued > 0

    def give_up(self) -> None:
        """Memory for answers is short, and the client takes nothing."""
        self._connection.abort()
