"""Calls of the server: messages that are answered, over sockets of their own.

A call takes a socket that no other call uses, and gives it back. So there are as many as there were calls at the
same time, whatever threads made them, and nothing is locked. A child that the model forks makes its own.
"""

import os
import socket
from contextlib import suppress
from typing import Any, List, Sequence, Tuple

from ..errors import TritonModelException
from ..messages import wire
from ..messages.memory import Announced
from ..runtime import runtime
from .answers import answers

MAX_IDLE = 64
"""So many sockets are kept for calls to come."""


class CallChannel(wire.Channel):
    """A socket for calls, made by this process.

    Attributes:
        pid: the process.
    """

    def __init__(self) -> None:
        """A new socket, whose other end the server has.

        Raises:
            TritonModelException: there is no server, or no descriptor is left.
        """
        control = runtime.control
        if control is None:
            raise TritonModelException(
                "The server can only be called in the process of a model that it serves."
            )
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise TritonModelException(f"Cannot make a socket to call the server: {error}") from error
        super().__init__(ours, runtime.memory)
        self.pid = os.getpid()
        self._number = 0
        try:
            control.send((wire.OPEN, self.pid), descriptor=theirs.fileno())
        except wire.ClosedError:
            ours.close()
            raise closed() from None
        finally:
            theirs.close()

    @property
    def inherited(self) -> bool:
        """Whether the socket belongs to the process that this one was forked from."""
        return self.pid != os.getpid()

    def number(self) -> int:
        """A number for a call that no other on this socket has had."""
        self._number += 1
        return self._number

    def close(self) -> None:
        """Close this end, and let the server know even if a child has a copy of it."""
        if not self.inherited:
            with suppress(OSError):  # the server has closed it
                self.socket.shutdown(socket.SHUT_RDWR)
        super().close()


class Channels:
    """The sockets that no call uses.

    Attributes:
        forked: this process is a child that the model forked, not the worker itself.
    """

    def __init__(self) -> None:
        self.forked = False
        self._idle: List[CallChannel] = []
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        """In the child of a fork: the sockets are the parent's. Nor is the zygote's child one of a model."""
        self.forked = runtime.work is not None
        inherited, self._idle = self._idle, []
        for channel in inherited:
            channel.close()

    def take(self) -> CallChannel:
        """A socket for one call.

        Raises:
            TritonModelException: none can be made.
        """
        try:
            return self._idle.pop()
        except IndexError:
            return CallChannel()

    def put(self, channel: CallChannel) -> None:
        """The call is over."""
        if channel.inherited or len(self._idle) >= MAX_IDLE:
            channel.close()
        else:
            self._idle.append(channel)


channels = Channels()


def call(message: Tuple[Any, ...], fresh: Sequence[Announced] = ()) -> Any:
    """Have the server do something, and wait for what comes of it. May be called from any thread and any child.

    Args:
        message: what to do; one of the kinds of `wire` that are answered by DONE or FAILED.
        fresh: segments that the message needs and the server does not know.

    Returns:
        The value of DONE.

    Raises:
        TritonModelException: it failed, or the server is gone.
    """
    channel = channels.take()
    try:
        channel.send(message, fresh)
        answer = channel.receive()
        while answer[0] == wire.ANSWER:  # to an inference whose answers nobody wanted
            answers.drop(answer)
            answer = channel.receive()
    except wire.ClosedError:
        channel.close()
        raise closed() from None
    except BaseException:
        channel.close()  # the answer may still come, and is not that of the next call
        raise
    channels.put(channel)
    if answer[0] == wire.FAILED:
        raise TritonModelException(answer[1])
    return answer[1]


runtime.call = call


def closed() -> TritonModelException:
    """The error of a call that cannot be answered any more."""
    return TritonModelException(
        "The server does not answer any more: it has closed the connection to this model."
    )
