"""One request to a server and its response, of any size each.

An `Exchange` sends a request and gives its response as it comes; `call` sends a small one and collects the response. A
request is never sent twice: whether a server that broke off had begun with it cannot be known.
"""

import asyncio
import errno
import os
from collections.abc import Callable, Mapping
from io import FileIO
from pathlib import Path
from types import MappingProxyType
from typing import Self

from halimede.core import tasks
from halimede.http1.upstream import ResponseHead, UpstreamConnection, UpstreamPool, why_refused

_PIECE_BYTES = 1 << 20
"""Of a body that is read from a file; and so much of a response may wait to be taken."""

_CONNECT_S = 10.0
"""So long a server may take to accept a connection: its machine may be gone."""

_CALL_BYTES = 1 << 20

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})

Reader = Callable[[int], bytes]
"""A function that blocks, and returns at most so many of the next bytes of a body; b"" at its end."""

Body = bytes | Path | Reader
"""The body of a request: bytes; a file; or what reads it, which is sent in chunks."""


class CallError(Exception):
    """No complete response was received; the text says why."""


class RefusedError(CallError):
    """The server accepts no connection: it has not got the request.

    Attributes:
        why: such as "Connection refused".
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"it accepts no connection ({why})")
        self.why = why


def request_head(method: str, target: str, host: str, headers: Mapping[str, str], length: int) -> bytes:
    """The head of a request.

    Args:
        method: such as POST.
        target: path and query.
        host: the value of the header Host.
        headers: all others but those that say where the body ends.
        length: of the body; -1 for one in chunks.
    """
    lines = [f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n"]
    lines += [f"{name}: {value}\r\n" for name, value in headers.items()]
    lines.append("Transfer-Encoding: chunked\r\n\r\n" if length < 0 else f"Content-Length: {length}\r\n\r\n")
    return "".join(lines).encode("latin-1")


class Exchange:
    """A request, which is sent at the begin of a block of code, and its response (`ResponseSink`).

    A response that is not complete at the end of the block is given up with its connection. No more is read from the
    connection while a megabyte of the response waits to be taken.

    Attributes:
        status: such as 200; 0 until the head of the response is there.
        headers: of the response, by lower-case name.
        complete: the whole response is there.
    """

    def __init__(
        self,
        pool: UpstreamPool,
        method: str,
        target: str,
        headers: Mapping[str, str] = _NO_HEADERS,
        body: Body = b"",
        connect_s: float = _CONNECT_S,
        timeout_s: float | None = None,
    ) -> None:
        """Nothing is sent yet.

        Args:
            pool: connections to the server.
            method: such as POST.
            target: path and query.
            headers: all but Host and those that say where the body ends.
            body: the body.
            connect_s: how long the server may take to accept a connection.
            timeout_s: how long it may take from then on until the response is complete. Whoever waits for the response
                gets a `TimeoutError` then.
        """
        self.status = 0
        self.headers: Mapping[str, str] = _NO_HEADERS
        self.complete = False
        self._pool = pool
        self._request = (method, target, headers)
        self._request_body = body
        self._connect_s = connect_s
        self._timeout_s = timeout_s
        self._connection: UpstreamConnection
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        self._paused = False
        self._error: Exception | None = None
        self._readable: asyncio.Future[None] | None = None  # somebody waits for more of the response
        self._writable: asyncio.Future[None] | None = None  # somebody waits to send more of the request

    # the caller calls

    async def __aenter__(self) -> Self:
        """Send the request, or begin to, if it is not in memory.

        Raises:
            RefusedError: the server accepts no connection.
        """
        body = self._request_body
        head = self._head(len(body)) if isinstance(body, bytes) else b""
        self._connection = self._pool.idle() or await self._connect()
        if self._timeout_s is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._timeout_s, self.fail, TimeoutError())
        if isinstance(body, bytes):
            self._connection.send(head, body, self, complete=True, chunked=False)
        else:
            self._sending = tasks.submit(self._send(body))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            if self._sending is not None:
                await tasks.cancel(self._sending)
        finally:
            if not self.complete:
                self._connection.give_up()

    async def begun(self) -> int:
        """The status, once the head of the response is there.

        Raises:
            CallError: there will be no response.
            TimeoutError: its time is over.
        """
        while not self.status:
            await self._more()
        return self.status

    async def read(self) -> bytes:
        """What has come of the body of the response since it was last read; b"" at its end.

        Raises:
            CallError: there will be no more of it.
            TimeoutError: its time is over.
        """
        while not self._pieces and not self.complete:
            await self._more()
        pieces, self._pieces, self._waiting_bytes = self._pieces, [], 0
        if self._paused:
            self._paused = False
            if not self.complete:  # else the connection is another request's
                self._connection.resume()
        return b"".join(pieces)

    async def body(self, limit: int) -> bytes:
        """The whole body.

        Raises:
            CallError: there is none, or it is larger than `limit`.
            TimeoutError: its time is over.
        """
        pieces: list[bytes] = []
        size = 0
        while piece := await self.read():
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise CallError(f"the response has more than {limit:,} bytes")
        return b"".join(pieces)

    async def beginning(self, limit: int) -> bytes:
        """The first bytes of the body, at most `limit`; the rest of it is read and thrown away.

        Raises:
            CallError: there is no whole response.
            TimeoutError: its time is over.
        """
        found = bytearray()
        while piece := await self.read():
            found += piece[: limit - len(found)]
        return bytes(found)

    def fail(self, error: Exception) -> None:
        """Whoever reads the response gets this error."""
        if not self.complete and self._error is None:
            self._error = error
        _wake(self._readable)
        _wake(self._writable)

    async def _connect(self) -> UpstreamConnection:
        try:
            async with asyncio.timeout(self._connect_s):
                return await self._pool.connect()
        except OSError as error:  # a time that is over is one as well
            raise RefusedError(why_refused(error)) from None

    def _head(self, length: int) -> bytes:
        method, target, headers = self._request
        return request_head(method, target, self._pool.address, headers, length)

    async def _send(self, body: Path | Reader) -> None:
        """Send the request, as fast as the server reads it, unless the response is complete before."""
        try:
            if isinstance(body, Path):
                with await tasks.opened(FileIO, body) as file:
                    await self._send_all(file.read, os.fstat(file.fileno()).st_size)
            else:
                await self._send_all(body, -1)
        except Exception as error:
            self.fail(error)

    async def _send_all(self, read: Reader, left: int) -> None:
        """Send a body that is read piece by piece; `left` is its length, -1 if only its end tells."""
        head = self._head(left)
        chunked, begun, complete = left < 0, False, False
        while not complete:
            data = b""
            if left:
                data = await tasks.on_thread(read, min(left, _PIECE_BYTES) if left > 0 else _PIECE_BYTES)
            if left > 0:
                if not data:
                    raise OSError(errno.EIO, "the file of the request's body is shorter than it was")
                left -= len(data)
            complete = not data if chunked else not left
            if not begun:
                self._connection.send(head, data, self, complete=complete, chunked=chunked)
                begun = True
                continue
            while self._connection.write_paused and not self._over:
                self._writable = asyncio.get_running_loop().create_future()
                await self._writable
            if self._over:
                return
            self._connection.write(data, complete=complete)

    @property
    def _over(self) -> bool:
        return self.complete or self._error is not None

    async def _more(self) -> None:
        """Return when something has come.

        Raises:
            CallError: nothing will come.
        """
        if self._error is not None:
            raise self._error
        self._readable = asyncio.get_running_loop().create_future()
        await self._readable

    # the connection calls

    def response_whole(self, head: ResponseHead, data: bytes) -> None:
        """The whole response has come."""
        self.response_begun(head)
        if data:
            self.response_data(data)
        self.response_ended()

    def response_begun(self, head: ResponseHead) -> None:
        """The head has come."""
        self.status, self.headers = head.status, head.headers
        _wake(self._readable)

    def response_data(self, data: bytes) -> None:
        """Some of the body has come."""
        self._pieces.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > _PIECE_BYTES and not self._paused:
            self._paused = True
            self._connection.pause()
        _wake(self._readable)

    def response_ended(self) -> None:
        """The response is complete."""
        self.complete = True
        _wake(self._readable)
        _wake(self._writable)

    def response_failed(self, reason: str) -> None:
        """There will be no more of it."""
        self.fail(CallError(reason))

    def request_writable(self) -> None:
        """More of the request may be written."""
        _wake(self._writable)


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


async def call(
    pool: UpstreamPool,
    method: str,
    target: str,
    body: bytes = b"",
    headers: Mapping[str, str] = _NO_HEADERS,
    timeout_s: float = 60.0,
    limit: int = _CALL_BYTES,
) -> tuple[int, bytes]:
    """Send a small request: the status of the response, and the first `limit` bytes of its body.

    Raises:
        CallError: there is no whole response within the time.
    """
    try:
        async with asyncio.timeout(timeout_s), Exchange(pool, method, target, headers, body) as response:
            await response.begun()
            return response.status, await response.beginning(limit)
    except TimeoutError:
        raise CallError(f"no answer to {method} {target} within {timeout_s:g} seconds") from None


async def call_once(
    host: str, port: int, method: str, target: str, timeout_s: float, limit: int = _CALL_BYTES
) -> tuple[int, bytes]:
    """`call` over a connection of its own."""
    pool = UpstreamPool(host, port)
    try:
        return await call(pool, method, target, timeout_s=timeout_s, limit=limit)
    finally:
        pool.close()
