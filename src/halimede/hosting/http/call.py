"""One small request to an instance, and its whole answer."""

import asyncio

from halimede.hosting.http.upstream import ResponseHead, UpstreamConnection, UpstreamPool

_MAX_BYTES = 1 << 20
"""Of an answer, so much is kept."""


class CallError(Exception):
    """There is no answer; the text says why."""


class _Answer:
    """Collects an answer (`ResponseSink`)."""

    def __init__(self) -> None:
        self.status = 0
        self.body = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def response_whole(self, head: ResponseHead, data: bytes) -> None:
        self.response_begun(head)
        self.response_data(data)
        self.response_ended()

    def response_begun(self, head: ResponseHead) -> None:
        self.status = head.status

    def response_data(self, data: bytes) -> None:
        self.body += data[: _MAX_BYTES - len(self.body)]

    def response_ended(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def response_failed(self, reason: str) -> None:
        if not self.done.done():
            self.done.set_exception(CallError(reason))

    def request_writable(self) -> None:
        pass


async def call(
    pool: UpstreamPool,
    method: str,
    path: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    timeout_s: float = 60.0,
) -> tuple[int, bytes]:
    """Ask an instance: status and body of its answer.

    Raises:
        CallError: it gave none within the time.
    """
    lines = [f"{method} {path} HTTP/1.1\r\nHost: {pool.address}\r\nContent-Length: {len(body)}\r\n"]
    lines += [f"{name}: {value}\r\n" for name, value in (headers or {}).items()]
    head = ("".join(lines) + "\r\n").encode("latin-1")
    connection: UpstreamConnection | None = None
    try:
        async with asyncio.timeout(timeout_s):
            connection = pool.idle() or await pool.connect()
            answer = _Answer()
            connection.send(head, body, answer, complete=True, chunked=False)
            await answer.done
    except TimeoutError:
        if connection is not None:
            connection.give_up()
        raise CallError(f"no answer to {method} {path} within {timeout_s:g} seconds") from None
    except OSError as error:
        raise CallError(f"the instance accepts no connection ({error.strerror or error})") from None
    except asyncio.CancelledError:
        if connection is not None:
            connection.give_up()
        raise
    return answer.status, bytes(answer.body)
