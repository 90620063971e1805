"""Handing connections of clients from one process to another, with what has been read of them.

A connection is handed over between two requests, together with the bytes of the next one. What the kernel knows of it
goes along: its client, its options, what has not been read.
"""

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from halimede.core.tasks import Tasks
from halimede.hosting.http.connection import ClientConnection

_ADDRESS_BYTES = 256
_AT_ONCE = 64
"""So many connections are taken in one turn of the loop at most."""

_FLAGS = struct.Struct("??")


@dataclass(frozen=True, slots=True)
class Handed:
    """A connection that another process has handed over.

    Attributes:
        socket: the connection.
        client: the client's address.
        from_loopback: the client is on this machine.
        data: what has been read of it.
    """

    socket: socket.socket
    client: str
    from_loopback: bool
    data: bytes


class Door:
    """One end of a pair of sockets over which connections go, in either direction. Lives on the event loop."""

    def __init__(self, end: socket.socket, on_handed: Callable[[Handed], None]) -> None:
        """An end, which is not blocking; `on_handed` is called with each connection that comes."""
        self._end = end
        self._on_handed = on_handed
        self._waiting: deque[tuple[bytes, list[int]]] = deque()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end.fileno(), self._receive)
        self._closed = False

    def hand(self, connection: int, client: str, data: bytes, *, from_loopback: bool) -> None:
        """Hand a connection over. Its descriptor may be closed afterwards.

        Raises:
            OSError: there are too many open files, or the other process is gone.
        """
        if self._closed:
            raise BrokenPipeError
        descriptors = [os.dup(connection)]
        try:
            if data:
                descriptors.append(_file_of(data))
            text = _FLAGS.pack(from_loopback, bool(data)) + client.encode()
            if self._waiting or not self._sent(text, descriptors):
                self._waiting.append((text, descriptors))
                self._loop.add_writer(self._end.fileno(), self._send_waiting)
                descriptors = []  # they are closed once they are sent
        finally:
            _close(descriptors)

    def _sent(self, text: bytes, descriptors: list[int]) -> bool:
        try:
            socket.send_fds(self._end, [text], descriptors)
        except BlockingIOError:
            return False
        return True

    def _send_waiting(self) -> None:
        while self._waiting:
            text, descriptors = self._waiting[0]
            try:
                if not self._sent(text, descriptors):
                    return
            except OSError:  # the other process is gone, and with it whoever would answer
                self.close()
                return
            self._waiting.popleft()
            _close(descriptors)
        self._loop.remove_writer(self._end.fileno())

    def _receive(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                text, descriptors, _, _ = socket.recv_fds(
                    self._end, _ADDRESS_BYTES, 2, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except OSError:
                text, descriptors = b"", []
            if not text:  # the other process is gone
                self._loop.remove_reader(self._end.fileno())
                return
            self._take(text, descriptors)

    def _take(self, text: bytes, descriptors: list[int]) -> None:
        from_loopback, has_data = _FLAGS.unpack_from(text)
        if len(descriptors) != 1 + has_data:  # there was no room for one: too many open files
            _close(descriptors)
            return
        data = b""
        if has_data:
            with os.fdopen(descriptors[1], "rb") as file:
                file.seek(0)
                data = file.read()
        client = text[_FLAGS.size :].decode()
        self._on_handed(Handed(socket.socket(fileno=descriptors[0]), client, from_loopback, data))

    def close(self) -> None:
        """Hand nothing over any more. What is still to be handed over is closed."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._end.fileno())
        self._loop.remove_writer(self._end.fileno())
        for _, descriptors in self._waiting:
            _close(descriptors)
        self._waiting.clear()
        self._end.close()


def _file_of(data: bytes) -> int:
    """A file in memory."""
    descriptor = os.memfd_create("halimede-read", os.MFD_CLOEXEC)
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    return descriptor


def _close(descriptors: list[int]) -> None:
    for each in descriptors:
        with suppress(OSError):
            os.close(each)


class Adoption:
    """Opens connections that were handed over. Lives on the event loop."""

    def __init__(self, make: Callable[[Handed], ClientConnection]) -> None:
        """Opens them as what `make` makes of them."""
        self._make = make
        self._opening = Tasks()
        self._stopped = False

    def take(self, handed: Handed) -> None:
        """Open a connection."""
        self._opening.start("taking a connection over", self._open(handed))

    async def _open(self, handed: Handed) -> None:
        connection = self._make(handed)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, handed.socket)
        except OSError:  # the client has gone
            handed.socket.close()
            connection.connection_lost(None)
            return
        if self._stopped:
            connection.shutdown()

    def stop(self) -> None:
        """Connections that come from now on answer what they have been asked, and close."""
        self._stopped = True
