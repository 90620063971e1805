"""One request on a connection, and its response."""

import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Protocol

import orjson

from halimede.core.memo import Memo
from halimede.core.requests import InferRequest
from halimede.core.tensors import Buffer
from halimede.frontends.http.transport import streaming
from halimede.frontends.http.transport.streaming import ResponseStream
from halimede.frontends.traffic import CLIENT_GONE, Counts
from halimede.http1.head import Head

logger = logging.getLogger("halimede")

Headers = tuple[tuple[str, str], ...]
Reply = tuple[int, Sequence[Buffer], str, Headers]

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_JSON = "application/json"

_LOGGED_PATH = 256
"""Characters of a path that the log shows."""

_LOGGED_REASON = 1024
"""Characters of an error that the log shows; it may quote what the client has sent."""


def _response_head(key: tuple[int, int, str, Headers, str]) -> bytes:
    """The head of a response: of its status, body size, media type, further headers, and connection header."""
    status, size, content_type, headers, connection = key
    text = f"{_STATUS_LINES[status]}Content-Type: {content_type}\r\nContent-Length: {size}\r\n"
    for name, value in headers:
        text += f"{name}: {value}\r\n"
    return (text + connection + "\r\n").encode("latin-1")


_HEADS = Memo(_response_head)
"""`_response_head`, which servers repeat as clients repeat theirs."""


class Connection(streaming.Connection, Protocol):
    """What an exchange needs of its connection."""

    @property
    def counts(self) -> Counts:
        """Where responses are counted, by route and status."""

    @property
    def peer(self) -> str:
        """The client's address, without its port; "" for one at a Unix socket."""

    @property
    def client(self) -> str:
        """The client's address."""

    @property
    def body_began_ns(self) -> int:
        """When the body began to arrive, if it came in pieces; 0 if not, and once the request was handed on."""

    def reply_ready(self, exchange: "Exchange") -> None:
        """The exchange has its reply: send it, and those that waited for it."""

    def reserve(self, exchange: "Exchange", size: int) -> Reply | None:
        """Count what making an answer takes, until it is written; without room, the reply in its place."""

    def stream_ready(self, exchange: "Exchange") -> None:
        """If the exchange's response is a stream, and its turn has come, begin it."""


class Exchange:
    """One request and its response.

    Attributes:
        method: such as ``POST``.
        path: as it was sent, without the query.
        headers: lower-case name → value.
        head: request line and headers; the same object for requests whose heads are equal, most often.
        body: the whole body; whoever holds the view keeps its memory.
        on_disconnect: called when the client has gone before the response; set by the handler.
        closed: the response is given, or nobody can get it any more.
        relayed: another process counts and logs it.
        reserved: bytes that count for a large response that is being made or waits for its turn.
        route: the call that the path means, as metrics name it; "" for none.
        streamed: the body of a response that `stream` began, else None.
    """

    __slots__ = (
        "_connection",
        "body",
        "closed",
        "head",
        "headers",
        "method",
        "on_disconnect",
        "path",
        "relayed",
        "reply",
        "reserved",
        "route",
        "streamed",
    )

    def __init__(self, connection: Connection, head: Head, body: memoryview) -> None:
        self._connection = connection
        self.head = head
        self.method = head.method
        self.path = head.path
        self.headers = head.headers
        self.body = body
        self.on_disconnect: Callable[[], None] | None = None
        self.closed = False
        self.relayed = False
        self.reserved = 0
        self.route = ""
        self.reply: Reply | None = None
        self.streamed: ResponseStream | None = None

    @property
    def query(self) -> str:
        """What follows the question mark of the request's target, as it was sent."""
        return self.head.query

    @property
    def peer(self) -> str:
        """The client's address, without its port; "" for one at a Unix socket."""
        return self._connection.peer

    @property
    def client(self) -> str:
        """The client's address with its port."""
        return self._connection.client

    @property
    def body_began_ns(self) -> int:
        """When the body began to arrive, if it came in pieces; 0 if not, and once the request was handed on."""
        return self._connection.body_began_ns

    @property
    def sent_headers(self) -> Sequence[tuple[str, str]]:
        """Names as they were sent, and values, one for each time that a header is repeated."""
        return self.head.sent

    def respond(
        self,
        status: int,
        parts: Sequence[Buffer] = (),
        content_type: str = _JSON,
        headers: Headers = (),
    ) -> None:
        """Send the response once those before it are sent. A second one, or one too late, is dropped.

        Args:
            status: such as 200.
            parts: what the body consists of; bytes, or views whose `len` is their bytes.
            content_type: its media type.
            headers: further headers. Content-Length and Connection are added.
        """
        if self.closed or self.streamed is not None:
            return
        self.closed = True
        self.on_disconnect = None
        self.reply = (status, parts, content_type, headers)
        self._connection.reply_ready(self)
        if self.relayed:
            return
        status, parts = self.reply[:2]  # which may be a refusal by now
        self._connection.counts[self.route, status] += 1
        if status >= 400:
            self._log_failure(status, parts)

    def stream(self, status: int, content_type: str) -> ResponseStream:
        """Begin a response whose body comes piece by piece; it is sent once those before it are.

        Args:
            status: such as 200.
            content_type: its media type.
        """
        self.streamed = ResponseStream(self._connection, status, content_type, chunked=self.head.chunked)
        if self.closed:
            self.streamed.close()
        else:
            self._connection.stream_ready(self)
        return self.streamed

    def reserve(self, size: int) -> bool:
        """Count the memory of a large response while it is made; if there is none, answer with that: False.

        Args:
            size: bytes of it, and of what it is made of.
        """
        refusal = None if self.closed else self._connection.reserve(self, size)
        if refusal is not None:
            self.respond(*refusal)
        return refusal is None

    def release(self) -> None:
        """Count what `reserve` counted no longer; that the response is sent has the same effect."""
        if self.reserved and not self.closed:
            self._connection.reserve(self, 0)

    def begin(self, request: InferRequest) -> None:
        """The engine is about to run `request` for this exchange: cancel it if the client goes."""
        self.on_disconnect = request.cancel

    def stream_sent(self) -> None:
        """The response that `stream` began is all written."""
        assert self.streamed is not None
        self.closed = True
        if not self.relayed:
            self._connection.counts[self.route, self.streamed.status] += 1

    def lost(self) -> None:
        """The connection is gone before the response was written."""
        if not (self.closed or self.relayed):
            self._connection.counts[self.route, CLIENT_GONE] += 1
        self.closed = True
        if self.streamed is not None:
            self.streamed.close()

    def _log_failure(self, status: int, parts: Sequence[Buffer]) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "HTTP request failed with %d: %s %s from %s: %s",
                status,
                self.method or "?",
                self.path[:_LOGGED_PATH] or "?",
                self._connection.client,
                failure_reason(parts)[:_LOGGED_REASON] or "no reason given",
            )

    def fail(self, error: Exception) -> None:
        """Log an error that nobody foresaw, and tell the client that something is wrong here."""
        logger.error("HTTP: %s %s failed", self.method, self.path, exc_info=error)
        if self.streamed is not None:
            self.streamed.abort()
            return
        self.respond(500, (b'{"error":"internal error; the log of the server has the details"}',))

    def response(self, last: bool) -> tuple[Sequence[Buffer], int]:
        """What to write, and its size; `last` if the connection ends with it."""
        assert self.reply is not None
        status, parts, content_type, headers = self.reply
        size = 0
        for part in parts:
            size += len(part)
        connection = self.head.closing if last else self.head.connection
        head = _HEADS[status, size, content_type, headers, connection]
        if self.method == "HEAD":
            return (head,), len(head)
        return (head, *parts), len(head) + size

    @property
    def reply_size(self) -> int:
        """Bytes of its reply's body."""
        assert self.reply is not None
        return sum(map(len, self.reply[1]))

    @property
    def reply_headers(self) -> Headers:
        """The further headers of its reply."""
        assert self.reply is not None
        return self.reply[3]

    def stream_head(self, last: bool) -> bytes:
        """The head of the response that `stream` began; `last` if the connection ends with it."""
        stream = self.streamed
        assert stream is not None
        coding = "Transfer-Encoding: chunked\r\n" if stream.chunked else ""
        connection = self.head.connection if stream.chunked and not last else self.head.closing
        text = (
            f"{_STATUS_LINES[stream.status]}Content-Type: {stream.content_type}\r\n{coding}{connection}\r\n"
        )
        return text.encode("latin-1")


Handler = Callable[[Exchange], None]
MakeExchange = Callable[[Connection, Head, memoryview], Exchange]


def failure_reason(parts: Sequence[Buffer]) -> str:
    """What the body of an error response says."""
    try:
        return str(orjson.loads(b"".join(parts))["error"])
    except (ValueError, TypeError, KeyError):
        return ""
