"""Connections to instances: kept warm, one request at a time on each, bodies passed on as they come.

A request is never sent twice: whether an instance that broke off had begun with it cannot be known.
"""

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from typing import Protocol, cast

import httptools

from halimede.core.memo import Memo
from halimede.http1.chunks import Chunks
from halimede.http1.head import MEMO_HEAD_BYTES, Refusal

_HEAD_BYTES = 65_536
"""Longest head of a response."""

_LAST_CHUNK = b"0\r\n\r\n"

_SEND_BUFFER_BYTES = 2 << 20
"""Of a Unix socket: a large body crosses in fewer steps than with the system's usual 208 KiB."""

_CREDENTIALS = struct.Struct("3i")
"""Process, user and group at the other end (``ucred`` of unix(7))."""


class ResponseHead:
    """Status line and headers of an instance's response.

    Attributes:
        status: such as 200.
        headers: lower-case name → value.
        length: bytes of the body; -1 if only its end tells.
        chunked: the body comes in chunks.
        keep_alive: the connection may be used again.
    """

    __slots__ = ("chunked", "headers", "keep_alive", "length", "status")

    def __init__(self, status: int, headers: Mapping[str, str], version: str) -> None:
        self.status = status
        self.headers = headers
        length = headers.get("content-length", "")
        coding = headers.get("transfer-encoding", "")
        self.chunked = coding.lower() == "chunked"
        if coding and not self.chunked:
            raise ValueError(f"Transfer-Encoding {coding!r} is not supported; use chunked")
        if status in {204, 304}:
            self.length = 0
            self.chunked = False
        elif self.chunked or not length:
            self.length = -1
        elif length.isascii() and length.isdigit():
            self.length = int(length)
        else:
            raise ValueError(f"Content-Length {length!r} is not a number")
        tokens = headers.get("connection", "").lower()
        self.keep_alive = "close" not in tokens and (version == "1.1" or "keep-alive" in tokens)
        if self.length < 0 and not self.chunked:
            self.keep_alive = False


class ResponseSink(Protocol):
    """Who takes the response of an instance. Called on the event loop."""

    def response_whole(self, head: ResponseHead, data: bytes) -> None:
        """The whole response came at once, and the connection is free again: none of the next three is called."""

    def response_begun(self, head: ResponseHead) -> None:
        """The head of the response is there."""

    def response_data(self, data: bytes) -> None:
        """Some of the body."""

    def response_ended(self) -> None:
        """The response is complete; the connection is free again."""

    def response_failed(self, reason: str) -> None:
        """There will be no response, or no more of it; `reason` says why."""

    def request_writable(self) -> None:
        """The instance has read so much that more of the request may be written."""


class _State(Enum):
    IDLE = "nothing"
    HEAD = "the head of a response"
    BODY = "the body of the response"
    CLOSED = "nothing any more"


# an enumeration is asked for its members by a lookup that costs as much as a call
_IDLE, _HEAD, _BODY, _CLOSED = _State


class UpstreamConnection(asyncio.Protocol):
    """One connection to an instance.

    Attributes:
        since: when its request was sent, on the loop's clock.
        write_paused: the instance reads too slowly.
    """

    def __init__(self, pool: "UpstreamPool") -> None:
        self._pool = pool
        self._transport: asyncio.Transport
        self._state = _IDLE
        self._sink: ResponseSink | None = None
        self._held = b""
        self._missing = 0
        self._head: ResponseHead | None = None
        self._chunks: _ResponseChunks | None = None
        self._request_complete = True
        self._chunked_request = False
        self._reading = True
        self.since = 0.0
        self.write_paused = False

    @property
    def is_idle(self) -> bool:
        """Whether it may take a request."""
        return self._state is _IDLE and not self._transport.is_closing()

    # requests

    def send(self, head: bytes, body: bytes, sink: ResponseSink, *, complete: bool, chunked: bool) -> None:
        """Begin a request.

        Args:
            head: the whole head, with what says where the body ends.
            body: what there is of the body.
            sink: takes the response.
            complete: that is all of it.
            chunked: the body goes out in chunks.
        """
        self._sink = sink
        self._state = _HEAD
        self._request_complete = complete
        self._chunked_request = chunked
        if chunked:
            body = _chunk(body) + (_LAST_CHUNK if complete else b"")
        self._transport.write(head + body if body else head)

    def write(self, data: bytes, *, complete: bool) -> None:
        """Send more of the body; `complete` if that is the rest."""
        self._request_complete = complete
        if self._chunked_request:
            data = _chunk(data) + (_LAST_CHUNK if complete else b"")
        if data and self._state is not _CLOSED:
            self._transport.write(data)

    def give_up(self) -> None:
        """Nobody wants the response any more. The connection is closed, which tells the instance so."""
        self._sink = None
        self._close()
        self._transport.abort()

    def pause(self) -> None:
        """Read no more of the response for now."""
        if self._reading and self._state is not _CLOSED:
            self._reading = False
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if not self._reading and self._state is not _CLOSED:
            self._reading = True
            self._transport.resume_reading()

    # the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The instance has accepted."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is of no asyncio class

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        ended_by_close = self._state is _BODY and self._missing < 0 and self._chunks is None and exc is None
        sink, self._sink = self._sink, None
        self._close()
        if sink is None:
            return
        if ended_by_close:
            sink.response_ended()
        else:
            sink.response_failed("the connection was closed before the response was complete")

    def pause_writing(self) -> None:
        """The instance reads too slowly."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """The instance has caught up."""
        self.write_paused = False
        if self._sink is not None:
            self._sink.request_writable()

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""
        try:
            while data:
                if self._state is _HEAD:
                    data = self._receive_head(self._held + data if self._held else data)
                elif self._state is _BODY:
                    data = self._receive_body(data)
                elif self._state is _CLOSED:
                    return
                else:  # a response to no request
                    self._close()
                    self._transport.abort()
                    return
        except (Refusal, ValueError) as error:
            sink, self._sink = self._sink, None
            self._close()
            self._transport.abort()
            if sink is not None:
                sink.response_failed(f"the response is malformed: {error}")

    # responses

    def _receive_head(self, data: bytes) -> bytes:
        end = data.find(b"\r\n\r\n") + 4
        if end < 4:
            if len(data) > _HEAD_BYTES:
                raise ValueError(f"its head is larger than {_HEAD_BYTES} bytes")
            self._held = data
            return b""
        self._held = b""
        text = data[:end]
        head = _HEADS[text] if end <= MEMO_HEAD_BYTES else _parse_head(text)
        if head.status < 200:  # 100 Continue and the like come before the response
            return data[end:]
        sink = self._sink
        assert sink is not None
        length = head.length
        if 0 <= length <= len(data) - end:
            stop = end + length
            rest = data[stop:]
            self._release(head, clean=not rest)
            sink.response_whole(head, data[end:stop])
            return rest
        self._head = head
        self._missing = length
        self._chunks = _ResponseChunks(self) if head.chunked else None
        self._state = _BODY
        sink.response_begun(head)
        return data[end:]

    def _receive_body(self, data: bytes) -> bytes:
        if self._chunks is not None:
            end = self._chunks.feed(data)
            if end < 0:
                return b""
            self._ended(clean=end == len(data))
            return data[end:]
        if self._missing < 0:
            self.body(data)
            return b""
        rest = b""
        if len(data) > self._missing:
            data, rest = data[: self._missing], data[self._missing :]
        self._missing -= len(data)
        self.body(data)
        if not self._missing:
            self._ended(clean=not rest)
        return rest

    def body(self, data: bytes) -> None:
        """Some of the response's body."""
        if self._sink is not None:
            self._sink.response_data(data)

    def _ended(self, *, clean: bool) -> None:
        """The response is complete."""
        sink, head = self._sink, self._head
        if sink is None or head is None:  # given up meanwhile
            return
        self._head = self._chunks = None
        self._release(head, clean=clean)
        sink.response_ended()

    def _release(self, head: ResponseHead, *, clean: bool) -> None:
        """After a response the connection is free if nothing came behind it, and nothing is still to be sent."""
        self._sink = None
        if clean and self._request_complete and head.keep_alive:
            self._state = _IDLE
            if not self._reading:
                self.resume()
            self._pool.free(self)
        else:
            self._close()
            self._transport.abort()  # what it has not read of the request is of no use to it

    def _close(self) -> None:
        self._state = _CLOSED
        self._held = b""
        self._chunks = None
        self._pool.gone(self)

    def close(self) -> None:
        """Close it, idle as it is."""
        self._close()
        self._transport.close()


class UpstreamPool:
    """The connections to one instance.

    Attributes:
        host: where it listens.
        port: where it listens.
        address: what a Host header says: both, unless another is given.
        unix_socket: where it listens as well, @ and a name of Linux's abstract namespace; "" for nowhere.
    """

    def __init__(
        self,
        host: str,
        port: int,
        unix_socket: str = "",
        *,
        address: str = "",
        tls: ssl.SSLContext | None = None,
        certified_name: str | None = None,
    ) -> None:
        """No connection yet.

        Args:
            host: where it listens.
            port: where it listens.
            unix_socket: where it listens as well; "" for nowhere.
            address: what a Host header says; "" for host and port.
            tls: encrypts connections; None for not at all.
            certified_name: the name that its certificate must have; None for the host.
        """
        self.host = host
        self.port = port
        self.unix_socket = unix_socket
        self.address = address or f"{host}:{port}"
        self._tls = tls
        self._certified_name = certified_name
        self._idle: list[UpstreamConnection] = []
        self._closed = False

    def idle(self) -> UpstreamConnection | None:
        """A connection that is open and free, the one that was used last."""
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.is_idle:
                return connection
        return None

    async def connect(self) -> UpstreamConnection:
        """A new connection.

        Raises:
            OSError: the instance does not accept one.
        """
        loop = asyncio.get_running_loop()
        if self.unix_socket:
            with suppress(OSError):
                near = _connected(self.unix_socket)
                _, connection = await loop.create_unix_connection(lambda: UpstreamConnection(self), sock=near)
                return connection
        _, connection = await loop.create_connection(
            lambda: UpstreamConnection(self),
            self.host,
            self.port,
            ssl=self._tls,
            server_hostname=self._certified_name,
        )
        self.unix_socket = ""  # it listens, but not there
        return connection

    def free(self, connection: UpstreamConnection) -> None:
        """The connection may take another request."""
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    def gone(self, connection: UpstreamConnection) -> None:
        """The connection is closed."""
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Close the connections that are free, and the others once they are."""
        self._closed = True
        for connection in list(self._idle):
            connection.close()


def why_refused(error: OSError) -> str:
    """Why `UpstreamPool.connect` has failed, for a text."""
    return error.strerror or str(error) or "it does not answer"


def _connected(unix_socket: str) -> socket.socket:
    """A connection to a process of the same user.

    Raises:
        OSError: nobody listens there, or somebody else.
    """
    made = socket.socket(socket.AF_UNIX)
    try:
        made.setblocking(False)  # it never takes time: either there is room in the queue, or it fails
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        made.connect("\0" + unix_socket[1:])
        _, user, _ = _CREDENTIALS.unpack(
            made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if user != os.geteuid():
            raise PermissionError(f"{unix_socket} is a socket of the user {user}")
    except OSError:
        made.close()
        raise
    return made


class _ResponseChunks(Chunks):
    """A chunked response whose bytes go to its connection's sink."""

    def __init__(self, connection: UpstreamConnection) -> None:
        super().__init__(1 << 62, 1 << 62, _HEAD_BYTES)
        self._connection = connection

    def take(self, piece: memoryview) -> None:
        """Pass it on."""
        self._connection.body(bytes(piece))


class _Collector:
    """What the parser calls."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip(" \t")
        known = self.headers.get(key)
        self.headers[key] = text if known is None else f"{known}, {text}"


def _parse_head(data: bytes) -> ResponseHead:
    collector = _Collector()
    parser = httptools.HttpResponseParser(collector)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        raise ValueError("it changes the protocol") from None
    except httptools.HttpParserError as error:
        raise ValueError(str(error)) from None
    return ResponseHead(parser.get_status_code(), collector.headers, parser.get_http_version())


_HEADS = Memo(_parse_head)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
