"""One request's way through containers: what the first answers is what the second is asked, and so on.

    client ─▶ step 1 ─▶ container 1 ─▶ step 2 ─▶ container 2 ─▶ … ─▶ client

A body is passed on as it comes, a window at a time: whoever reads slowly slows down whoever writes. The first container
that does not answer with 2xx ends the passage; its response says which one it was.
"""

from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Protocol

from halimede.hosting.containers.counts import ContainerCounts
from halimede.hosting.containers.heads import (
    REQUEST_HEADS,
    RESPONSE_HEADS,
    error_headers,
    failure_headers,
)
from halimede.hosting.http.request import Request
from halimede.http1.upstream import ResponseHead, UpstreamConnection, UpstreamPool

_TEXT_BYTES = 16_384
"""So much of what a container says of an error is passed on."""

_BAD_GATEWAY = 502


class InvokedContainer(Protocol):
    """A container, as requests know it."""

    @property
    def name(self) -> str:
        """What tells it from the others."""

    @property
    def pool(self) -> UpstreamPool:
        """Connections to it."""

    @property
    def counts(self) -> ContainerCounts:
        """What is counted of its requests."""


Connect = Callable[["Step"], None]
"""Has `Step.connect` run."""


class Step:
    """One container's part of a passage (`ResponseSink`). Lives on the event loop.

    Attributes:
        container: the container.
        is_fed: all of its request's body is there.
        is_over: it waits for nothing any more.
        response: the head of the response; None before there is one.
        since_ns: when the request was sent, on the monotonic clock; 0 before.
    """

    __slots__ = (
        "_chunked",
        "_connection",
        "_head",
        "_held",
        "_number",
        "_passage",
        "_text",
        "container",
        "is_fed",
        "is_over",
        "response",
        "since_ns",
    )

    def __init__(self, container: InvokedContainer, passage: "Passage", number: int) -> None:
        self.container = container
        self.is_over = False
        self.response: ResponseHead | None = None
        self.since_ns = 0
        self._passage = passage
        self._number = number
        self._connection: UpstreamConnection | None = None
        self._head = b""
        self._chunked = False
        self._held: list[bytes] = []
        self.is_fed = False
        self._text: bytearray | None = None

    # the request

    def open(self, head: bytes, *, chunked: bool) -> None:
        """Send a request, of whose body there is what `feed` was given before."""
        self._head, self._chunked = head, chunked
        connection = self.container.pool.idle()
        if connection is not None:
            self.connected(connection)
        else:
            self._passage.connect(self)

    def connected(self, connection: UpstreamConnection) -> None:
        """There is a connection."""
        if self.is_over:
            connection.close()
            return
        self._connection = connection
        self.since_ns = monotonic_ns()
        self.container.counts.invocations += 1
        body = b"".join(self._held)
        self._held.clear()
        connection.send(self._head, body, self, complete=self.is_fed, chunked=self._chunked)
        if not self.is_fed:
            self._passage.wants(self._number)

    def feed(self, data: bytes, *, complete: bool) -> None:
        """Send more of the body; `complete` if that is the rest."""
        if self.is_over:  # it has answered without having read all
            return
        self.is_fed = complete
        if self._connection is None:
            self._held.append(data)
        else:
            self._connection.write(data, complete=complete)

    @property
    def takes_more(self) -> bool:
        """Whether more of the body may be sent now."""
        return self._connection is not None and not self._connection.write_paused and not self.is_over

    def request_writable(self) -> None:
        """The container has read what was sent."""
        self._passage.wants(self._number)

    # the response

    def pause(self) -> None:
        """Read no more of the response for now."""
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """Read on."""
        if self._connection is not None:
            self._connection.resume()

    def response_whole(self, head: ResponseHead, data: bytes) -> None:
        """The whole response is there."""
        self._answered(head.status)
        self.response = head
        if 200 <= head.status < 300:
            self._passage.whole(self._number, head, data)
        else:
            self._passage.refused(self._number, head, data)

    def response_begun(self, head: ResponseHead) -> None:
        """The head of the response is there."""
        self.response = head
        if 200 <= head.status < 300:
            self._passage.begun(self._number, head)
        else:
            self._text = bytearray()

    def response_data(self, data: bytes) -> None:
        """Some of the response's body."""
        if self._text is None:
            self._passage.data(self._number, data)
        else:
            self._text += data[: _TEXT_BYTES - len(self._text)]

    def response_ended(self) -> None:
        """The response is complete."""
        response = self.response
        assert response is not None
        self._answered(response.status)
        if self._text is None:
            self._passage.ended(self._number)
        else:
            self._passage.refused(self._number, response, bytes(self._text))

    async def connect(self) -> None:
        """Open a connection to the container."""
        try:
            connection = await self.container.pool.connect()
        except OSError as error:
            self.response_failed(f"the container accepts no connection ({error.strerror or error})")
        except Exception as error:  # whoever asks must hear of it
            self.response_failed(f"the container cannot be connected to: {error!r}")
            raise
        else:
            self.connected(connection)

    def response_failed(self, reason: str) -> None:
        """There is no response, or no more of it."""
        if not self.is_over:
            self._over()
            self.container.counts.failed()
            self._passage.failed(self._number, reason)

    def _answered(self, status: int) -> None:
        self._over()
        self.container.counts.answered(status, monotonic_ns() - self.since_ns)

    def _over(self) -> None:
        self.is_over = True
        self._connection = None

    def give_up(self) -> None:
        """Nobody wants the response any more."""
        connection, self._connection = self._connection, None
        self.is_over = True
        if connection is not None:
            connection.give_up()


class Passage:
    """A request on its way through containers. Lives on the event loop."""

    def __init__(
        self,
        request: Request,
        containers: Sequence[InvokedContainer],
        connect: Connect,
        on_done: "Callable[[Passage], None]",
    ) -> None:
        """A passage that has not begun.

        Args:
            request: the request.
            containers: those that it is to pass through, in their order.
            connect: opens a connection to a step's container.
            on_done: called when it has been answered, or nobody waits any more.
        """
        self.connect = connect
        self._request = request
        self._steps = [Step(container, self, number) for number, container in enumerate(containers)]
        self._on_done = on_done
        self._chunked = False
        self._done = False

    def begin(self) -> None:
        """Send it on its way."""
        request = self._request
        request.on_disconnect = self._disconnected
        complete = request.complete
        if complete:
            body = request.take()
            self._steps[0].feed(body, complete=True)
            self._open(0, None, len(body))
        else:
            self._open(0, None, request.head.length)

    def _open(self, number: int, content_type: str | None, length: int) -> None:
        step = self._steps[number]
        is_last = number + 1 == len(self._steps)
        head = REQUEST_HEADS[self._request.head, content_type, is_last, step.container.pool.address, length]
        step.open(head, chunked=length < 0)

    def fail(self, container: str, reason: str) -> None:
        """End it, as a container has ended."""
        if not self._done:
            self._fail(container, reason)

    # bodies

    def wants(self, number: int) -> None:
        """A step takes more of its request's body."""
        if self._done:
            return
        if number:
            self._steps[number - 1].resume()
        elif not self._steps[0].is_fed:
            self._request.receive(self._pump)
            self._pump()

    def _pump(self) -> None:
        """Pass on what has come of the request's body, unless the first container is slow to take it."""
        first, request = self._steps[0], self._request
        if not self._done and first.takes_more and not first.is_fed:
            complete = request.complete
            first.feed(request.take(), complete=complete)

    def whole(self, number: int, head: ResponseHead, data: bytes) -> None:
        """A step's response came at once."""
        if self._done:
            return
        self._drop_before(number)
        if number + 1 == len(self._steps):
            self._finish()
            self._request.reply(RESPONSE_HEADS[head, False], data)
        else:
            self._steps[number + 1].feed(data, complete=True)
            self._open(number + 1, head.headers.get("content-type", ""), len(data))

    def begun(self, number: int, head: ResponseHead) -> None:
        """A step's response has begun."""
        if self._done:
            return
        if number + 1 < len(self._steps):
            self._open(number + 1, head.headers.get("content-type", ""), head.length)
            return
        request = self._request
        self._chunked = head.length < 0
        request.on_writable = self._steps[number].resume
        request.begin(RESPONSE_HEADS[head, self._chunked])

    def data(self, number: int, data: bytes) -> None:
        """Some of a step's response."""
        if self._done:
            return
        if number + 1 < len(self._steps):
            after = self._steps[number + 1]
            after.feed(data, complete=False)
            if not after.takes_more:
                self._steps[number].pause()
            return
        request = self._request
        request.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        if not request.is_writable:
            self._steps[number].pause()

    def ended(self, number: int) -> None:
        """A step's response is complete."""
        if self._done:
            return
        self._drop_before(number)
        if number + 1 < len(self._steps):
            self._steps[number + 1].feed(b"", complete=True)
            return
        if self._chunked:
            self._request.write(b"0\r\n\r\n")
        self._finish()
        self._request.end()

    def _drop_before(self, number: int) -> None:
        """A container has answered: what it has not read of its request is of no use to it."""
        for step in self._steps[:number]:
            if not step.is_over:
                step.give_up()

    # the end

    def refused(self, number: int, head: ResponseHead, text: bytes) -> None:
        """A container has answered with an error."""
        if self._done:
            return
        self._finish()
        headers = error_headers(self._steps[number].container.name, head)
        if self._request.withdraw():
            self._request.respond(head.status, text[:_TEXT_BYTES], headers)
        else:
            self._request.abort()

    def failed(self, number: int, reason: str) -> None:
        """A container gave no response, or not all of it."""
        if not self._done:
            self._fail(self._steps[number].container.name, reason)

    def _fail(self, container: str, reason: str) -> None:
        self._finish()
        if self._request.withdraw():
            self._request.respond(_BAD_GATEWAY, b"", failure_headers(container, reason))
        else:
            self._request.abort()

    def _disconnected(self) -> None:
        if not self._done:
            self._finish()

    def _finish(self) -> None:
        self._done = True
        for step in self._steps:
            if not step.is_over:
                step.give_up()
        self._on_done(self)
