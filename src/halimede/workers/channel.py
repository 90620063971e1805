"""The server's end of a socket to a worker: messages in and out on the event loop, which never waits for it."""

import errno
import logging
import marshal
import os
import socket
import struct
from array import array
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns
from typing import Any

from halimede.core.buffers import POOL
from halimede.workers.memory import PeerMemory, ServerOutgoing
from halimede_worker.messages import wire
from halimede_worker.messages.memory import Announced, SharedMemoryError

logger = logging.getLogger("halimede")

Message = tuple[Any, ...]

_PACKET_LIMIT = wire.PACKET_BYTES - 4096
_MAX_DESCRIPTORS = 200
_MESSAGES_A_TURN = 64
_STREAMED = frozenset({wire.RESPONSE, wire.RESPONSES, wire.LOG, wire.METRIC})
"""Messages that seldom come alone."""

_LONGEST_WAIT = struct.pack("@ll", 0, 8000)
"""How long `wait` waits, in seconds and microseconds. The kernel counts in ticks of up to 4 ms, the first cut short."""


class Channel:
    """One socket. A message is one packet; see `halimede_worker.messages.wire` for what it says.

    Attributes:
        backlog: packets that the other side has no room for yet, each with the segments whose descriptors go with it.
        on_writable: called when the backlog is gone.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        sock: socket.socket,
        memory: PeerMemory,
        on_message: Callable[[Message], None],
        on_closed: Callable[[], None],
    ) -> None:
        """Serve the socket: `on_message` gets each message, `on_closed` is called once when the other end is gone.

        A descriptor that came with a message is its last item.
        """
        self.backlog: deque[tuple[bytes, list[Announced], int]] = deque()
        self.on_writable: Callable[[], None] | None = None
        self._loop = loop
        self._socket = sock
        self._memory = memory
        self._on_message = on_message
        self._on_closed = on_closed
        self._streams = True
        buffer = bytearray(wire.PACKET_BYTES + 64)
        self._view = memoryview(buffer)
        self._buffers = [buffer]
        self._open = True
        loop.add_reader(sock.fileno(), self._readable)
        # Blocking, so that `wait` needs one system call; all else says that it does not want to wait. Only now, since
        # libuv makes what it polls non-blocking.
        os.set_blocking(sock.fileno(), True)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _LONGEST_WAIT)

    def send(self, message: Message, outgoing: ServerOutgoing | None = None, descriptor: int = -1) -> None:
        """Send a message with what `outgoing` collected for it.

        Raises:
            MemoryError: the message is long, and there is no shared memory for it.
        """
        if not self._open:
            return
        data = marshal.dumps(message, wire.FORMAT)
        fresh: list[Announced] = outgoing.fresh if outgoing is not None else []
        if len(data) > _PACKET_LIMIT:
            # Nobody tells when it is read. So it is no segment of the pool: the worker's map of it keeps it.
            spill = POOL.private(len(data))
            spill.data[: len(data)] = data
            data = marshal.dumps((wire.SPILLED, (spill.number, 0, len(data))), wire.FORMAT)
            self._memory.introduce(spill)
            fresh = [*fresh, spill]
        while len(fresh) > _MAX_DESCRIPTORS:
            self._post(_announcement(fresh[:_MAX_DESCRIPTORS], b""), fresh[:_MAX_DESCRIPTORS], -1)
            fresh = fresh[_MAX_DESCRIPTORS:]
        if fresh or descriptor >= 0:
            self._post(_announcement(fresh, data), fresh, descriptor)
        elif self.backlog:
            self._post(data, [], -1)
        else:
            try:
                self._socket.send(data, socket.MSG_DONTWAIT)
            except BlockingIOError:
                self._post(data, [], -1)
            except OSError as error:
                self._give_up(error)

    def _post(self, data: bytes, fresh: list[Announced], descriptor: int) -> None:
        """Send a packet, or keep it until there is room."""
        if not self.backlog and self._try(data, fresh, descriptor):
            return
        if not self.backlog:
            self._loop.add_writer(self._socket.fileno(), self._writable)
        self.backlog.append((data, fresh, descriptor))

    def _try(self, data: bytes, fresh: list[Announced], descriptor: int) -> bool:
        try:
            if fresh or descriptor >= 0:
                descriptors = array("i", [segment.descriptor for segment in fresh])
                if descriptor >= 0:
                    descriptors.append(descriptor)
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
                self._socket.sendmsg([data], rights, socket.MSG_DONTWAIT)
            else:
                self._socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            self._give_up(error)
        return True

    def _give_up(self, error: OSError) -> None:
        """A message is lost, and whoever waits for what comes of it shall not wait for ever."""
        if error.errno not in (errno.EPIPE, errno.ECONNRESET):
            logger.error("cannot send a message to a worker process, which ends for it: %s", error.strerror)
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        # the other end is gone; reading tells

    def _writable(self) -> None:
        while self.backlog and self._try(*self.backlog[0]):
            self.backlog.popleft()
        if not self.backlog and self._open:
            self._loop.remove_writer(self._socket.fileno())
            if self.on_writable is not None:
                self.on_writable()

    def _readable(self) -> None:
        # one message, most often: to find out that there is no second costs as much as being called for it
        for _ in range(_MESSAGES_A_TURN):
            if not (self._open and self._read() and self._streams):
                return

    def wait(self) -> bool:
        """Take the next message, and for a moment wait for it, and the event loop with it: False if none came."""
        return self._open and self._read(0)

    def _read(self, flags: int = socket.MSG_DONTWAIT) -> bool:
        """Take the next message: False if there is none."""
        try:
            size, ancillary, _, _ = self._socket.recvmsg_into(self._buffers, 1024, flags)
        except BlockingIOError:
            return False
        except OSError:
            size, ancillary = 0, []
        if not size:
            self._lost()
            return False
        message: Message | None = marshal.loads(self._view[:size])  # noqa: S302 - from our own worker
        assert message is not None
        if message[0] < 0:
            try:
                message = self._unwrap(message, ancillary)
            except SharedMemoryError as error:
                logger.error("a message of a worker process, which ends for it, is lost: %s", error)
                self._lost()
                return False
        if message is not None:
            self._streams = message[0] in _STREAMED
            self._on_message(message)
        return True

    def _unwrap(self, message: Message, ancillary: list[tuple[int, int, bytes]]) -> Message | None:
        """The message in a frame; None if there is none."""
        extra: list[int] = []
        if message[0] == wire.ANNOUNCE:
            descriptors = wire.received_descriptors(ancillary)
            announced = message[1]
            self._memory.learn(announced, descriptors[: len(announced)])
            extra = descriptors[len(announced) :]
            if not message[2]:
                return None
            message = marshal.loads(message[2])  # noqa: S302 - from our own worker
        if message[0] == wire.SPILLED:
            message = marshal.loads(self._memory.view(message[1]))  # noqa: S302 - from our own worker
        return (*message, *extra)

    def look(self, until_ns: int) -> bool:
        """Take the next message if one comes until then, in monotonic ns, the processor being busy: False if none did.

        The event loop waits as well.
        """
        while self._open:
            if self._read():
                return True
            if monotonic_ns() >= until_ns:
                break
            os.sched_yield()  # to the worker, should it share the core after all
        return False

    def poll(self) -> None:
        """Take what the other side has sent by now."""
        while self._open and self._read():
            pass

    def drain(self) -> None:
        """Take what the other side has sent before it ended, but not that it did."""
        self._on_closed = _ignore
        self.poll()

    def _lost(self) -> None:
        """Nothing more comes from the other side."""
        on_closed = self._on_closed
        self.close()
        on_closed()

    def close(self) -> None:
        """Close this end. Nothing more is read or sent."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._socket.fileno())
            if self.backlog:
                self._loop.remove_writer(self._socket.fileno())
                self.backlog.clear()
            self._socket.close()
            self._view = memoryview(b"")
            self._buffers = []
            # what it calls refers to it, and is not to be left to the garbage collector
            self._on_message, self._on_closed, self.on_writable = _ignore, _ignore, None


def _announcement(fresh: list[Announced], data: bytes) -> bytes:
    """A packet that announces segments, whose descriptors go with it, and carries a message."""
    announced = [(segment.number, segment.size) for segment in fresh]
    return marshal.dumps((wire.ANNOUNCE, announced, data), wire.FORMAT)


def _ignore(*_: object) -> None:
    """What is known already, or comes too late."""
