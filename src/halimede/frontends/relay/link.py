"""Messages between a front end and the engine, and the memory that large tensors travel in.

All items of one turn of the event loop go in one message, so that under load both sides wake up once for many of them.
Up to 16 KiB of an item travels in the message. More lies in a shared segment, and the message says where: a body that
was received into a segment is not copied on its way to a model's process, nor an output on its way back.
"""

import logging
import os
import socket
import sys
from asyncio import AbstractEventLoop, TimerHandle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from halimede.core.tensors import Buffer
from halimede.workers.channel import Channel, Message
from halimede.workers.memory import PeerMemory, ServerOutgoing
from halimede_worker.messages.memory import Reference, Segment

logger = logging.getLogger("halimede")

Item = tuple[Any, ...]
Payload: TypeAlias = bytes | Reference
"""Bytes that came in a message, or where in shared memory they lie."""

Handlers = Mapping[int, Callable[..., None]]
"""Kind of item → what takes the rest of it."""

_BATCH: Final = 100
"""The kind of every message: items, segments that are not viewed any more, segments that are no more."""

_CONNECTION: Final = 101
"""The kind of a message that hands a connection over: what it is, and its descriptor."""

_INLINE_BYTES: Final = ServerOutgoing.INLINE_BYTES
"""A payload of more lies in a shared segment."""

_INSIDE_BYTES: Final = 49_152
"""A message with so much in it is sent at once, and what still belongs to its last item lies in a shared segment."""

_TIDY_S: Final = 0.5
"""How long the other side may wait at most to hear that a segment is not viewed any more."""

_UNUSED: Final = 3
"""References to a segment that nobody views: a dictionary's, a variable's, and the argument of `getrefcount`."""


class _Memory(PeerMemory):
    """What the two processes share, as one of them sees it.

    A segment that was sent is kept until the other side has said as often as it was sent that nothing there views it.
    Either side may send a segment back to the one that it is from, who keeps it himself.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sent: dict[int, tuple[Segment, int]] = {}
        self._received: Counter[int] = Counter()

    def view(self, reference: Reference) -> memoryview:
        """The bytes that the other side has sent."""
        number = reference[0]
        if number in self._theirs:
            self._received[number] += 1
        return super().view(reference)

    def keep(self, segments: Iterable[Segment]) -> None:
        """These segments are being sent, as often as they are named."""
        for segment in segments:
            number = segment.number
            if number not in self._theirs:
                self._sent[number] = segment, self._sent.get(number, (segment, 0))[1] + 1

    def unviewed(self) -> list[tuple[int, int]]:
        """The other side's segments that nothing here views any more, with how often each was received."""
        if not self._received:
            return []
        theirs = self._theirs
        unviewed = []
        for number, count in list(self._received.items()):
            segment = theirs.get(number)
            if segment is None or sys.getrefcount(segment) == _UNUSED:
                unviewed.append((number, count))
                del self._received[number]
        return unviewed

    def let_go(self, counts: Iterable[tuple[int, int]]) -> None:
        """The other side views these segments no more; each was sent so often when it said so."""
        for number, count in counts:
            segment, left = self._sent.pop(number, (None, 0))
            if segment is not None and left > count:
                self._sent[number] = segment, left - count

    @property
    def untidy(self) -> bool:
        """Whether there is, or may be in a while, something that the other side may let go of."""
        return bool(self._received or self._known)

    def close(self) -> None:
        """The other side is gone."""
        super().close()
        self._sent.clear()
        self._received.clear()


class Link:
    """One end. Lives on the event loop.

    Attributes:
        on_room: called when the other side takes items again, after it was `congested`.
        on_connection: called with what was said of a connection that was handed over, and its descriptor, which is
            missing if there are too many open files.
    """

    def __init__(
        self, loop: AbstractEventLoop, end: socket.socket, handlers: Handlers, on_closed: Callable[[], None]
    ) -> None:
        """Serve a socket that keeps packets apart.

        Args:
            loop: the event loop.
            end: the socket.
            handlers: what takes the items that come.
            on_closed: called once if the other end is gone.
        """
        self.on_room: Callable[[], None] = _nothing
        self._loop = loop
        self._handlers = handlers
        self._memory = _Memory()
        self._items: list[Item] = []
        self._outgoing: ServerOutgoing | None = None  # of payloads in shared memory
        self._inside = 0  # bytes of payloads in the message itself
        self._due = False
        self._tidying: TimerHandle | None = None
        self._handing: list[int] = []
        self.on_connection: Callable[..., None] = _nothing
        self._channel = Channel(loop, end, self._memory, self._take, on_closed)
        self._channel.on_writable = self._writable

    @property
    def congested(self) -> bool:
        """Whether the other side is behind with taking what was sent."""
        return bool(self._channel.backlog)

    def post(self, *item: Any) -> None:
        """Send an item with the others of this turn of the loop. It is dropped if the other side is gone."""
        self._items.append(item)
        if not self._due:
            self._due = True
            self._loop.call_soon(self._flush_if_due)
        elif self._inside > _INSIDE_BYTES:
            self._flush()

    def payload(self, data: Buffer) -> Buffer | Reference:
        """What the item that is posted next says of some bytes, which may not change in this turn of the loop.

        Raises:
            MemoryError: there is no shared memory for them.
        """
        size = len(data)
        if size <= _INLINE_BYTES and self._inside <= _INSIDE_BYTES:
            self._inside += size
            return data
        if self._outgoing is None:
            self._outgoing = self._memory.outgoing()
        return self._outgoing.place(data)

    def payloads(self, parts: Sequence[Buffer]) -> list[Buffer | Reference]:
        """As `payload`, of several."""
        return [self.payload(part) for part in parts]

    def bytes_of(self, payload: Payload) -> Buffer:
        """What the other side has sent as a payload.

        Raises:
            SharedMemoryError: the memory that it lies in could not be mapped.
        """
        if isinstance(payload, bytes):
            return payload
        view = self._memory.view(payload)
        self._tidy_later()
        return view

    def all_bytes_of(self, payloads: Sequence[Payload]) -> Sequence[Buffer]:
        """As `bytes_of`, of several."""
        for payload in payloads:
            if type(payload) is not bytes:
                return [self.bytes_of(each) for each in payloads]
        return payloads  # type: ignore[return-value] # all are bytes

    def hand(self, *about: Any, descriptor: int) -> None:
        """Hand over a connection, whose descriptor is closed here; the other side's `on_connection` gets it."""
        self._channel.send((_CONNECTION, *about), None, descriptor)
        self._handing.append(descriptor)
        if not self._channel.backlog:
            self._close_handed()

    def _close_handed(self) -> None:
        """What was handed over is there."""
        handed, self._handing = self._handing, []
        for descriptor in handed:
            os.close(descriptor)

    def _flush_if_due(self) -> None:
        if self._due:
            self._flush()

    def _flush(self) -> None:
        self._due = False
        self._inside = 0
        items, self._items = self._items, []
        outgoing, self._outgoing = self._outgoing, None
        memory = self._memory
        if outgoing is not None and outgoing.segments:
            memory.keep(outgoing.segments)
            self._tidy_later()
        unviewed, gone = memory.unviewed(), memory.forgettable()
        if not (items or unviewed or gone):
            return
        try:
            self._channel.send((_BATCH, items, unviewed, gone), outgoing)
        except (MemoryError, ValueError):
            self._channel.send((_BATCH, [], unviewed, gone), outgoing)
            for item in items:
                self._send_alone(item)

    def _send_alone(self, item: Item) -> None:
        """Send an item of a batch that cannot be sent, so that the others, which are other clients', are not lost."""
        try:
            self._channel.send((_BATCH, [_plain(item)], [], []))
        except (MemoryError, ValueError) as error:
            logger.error("a call between processes is lost: %s: %.200r", error, item)

    def _take(self, message: Message) -> None:
        if message[0] == _CONNECTION:
            self.on_connection(*message[1:])
            return
        _, items, let_go, gone = message
        handlers = self._handlers
        for item in items:
            try:
                handlers[item[0]](*item[1:])
            except Exception:  # the other items are other clients'
                logger.exception("a call between processes failed")
        self._memory.let_go(let_go)
        self._memory.gone(gone)

    def _tidy_later(self) -> None:
        """Tell the other side in a while what it may let go of, even if nothing else is to be said."""
        if self._tidying is None and self._memory.untidy:
            self._tidying = self._loop.call_later(_TIDY_S, self._tidy)

    def _tidy(self) -> None:
        self._tidying = None
        self._flush()
        self._tidy_later()

    def _writable(self) -> None:
        self._close_handed()
        self.on_room()

    def close(self) -> None:
        """Close this end, once what was posted is sent."""
        self._flush()
        if self._tidying is not None:
            self._tidying.cancel()
        self._channel.close()
        self._close_handed()
        self._memory.close()


def _plain(value: Any) -> Any:
    """A value whose classes are derived from those that can be sent, as one of these."""
    if isinstance(value, list | tuple):
        return tuple([_plain(each) for each in value])
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def _nothing(*_: object) -> None:
    """Nobody wants to hear of it."""
