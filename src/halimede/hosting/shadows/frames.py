"""Messages between a process that routes and the one that sends its copies, each with bytes behind it.

Large bodies are written as they are: they are neither joined nor copied into a message. What is told of each copy goes
by `marshal`, which takes a tenth of the time of `pickle`; what is told seldom, by the latter.
"""

import asyncio
import marshal
import pickle
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from halimede.hosting.routing.agreement import ShadowCounts
from halimede.hosting.shadows.settings import Tolerance

_HEAD = struct.Struct("!BIQ")
"""The kind of the message, its length, and the length of what is behind it."""

_PICKLED, _JOBS, _DONE = range(3)


class Begin(NamedTuple):
    """The first message to the sender: its limits, as in `ShadowSettings`."""

    answer_bytes: int
    concurrency: int
    tolerance: Tolerance


class Job(NamedTuple):
    """A copy that is to be sent. Its bytes are the body, and the primary's answer if there is one to compare with.

    Attributes:
        number: no other copy of this process has it.
        variant: the same for all copies that go to the same variant.
        host, port, unix_socket: where the instance listens.
        head: the request's head.
        timeout_s: how long the answer may take.
        body_bytes: how many are the request's body.
        answer_bytes: how many are the primary's answer.
        answer: the headers of that; None if nothing is to be compared.
        returns: the instance's answer is wanted, in `Returned`.
    """

    number: int
    variant: int
    host: str
    port: int
    unix_socket: str
    head: bytes
    timeout_s: float
    body_bytes: int
    answer_bytes: int
    answer: Mapping[str, str] | None
    returns: bool


class Jobs(NamedTuple):
    """Copies that are to be sent; behind it are the bytes of each, in their order."""

    jobs: list[Job]


class Sent(NamedTuple):
    """What has become of a copy.

    Attributes:
        number: the copy's.
        status: the instance's; 0 for no answer.
        model_ns: from when it was sent until the answer was complete.
        compares: it is in `Results` later.
        refused: the instance accepted no connection, or broke off before it answered.
    """

    number: int
    status: int
    model_ns: int
    compares: bool
    refused: bool = False


class Returned(NamedTuple):
    """An instance's answer with success, for those who look at the shadow's invocations; behind it is its body.

    Attributes:
        number: the copy's.
        status: such as 200.
        headers: lower-case name → value.
    """

    number: int
    status: int
    headers: Mapping[str, str]


class Done(NamedTuple):
    """Copies that instances have answered, or will not."""

    copies: list[Sent]


class Results(NamedTuple):
    """Copies of one variant whose answers have been compared, and what was counted of them together."""

    numbers: list[int]
    counts: ShadowCounts


class Frames(asyncio.Protocol):
    """One end. Lives on the event loop.

    Both ends are processes of one program and one user, and nobody else can have the sockets: what comes is trusted.
    """

    def __init__(self, on_message: Callable[[Any, bytes], None], on_closed: Callable[[], None]) -> None:
        """An end that is not connected.

        Args:
            on_message: called with each message and the bytes behind it.
            on_closed: called when the other process is gone, or has closed its end.
        """
        self._on_message = on_message
        self._on_closed = on_closed
        self._held: list[bytes] = []
        self._have = 0
        self._need = _HEAD.size
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Both ends are there."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is of no asyncio class

    def connection_lost(self, _: Exception | None) -> None:
        """The other end is gone."""
        self._transport = None
        self._on_closed()

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        self._held.append(data)
        self._have += len(data)
        if self._have < self._need:  # pieces of a large body are joined once
            return
        held = b"".join(self._held) if len(self._held) > 1 else data
        at = 0
        while len(held) - at >= _HEAD.size:
            kind, length, behind = _HEAD.unpack_from(held, at)
            begin = at + _HEAD.size
            end = begin + length + behind
            if len(held) < end:
                self._need = end - at
                break
            message = _unpacked(kind, memoryview(held)[begin : begin + length])
            at = end
            self._on_message(message, held[begin + length : end])
        else:
            self._need = _HEAD.size
        rest = held[at:]
        self._held = [rest] if rest else []
        self._have = len(rest)

    def send(self, message: object, behind: Sequence[bytes] = ()) -> None:
        """Send a message with bytes behind it; it is dropped if the other end is gone."""
        if self._transport is None or self._transport.is_closing():
            return
        kind, data = _packed(message)
        size = sum(map(len, behind))
        head = _HEAD.pack(kind, len(data), size) + data
        if size <= _JOINED_BYTES:
            self._transport.write(head + b"".join(behind))
            return
        self._transport.write(head)
        for piece in behind:
            self._transport.write(piece)

    def close(self) -> None:
        """Close this end, once what was sent is on its way."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close this end at once."""
        if self._transport is not None:
            self._transport.abort()


def _packed(message: object) -> tuple[int, bytes]:
    """The kind of a message, and its bytes."""
    if isinstance(message, Jobs):
        return _JOBS, marshal.dumps([tuple(each) for each in message.jobs])
    if isinstance(message, Done):
        return _DONE, marshal.dumps([tuple(each) for each in message.copies])
    return _PICKLED, pickle.dumps(message, pickle.HIGHEST_PROTOCOL)


def _unpacked(kind: int, data: memoryview) -> object:
    """The message."""
    if kind == _PICKLED:
        return pickle.loads(data)  # noqa: S301 - the class above says why
    each = marshal.loads(data)  # noqa: S302 - likewise
    return (
        Jobs([Job._make(values) for values in each])
        if kind == _JOBS
        else Done([Sent._make(values) for values in each])
    )


_JOINED_BYTES = 16_384
"""Bodies up to this size go out with their message in one piece."""
