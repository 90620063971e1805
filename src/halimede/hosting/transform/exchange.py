"""One request of a job to an instance: payloads and answers of any size."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import BinaryIO

from halimede.core.tasks import Tasks
from halimede.hosting.http.call import CallError
from halimede.hosting.http.upstream import ResponseHead, UpstreamConnection
from halimede.hosting.transform.lanes import Lane

_CONNECT_S = 10.0
"""So long an instance may take to accept a connection: its machine may be gone."""

_PIECE_BYTES = 1 << 20
_ANSWER_BYTES = 512 << 20
"""Of an answer that is kept in memory."""

_ERROR_BYTES = 1 << 16
"""Of an answer that is no success."""


class RefusedError(CallError):
    """The instance accepts no connection: it has not got the request."""


class _Answer:
    """Collects an answer (`ResponseSink`).

    Attributes:
        status: such as 200.
        body: what there is of the body.
        done: the answer is complete, or will never be.
        readable: set when there is more of it.
        writable: set when more of the request may be written.
    """

    def __init__(self, connection: UpstreamConnection, *, pauses: bool) -> None:
        """No answer yet; `pauses` stops reading while there is much that nobody has taken."""
        self._connection = connection
        self._pauses = pauses
        self.status = 0
        self.body = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.readable = asyncio.Event()
        self.writable = asyncio.Event()

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def response_whole(self, head: ResponseHead, data: bytes) -> None:
        self.response_begun(head)
        self.response_data(data)
        self.response_ended()

    def response_begun(self, head: ResponseHead) -> None:
        self.status = head.status

    def response_data(self, data: bytes) -> None:
        if not self.is_success:
            self.body += data[: _ERROR_BYTES - len(self.body)]
            return
        self.body += data
        if self._pauses and len(self.body) > _PIECE_BYTES:
            self._connection.pause()
            self.readable.set()
        elif len(self.body) > _ANSWER_BYTES:
            self.fail(f"the answer has more than {_ANSWER_BYTES:,} bytes")

    def response_ended(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
        self._stir()

    def response_failed(self, reason: str) -> None:
        self.fail(reason)

    def fail(self, reason: str) -> None:
        """There will be no answer."""
        if not self.done.done():
            self.done.set_exception(CallError(reason))
        self._stir()

    def request_writable(self) -> None:
        self.writable.set()

    def _stir(self) -> None:
        self.readable.set()
        self.writable.set()


def head_of(lane: Lane, content_type: str, accept: str, length: int | None) -> bytes:
    """The head of a request to ``/invocations``; one without a length comes in chunks."""
    lines = [f"POST /invocations HTTP/1.1\r\nHost: {lane.target.pool.address}\r\n"]
    if content_type:
        lines.append(f"Content-Type: {content_type}\r\n")
    if accept:
        lines.append(f"Accept: {accept}\r\n")
    lines.append("Transfer-Encoding: chunked\r\n" if length is None else f"Content-Length: {length}\r\n")
    return ("".join(lines) + "\r\n").encode("latin-1")


async def exchange(lane: Lane, head: bytes, body: bytes, timeout_s: float) -> tuple[int, bytes]:
    """Send a payload: the status and the body of the answer.

    Raises:
        TimeoutError: there is no answer within the time.
        RefusedError: the instance accepts no connection.
        CallError: there will be none; the text says why.
    """
    async with asyncio.timeout(timeout_s), _answer(lane, pauses=False) as (connection, answer):
        connection.send(head, body, answer, complete=True, chunked=False)
        await answer.done
        return answer.status, bytes(answer.body)


async def exchange_stream(
    lane: Lane, head: bytes, read: Callable[[int], bytes], out: BinaryIO, timeout_s: float
) -> tuple[int, bytes]:
    """Send what `read` gives, in chunks, and write the answer to a file: its status, and the body if it is no success.

    Raises:
        TimeoutError: there is no answer within the time.
        RefusedError: the instance accepts no connection.
        CallError: there will be none; the text says why.
        TransformError: there is nothing to read.
    """
    async with asyncio.timeout(timeout_s), _answer(lane, pauses=True) as (connection, answer):
        async with Tasks() as tasks:
            sending = tasks.submit(_send(connection, answer, head, read))
            while not answer.done.done():
                await answer.readable.wait()
                answer.readable.clear()
                if answer.is_success:
                    data, answer.body = answer.body, bytearray()
                    await asyncio.to_thread(out.write, data)
                    connection.resume()
            if sending.done():
                sending.result()
            answer.done.result()
        if answer.is_success:
            await asyncio.to_thread(out.write, answer.body)
            answer.body.clear()
        return answer.status, bytes(answer.body)


async def _send(
    connection: UpstreamConnection, answer: _Answer, head: bytes, read: Callable[[int], bytes]
) -> None:
    """Send a request in chunks, as fast as the instance reads."""
    try:
        data = await asyncio.to_thread(read, _PIECE_BYTES)
        connection.send(head, data, answer, complete=not data, chunked=True)
        while data and not answer.done.done():
            data = await asyncio.to_thread(read, _PIECE_BYTES)
            while connection.write_paused and not answer.done.done():
                answer.writable.clear()
                await answer.writable.wait()
            connection.write(data, complete=not data)
    except Exception as error:
        answer.fail(str(error))
        raise


@asynccontextmanager
async def _answer(lane: Lane, *, pauses: bool) -> AsyncIterator[tuple[UpstreamConnection, _Answer]]:
    """A connection to an instance, and what is to take its answer, which fails if the instance goes.

    Raises:
        RefusedError: the instance accepts no connection.
    """
    pool = lane.target.pool
    try:
        async with asyncio.timeout(_CONNECT_S):
            connection = pool.idle() or await pool.connect()
    except OSError as error:  # a time that is over is one as well
        why = error.strerror or str(error) or "it does not answer"
        raise RefusedError(f"the instance accepts no connection ({why})") from None
    answer = _Answer(connection, pauses=pauses)

    def lost(_: asyncio.Future[None]) -> None:
        answer.fail("the instance has ended")

    lane.lost.add_done_callback(lost)
    try:
        yield connection, answer
    finally:
        lane.lost.remove_done_callback(lost)
        if not answer.done.done() or answer.done.cancelled() or answer.done.exception() is not None:
            connection.give_up()
            answer.done.cancel()
