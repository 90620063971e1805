"""A client's connection that goes to the process whose its next request is."""

import asyncio
from typing import Protocol

from halimede.hosting.http.connection import ClientConnection, Handler
from halimede.hosting.routing.invocations import ASYNCHRONOUS, PREFIX
from halimede.net.receiving import ReceiveBudget

_PREFIX = PREFIX.encode()
_ASYNCHRONOUS = f"/{ASYNCHRONOUS}".encode()
_NAME_BYTES = 63
"""The longest name of an endpoint."""

_LOOK_BYTES = len(_PREFIX) + _NAME_BYTES + len(_ASYNCHRONOUS)
_FLUSH_S = 0.002
"""How often is looked whether the client has got its last response, before its connection is handed over."""


def is_invocation(data: bytes) -> bool:
    """Whether the head that some data begins with is an invocation's that is answered at once."""
    begin = data.find(b" ") + 1
    return data.startswith(_PREFIX, begin) and data.find(_ASYNCHRONOUS, begin, begin + _LOOK_BYTES) < 0


class Elsewhere(Protocol):
    """The other processes."""

    def wants(self, data: bytes) -> bool:
        """Whether a request that begins so is another process's."""

    def hand(self, descriptor: int, client: str, data: bytes, *, from_loopback: bool) -> bool:
        """Hand a connection over; False if there is nobody who could take it."""


class SharedConnection(ClientConnection):
    """One connection, as long as this process has it."""

    def __init__(
        self,
        handler: Handler,
        elsewhere: Elsewhere,
        connections: "set[ClientConnection]",
        budget: ReceiveBudget,
        *,
        client: str | None = None,
        from_loopback: bool = False,
        data: bytes = b"",
    ) -> None:
        """A connection.

        Args:
            handler: called with each request that is this process's.
            elsewhere: takes the connection when another process's request comes.
            connections: the connection is in this set while it is open.
            budget: the memory of bodies that are collected whole.
            client: the client's address, if another process had the connection before; None for a new one.
            from_loopback: that client is on this machine.
            data: what has been read of it.
        """
        super().__init__(handler, None, connections, budget)
        self._elsewhere = elsewhere
        self._handed = None if client is None else (client, from_loopback, data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is here, new or handed over."""
        super().connection_made(transport)
        if self._handed is not None:
            self.client, self.from_loopback, data = self._handed
            if data:
                self.data_received(data)
        elif not self.client:  # it has gone, and nobody could tell any more where it was from
            self.abort()
        else:
            self._go(b"")

    def _receive_head(self, data: bytes) -> bytes:
        if self._elsewhere.wants(data) and b"\r\n\r\n" in data and self._go(data):
            return b""
        return super()._receive_head(data)

    def _go(self, data: bytes) -> bool:
        """Whether the connection leaves this process, now or once its last response has been written."""
        if self._transport.get_write_buffer_size():
            self._read(False)
            self._held = data
            self._loop.call_later(_FLUSH_S, self._read_on)
            return True
        descriptor = self._transport.get_extra_info("socket").fileno()
        if not self._elsewhere.hand(descriptor, self.client, data, from_loopback=self.from_loopback):
            return False
        self.leave()
        return True

    def _read_on(self) -> None:
        if not self._transport.is_closing():
            self._read(True)
            data, self._held = self._held, b""
            self.data_received(data)
