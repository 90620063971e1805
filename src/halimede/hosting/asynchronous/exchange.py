"""One request to an instance whose body and response may be as large as the disk has room for."""

import asyncio
import errno
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import BinaryIO

from halimede.core import tasks
from halimede.hosting.http.upstream import ResponseHead, UpstreamConnection, UpstreamPool

_PIECE_BYTES = 1 << 20


class RefusedError(Exception):
    """The instance accepts no connection: it has not got the request."""


class BrokenError(Exception):
    """The instance broke off before it had answered, or answered with what is no HTTP."""


class OversizedError(Exception):
    """The response is larger than it may be."""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response.

    Attributes:
        status: such as 200.
        headers: by lower-case name.
        body: its bytes, or a file that whoever gets it removes.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes | Path


async def exchange(
    pool: UpstreamPool,
    headers: Mapping[str, str],
    body: bytes | Path,
    directory: Path,
    *,
    timeout_s: float,
    connect_s: float,
    memory_bytes: int,
    limit: int,
) -> Response:
    """Invoke an instance.

    Args:
        pool: connections to it.
        headers: those of the request but for the length.
        body: the request's body, or its file.
        directory: where a large response goes.
        timeout_s: how long it may take to answer.
        connect_s: how long it may take to accept a connection.
        memory_bytes: a larger response goes to a file.
        limit: how large the response may be.

    Raises:
        RefusedError: it accepts no connection.
        BrokenError: it gave no whole response.
        OversizedError: the response is too large.
        TimeoutError: the response was not complete in time.
    """
    connection = pool.idle() or await _connect(pool, connect_s)
    collected = _Collected(connection, directory, memory_bytes, limit)
    timer = asyncio.get_running_loop().call_later(timeout_s, collected.time_out)
    try:
        if isinstance(body, bytes):
            head = _head(pool.address, headers, len(body))
            connection.send(head, body, collected, complete=True, chunked=False)
        else:
            await _send_file(connection, pool.address, headers, body, collected)
        await collected.done
    except BaseException:
        connection.give_up()
        await asyncio.shield(collected.discard())
        raise
    finally:
        timer.cancel()
    return await collected.response()


async def _connect(pool: UpstreamPool, connect_s: float) -> UpstreamConnection:
    try:
        async with asyncio.timeout(connect_s):
            return await pool.connect()
    except OSError as error:  # a time that is over is one as well
        raise RefusedError(f"{error.strerror or str(error) or 'it does not answer'}") from None


def _head(address: str, headers: Mapping[str, str], length: int) -> bytes:
    lines = [f"POST /invocations HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n"]
    lines += [f"{name}: {value}\r\n" for name, value in headers.items()]
    return ("".join(lines) + "\r\n").encode("latin-1")


async def _send_file(
    connection: UpstreamConnection,
    address: str,
    headers: Mapping[str, str],
    path: Path,
    collected: "_Collected",
) -> None:
    """Send the head and a file, until all is sent or the response is there."""
    with await tasks.opened(FileIO, path) as file:
        size = os.fstat(file.fileno()).st_size
        data = await asyncio.to_thread(file.read, _PIECE_BYTES)
        left = size - len(data)
        connection.send(_head(address, headers, size), data, collected, complete=not left, chunked=False)
        while left and not collected.done.done():
            data = await asyncio.to_thread(file.read, min(_PIECE_BYTES, left))
            if not data:
                raise OSError(errno.EIO, "the input's file is shorter than it was")
            while connection.write_paused and not collected.done.done():
                await collected.move()
            left -= len(data)
            if not collected.done.done():
                connection.write(data, complete=not left)


class _Collected:
    """Collects a response (`ResponseSink`).

    Attributes:
        done: done when the response is complete, or has failed.
    """

    def __init__(
        self, connection: UpstreamConnection, directory: Path, memory_bytes: int, limit: int
    ) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._moved: asyncio.Event | None = None
        self._connection = connection
        self._directory = directory
        self._memory_bytes = memory_bytes
        self._left = limit
        self._head: ResponseHead | None = None
        self._pieces: list[bytes] = []
        self._held = 0
        self._file: BufferedWriter | BinaryIO | None = None
        self._path: Path | None = None
        self._saving: asyncio.Task[None] | None = None

    def response_whole(self, head: ResponseHead, data: bytes) -> None:
        self.response_begun(head)
        self.response_data(data)
        self.response_ended()

    def response_begun(self, head: ResponseHead) -> None:
        self._head = head

    def response_data(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self._end(OversizedError())
            return
        self._pieces.append(data)
        self._held += len(data)
        if self._held > self._memory_bytes and self._saving is None:
            self._connection.pause()
            self._saving = tasks.start("writing a large answer to disk", self._save_some())

    async def _save_some(self) -> None:
        try:
            await self._save()
        except Exception as error:  # nobody else would end the exchange
            self._end(error)
        self._saving = None
        if not self.done.done():
            self._connection.resume()

    async def _save(self) -> None:
        """Write to the file what is held."""
        pieces, self._pieces, self._held = self._pieces, [], 0
        await asyncio.to_thread(self._write, pieces)

    def _write(self, pieces: list[bytes]) -> None:
        if self._file is None:
            descriptor, name = tempfile.mkstemp(prefix="result-", dir=self._directory)
            self._path = Path(name)
            self._file = os.fdopen(descriptor, "wb")
        self._file.writelines(pieces)

    def response_ended(self) -> None:
        self._end(None)

    def response_failed(self, reason: str) -> None:
        self._end(BrokenError(reason))

    def time_out(self) -> None:
        """The response is not complete in time."""
        self._end(TimeoutError())

    def _end(self, error: Exception | None) -> None:
        self._tell()
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)

    def request_writable(self) -> None:
        self._tell()

    async def move(self) -> None:
        """Return when the instance has read some of the request, or the response is complete or has failed."""
        self._moved = asyncio.Event()
        await self._moved.wait()

    def _tell(self) -> None:
        if self._moved is not None:
            self._moved.set()

    async def response(self) -> Response:
        """The response, which is complete.

        Raises:
            OSError: its file cannot be written.
        """
        assert self._head is not None
        if self._saving is not None:
            await asyncio.wait([self._saving])
        if self._file is None:
            body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            return Response(self._head.status, self._head.headers, body)
        try:
            await self._save()
            await asyncio.to_thread(self._file.close)
        except OSError:
            await self.discard()
            raise
        assert self._path is not None
        return Response(self._head.status, self._head.headers, self._path)

    async def discard(self) -> None:
        """Remove the file, if there is one."""
        if self.done.done() and not self.done.cancelled():
            self.done.exception()  # nobody may have asked
        if self._saving is not None:
            await asyncio.wait([self._saving])
        if self._file is not None and self._path is not None:
            with suppress(OSError):
                self._file.close()
            self._path.unlink(missing_ok=True)
