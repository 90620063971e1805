"""One encrypted connection: to TCP it is a protocol, to the protocol above it a transport.

    TCP ── data_received ── incoming ── SSL_read ── protocol.data_received, or into the protocol's buffer
    TCP ── write ────────── outgoing ── SSL_write ── write; what TCP does not take yet waits as it is

uvloop's own TLS is not used: it sends no alerts, so that clients do not learn why their handshake failed, does not
count what waits to be sent, and ends a connection as soon as the client has ended its side.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol, cast

from halimede.core.tensors import Buffer

_RECORD_BYTES = 16_384
"""What a record of TLS holds at most."""

_BURST_BYTES = 16 * _RECORD_BYTES
"""What is encrypted at once. What waits longer waits as it is, as the views that the protocol has written."""

UNREAD_BYTES = 16_384
"""What TLS itself may have to say, such as new keys, to a client that asks for it and reads nothing."""


class HandshakeListener(Protocol):
    """Who hears of a connection's handshake."""

    def began(self, connection: "TlsConnection") -> None:
        """A client has connected."""

    def ready(self, connection: "TlsConnection") -> None:
        """Call `shake_hands` in a turn of the loop to come."""

    def succeeded(self, connection: "TlsConnection") -> asyncio.BaseProtocol | None:
        """The handshake is done: the protocol to speak from now on; None to close."""

    def failed(self, connection: "TlsConnection", error: Exception | None) -> None:
        """The handshake has failed; without an error if the client has left."""


class TlsConnection(asyncio.Transport, asyncio.Protocol):
    """The server's end of one connection.

    The protocol above is an `asyncio.Protocol`, or an `asyncio.BufferedProtocol`, into whose buffers is decrypted.

    Args:
        context: the server's certificate, and what it asks of clients.
        listener: hears of the handshake.
    """

    def __init__(self, context: ssl.SSLContext, listener: HandshakeListener) -> None:
        super().__init__()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._tcp: asyncio.Transport
        self._protocol: Any = None  # None until the handshake is done
        self._decrypt: Callable[[], bool] = self._decrypt_bytes
        # what is read
        self._reading = True
        self._ended = False  # the client sends no more
        # what is written
        self._backlog: deque[memoryview] = deque()
        self._waiting = 0  # bytes of it
        self._tcp_full = False
        self._unread = 0  # bytes that TLS itself has said while TCP was full
        self._told_to_pause = False
        self._end_due = False  # nothing follows the backlog
        self._closing = False

    # TCP calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._tcp = cast("asyncio.Transport", transport)  # uvloop's is of no asyncio class
        self._listener.began(self)

    def data_received(self, data: bytes) -> None:
        """Encrypted bytes have arrived."""
        if self._end_due or self._closing:
            return
        self._incoming.write(data)
        if self._protocol is None:
            self._tcp.pause_reading()  # until it has its turn: strangers may not fill the memory
            self._listener.ready(self)
        else:
            self._read()

    def eof_received(self) -> bool:
        """TCP has ended, with or without the alert by which TLS ends; keep it open for what is still to be sent."""
        if self._protocol is not None and not (self._ended or self._closing):
            self._read()
            if not (self._ended or self._closing):
                self._end()
        return self._protocol is not None and not self._tcp.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._closing = True
        self._backlog.clear()
        self._waiting = 0
        if self._protocol is None:
            self._listener.failed(self, None)
        else:
            self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """TCP has enough to send."""
        self._tcp_full = True
        if self._protocol is not None and not self._told_to_pause:
            self._told_to_pause = True
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """TCP takes more."""
        self._tcp_full = False
        self._unread = 0
        self._send_backlog()
        if not self._tcp_full and self._told_to_pause:
            self._told_to_pause = False
            self._protocol.resume_writing()

    # the handshake

    def shake_hands(self) -> None:
        """Go on with the handshake, by what has arrived of it."""
        if self._protocol is not None or self._closing:
            return
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            self._tcp.resume_reading()
            return
        except ssl.SSLError as error:
            self._flush()  # the alert
            self._closing = True
            self._tcp.close()
            self._listener.failed(self, error)
            return
        self._flush()
        protocol = self._listener.succeeded(self)
        if protocol is None:
            self.close()
            return
        self.set_protocol(protocol)
        self._tcp.resume_reading()
        protocol.connection_made(self)
        self._read()

    # reading

    def _read(self) -> None:
        """Decrypt what has arrived, and hand it on."""
        incoming, tls = self._incoming, self._ssl
        try:
            while self._takes_more and (incoming.pending or tls.pending()):
                if not self._decrypt():
                    self._end()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            self._flush()  # the alert
            self._closing = True
            self._tcp.close()
            return
        if self._outgoing.pending:
            self._flush_answers()

    @property
    def _takes_more(self) -> bool:
        """Whether the protocol is to be handed what arrives."""
        return self._reading and not (self._ended or self._end_due or self._closing)

    def _decrypt_bytes(self) -> bool:
        """Hand all records that have arrived to the protocol at once; False if the last one ends TLS."""
        incoming, read = self._incoming, self._ssl.read
        data = last = read(_RECORD_BYTES)
        if incoming.pending and last:
            pieces = [data]
            try:
                while incoming.pending and last:
                    last = read(_RECORD_BYTES)
                    pieces.append(last)
            except ssl.SSLWantReadError:
                pass
            data = b"".join(pieces)
        if data:
            self._protocol.data_received(data)
        return bool(last)

    def _decrypt_into_buffer(self) -> bool:
        """Decrypt into the protocol's buffer what it has room for; False if the last record ends TLS."""
        incoming, tls = self._incoming, self._ssl
        buffer = self._protocol.get_buffer(-1)
        size, filled, taken = len(buffer), 0, 1
        try:
            while filled < size and taken and (incoming.pending or tls.pending()):
                taken = cast("int", tls.read(size - filled, buffer[filled:]))
                filled += taken
        except ssl.SSLWantReadError:
            pass
        if filled:
            self._protocol.buffer_updated(filled)
        return bool(taken)

    def _end(self) -> None:
        """The client sends no more."""
        self._ended = True
        if not self._protocol.eof_received():
            self.close()

    # what the protocol calls

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand what is decrypted from now on to this protocol."""
        self._protocol = protocol
        buffered = isinstance(protocol, asyncio.BufferedProtocol)
        self._decrypt = self._decrypt_into_buffer if buffered else self._decrypt_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What TCP tells of the connection, and `ssl_object`."""
        return self._ssl if name == "ssl_object" else self._tcp.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Hand nothing on until `resume_reading`."""
        self._reading = False
        self._tcp.pause_reading()

    def resume_reading(self) -> None:
        """Hand on what arrives; what has arrived already, in a turn of the loop of its own."""
        self._reading = True
        self._tcp.resume_reading()
        self._loop.call_soon(self._read)

    def write(self, data: Buffer) -> None:
        """Send these bytes."""
        if self._end_due or self._closing:
            return
        if self._tcp_full or self._backlog or len(data) > _BURST_BYTES:
            self.writelines((data,))
        else:
            self._ssl.write(data)
            self._tcp.write(self._outgoing.read())

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send these, one after the other; they must not change until they are sent."""
        if self._end_due or self._closing:
            return
        for data in list_of_data:
            self._backlog.append(memoryview(data))
            self._waiting += len(data)
        self._send_backlog()

    def _send_backlog(self) -> None:
        """Encrypt and send what waits, as far as TCP takes it."""
        backlog = self._backlog
        while backlog and not self._tcp_full:
            piece = backlog.popleft()
            if len(piece) > _BURST_BYTES:
                backlog.appendleft(piece[_BURST_BYTES:])
                piece = piece[:_BURST_BYTES]
            self._waiting -= len(piece)
            self._ssl.write(piece)
            self._tcp.write(self._outgoing.read())
        if self._end_due and not backlog:
            self._send_end()

    def _flush(self) -> None:
        """Send what TLS itself has to say."""
        self._tcp.write(self._outgoing.read())

    def _flush_answers(self) -> None:
        """Send what the client has had TLS say, unless it asks for more and more and reads none of it."""
        if self._tcp_full:
            self._unread += self._outgoing.pending
            if self._unread > UNREAD_BYTES:
                self.abort()
                return
        self._flush()

    def get_write_buffer_size(self) -> int:
        """Bytes that were written and that the socket has not taken."""
        return self._waiting + self._tcp.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how many bytes may wait before the protocol is told to pause."""
        self._tcp.set_write_buffer_limits(high, low)

    def can_write_eof(self) -> bool:
        """Whether the client may be told that nothing more comes, while it is still read."""
        return True

    def write_eof(self) -> None:
        """Tell the client, after all that was written, that nothing more comes; what it still sends is thrown away."""
        if not self._end_due:
            self._end_due = True
            if not self._backlog:
                self._send_end()

    def close(self) -> None:
        """Close once all that was written is sent."""
        self._closing = True
        if self._protocol is None or (self._end_due and not self._backlog):
            self._tcp.close()
        else:
            self.write_eof()

    def _send_end(self) -> None:
        with suppress(ssl.SSLError):  # the client has not ended its side yet, which nobody waits for
            self._ssl.unwrap()
        self._flush()
        if self._closing:
            self._tcp.close()
        else:
            self._tcp.write_eof()

    def abort(self) -> None:
        """Break the connection off."""
        self._closing = True
        self._tcp.abort()

    def is_closing(self) -> bool:
        """Whether the connection closes, or is closed."""
        return self._closing or self._tcp.is_closing()
