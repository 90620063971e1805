"""Messages between the host's own process and a router process, in order, over a pair of sockets of their own."""

import asyncio
import pickle
import struct
from collections.abc import Callable
from typing import Any, cast

_LENGTH = struct.Struct("!I")


class Channel(asyncio.Protocol):
    """One end. Lives on the event loop.

    Both ends are processes of one program and one user, and nobody else can have the sockets: what comes may be
    unpickled.
    """

    def __init__(self, on_message: Callable[[Any], None], on_closed: Callable[[], None]) -> None:
        """An end that is not connected.

        Args:
            on_message: called with each message.
            on_closed: called when the other process is gone, or has closed its end.
        """
        self._on_message = on_message
        self._on_closed = on_closed
        self._held = bytearray()
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
        held = self._held
        held += data
        start = 0
        while len(held) - start >= _LENGTH.size:
            [length] = _LENGTH.unpack_from(held, start)
            end = start + _LENGTH.size + length
            if len(held) < end:
                break
            message = pickle.loads(held[start + _LENGTH.size : end])  # noqa: S301 - the class says why
            start = end
            self._on_message(message)
        del held[:start]

    def send(self, message: object) -> None:
        """Send a message; it is dropped if the other end is gone."""
        if self._transport is not None and not self._transport.is_closing():
            data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
            self._transport.write(_LENGTH.pack(len(data)) + data)

    def close(self) -> None:
        """Close this end, once what was sent is on its way."""
        if self._transport is not None:
            self._transport.close()
