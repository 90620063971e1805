"""One request of a client: its head, its body as it comes, and the response to it. Lives on the event loop."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Protocol

from halimede.hosting.errors import ApiError
from halimede.hosting.http.held import HeldBody
from halimede.hosting.line_limit import LineLimit
from halimede.http1.head import Head
from halimede.net.receiving import ReceiveBudget

logger = logging.getLogger("halimede")

Headers = Iterable[tuple[str, str]]

_MAX_SHOWN = 128

_failures = LineLimit()

_WITHOUT_LENGTH = (204, 304)
"""Statuses of responses that have no body, and say no length of one (RFC 9110, section 8.6)."""

_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class DisconnectedError(Exception):
    """The client has gone before its request was complete."""


def response_head(status: int, headers: Headers) -> bytes:
    """Status line and headers, without the empty line that ends them.

    Raises:
        ValueError: a header could not be sent as it is.
    """
    lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, 'Unknown')}\r\n"]
    for name, value in headers:
        if "\r" in value or "\n" in value:
            raise ValueError(f"the value of header {name} has a line end: {value!r}")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode("latin-1")


class Connection(Protocol):
    """What a request needs of the connection that it came on."""

    @property
    def client(self) -> str:
        """The client's address."""

    @property
    def from_loopback(self) -> bool:
        """Whether the client is on this machine."""

    @property
    def budget(self) -> ReceiveBudget:
        """The memory of bodies that are collected whole."""

    @property
    def write_paused(self) -> bool:
        """Whether the client reads too slowly."""

    def body_wanted(self) -> None:
        """Somebody is there to take the body."""

    def taken(self) -> None:
        """There is room for more of the body."""

    def end_of_head(self) -> bytes:
        """What ends the head of the response."""

    def last_request(self) -> None:
        """Close after the response."""

    def write(self, data: bytes) -> None:
        """Send these bytes."""

    def answered(self, request: "Request") -> None:
        """The response has been written."""

    def abort(self) -> None:
        """Break the connection off."""


class Request:
    """One request and its response.

    Attributes:
        head: request line and headers.
        complete: all of its body has arrived.
        answered: its response has been given, or nobody can get it any more.
        further: header lines of its response beside those that it is given.
        on_disconnect: called when the client has gone before the response was complete.
        on_writable: called when the client has read so much of the response that more may be written.
    """

    __slots__ = (
        "_connection",
        "_head_to_send",
        "_on_body",
        "_pieces",
        "_waiting",
        "answered",
        "begun",
        "complete",
        "further",
        "head",
        "on_disconnect",
        "on_writable",
    )

    def __init__(self, connection: Connection, head: Head) -> None:
        self._connection = connection
        self._pieces: list[bytes] = []
        self._waiting = 0
        self._on_body: Callable[[], None] | None = None
        self._head_to_send: bytes | None = None
        self.head = head
        self.further = b""
        self.complete = False
        self.begun = False
        self.answered = False
        self.on_disconnect: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None

    @property
    def client(self) -> str:
        """The client's address, for logs."""
        return self._connection.client

    @property
    def from_loopback(self) -> bool:
        """Whether the client is on this machine."""
        return self._connection.from_loopback

    # the body

    @property
    def waiting(self) -> int:
        """Bytes of the body that have arrived and have not been taken."""
        return self._waiting

    def take(self) -> bytes:
        """What has arrived of the body and has not been taken yet; makes room for more."""
        pieces = self._pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces = []
        self._waiting = 0
        if not self.complete:
            self._connection.taken()
        return data

    def receive(self, on_body: Callable[[], None]) -> None:
        """Call back whenever more of the body has arrived, or all of it. The client is asked for it if it waits."""
        self._on_body = on_body
        self._connection.body_wanted()

    def hold(self, changed: Callable[[], None]) -> HeldBody:
        """Count the body as one that is collected whole; `changed` is called when it need not wait any more.

        Raises:
            ApiError: there will never be memory for it.
        """
        return HeldBody(self._connection.budget, self.head.length, changed)

    async def read(self, limit: int) -> bytes:
        """The whole body.

        Raises:
            ApiError: it is larger than `limit` bytes (413 ``RequestEntityTooLarge``), or there is no memory for it.
            DisconnectedError: the client has gone.
        """
        if self.head.length > limit:
            raise _too_large(self.head.length, limit)
        if self.complete and self.waiting <= limit:  # it came in one read
            return self.take()
        pieces: list[bytes] = []
        size = 0
        arrived = asyncio.Event()
        held = self.hold(arrived.set)
        self.receive(arrived.set)
        previous, self.on_disconnect = self.on_disconnect, arrived.set
        try:
            while True:
                if held.may_take():
                    complete = self.complete
                    piece = self.take()
                    size += len(piece)
                    if size > limit:
                        raise _too_large(size, limit)
                    pieces.append(piece)
                    held.add(len(piece))
                    if complete:
                        return b"".join(pieces)
                if self.answered:  # the client has gone, or its framing made no sense
                    raise DisconnectedError
                await arrived.wait()
                arrived.clear()
        finally:
            held.close()
            self._on_body, self.on_disconnect = None, previous

    # the response

    def respond(self, status: int, body: bytes = b"", headers: Headers = ()) -> None:
        """Send a whole response; one after the first is dropped.

        Args:
            status: such as 200.
            body: its body; a response to HEAD has the length of it only.
            headers: all but Content-Length and Connection.

        Raises:
            ValueError: a header could not be sent as it is.
        """
        if self.answered or self.begun:
            return
        if status not in _WITHOUT_LENGTH:
            headers = (*headers, ("Content-Length", str(len(body))))
        self.begin(response_head(status, headers))
        if self.head.method != "HEAD" and status not in _WITHOUT_LENGTH:
            self.write(body)
        self.end()

    def reply(self, head: bytes, body: bytes) -> None:
        """Send a whole response; one after the first is dropped.

        Args:
            head: status line and headers as `response_head` makes them, with the body's length.
            body: its body.
        """
        if self.answered or self.begun:
            return
        connection = self._connection
        connection.write(b"".join((head, self.further, connection.end_of_head(), body)))
        self._done()

    def begin(self, head: bytes) -> None:
        """Begin a response; its head goes out with the first of its body.

        Args:
            head: status line and headers as `response_head` makes them, with what says where the body ends.
        """
        if not self.answered:
            self.begun = True
            self._head_to_send = head

    def withdraw(self) -> bool:
        """Take back a response of which nothing has been sent, so that there can be another; False if there is none."""
        if self._head_to_send is None:
            return not self.begun
        self.begun, self._head_to_send = False, None
        return True

    def write(self, data: bytes) -> None:
        """Send some of the response's body, framed as its head says."""
        if self.answered:
            return
        if self._head_to_send is not None:
            data = self._head_to_send + self.further + self._connection.end_of_head() + data
            self._head_to_send = None
        if data:
            self._connection.write(data)

    def last(self) -> None:
        """The connection ends with the response; to be called before its head is sent."""
        self._connection.last_request()

    @property
    def is_writable(self) -> bool:
        """Whether the client has read what was written, but for a window of it."""
        return not self._connection.write_paused

    def end(self) -> None:
        """The response is complete."""
        if self.answered:
            return
        self.write(b"")
        self._done()

    def _done(self) -> None:
        self.begun = self.answered = True
        self.on_disconnect = self.on_writable = self._on_body = None
        self._connection.answered(self)

    def abort(self) -> None:
        """Something went wrong of which the client cannot be told but by breaking the connection off."""
        if not self.answered:
            self.answered = True
            self.on_disconnect = self.on_writable = self._on_body = None
            self._connection.abort()

    def fail(self, error: BaseException) -> None:
        """Log an error that nobody foresaw, and tell the client that something is wrong here."""
        if (more := _failures.admit()) is not None:
            path = self.head.path[:_MAX_SHOWN]
            logger.error("HTTP: %s %s failed%s", self.head.method, path, more, exc_info=error)
        if not self.withdraw():
            self.abort()
        else:
            message = b'{"message":"internal error; the log of the host has the details"}'
            self.respond(500, message, (("Content-Type", "application/json"),))

    # the connection calls

    def arrived(self, data: bytes) -> None:
        """Some of the body has arrived."""
        self._pieces.append(data)
        self._waiting += len(data)

    def body_changed(self) -> None:
        """More of the body is there, or all of it."""
        if self._on_body is not None:
            self._on_body()

    def disconnected(self) -> None:
        """The client has gone, or what it sends makes no sense."""
        self.answered = True
        callback, self.on_disconnect = self.on_disconnect, None
        self.on_writable = self._on_body = None
        if callback is not None:
            callback()


def _too_large(size: int, limit: int) -> ApiError:
    message = f"the body has {size} bytes or more; at most {limit} are allowed"
    return ApiError("RequestEntityTooLargeException", message, 413)
