"""One copy, from its job to what has become of it. Lives on the event loop of the process that sends copies."""

import asyncio
from collections.abc import Callable
from time import monotonic_ns

from halimede.core.tasks import Tasks
from halimede.hosting.shadows.answers import Answer
from halimede.hosting.shadows.frames import Job
from halimede.http1.upstream import ResponseHead, UpstreamConnection, UpstreamPool

OnSent = Callable[["Sending"], None]

_WRITTEN_BYTES = 1 << 18


class Sending:
    """A copy that is being sent (`ResponseSink`).

    Attributes:
        job: what was asked for.
        status: the instance's; 0 for no answer.
        refused: the instance accepted no connection, or broke off before it answered.
        model_ns: from when it was sent until the answer was complete.
        answer: with success, if it is wanted and small enough.
    """

    __slots__ = (
        "_body",
        "_connection",
        "_data",
        "_head",
        "_is_answered",
        "_on_sent",
        "_sent_ns",
        "_size",
        "_timer",
        "answer",
        "answer_bytes",
        "job",
        "model_ns",
        "primary",
        "refused",
        "status",
    )

    def __init__(self, job: Job, data: bytes, answer_bytes: int, on_sent: OnSent) -> None:
        """A copy that has not begun.

        Args:
            job: it.
            data: its body, and behind that the primary's answer.
            answer_bytes: a larger answer is read, and not kept.
            on_sent: called once, when it is over.
        """
        self.job = job
        self.status = 0
        self.refused = False
        self.model_ns = 0
        self.answer: Answer | None = None
        self.answer_bytes = answer_bytes
        self.primary = None if job.answer is None else Answer(job.answer, data[job.body_bytes :])
        self._body = data[: job.body_bytes] if job.body_bytes < len(data) else data
        self._data: list[bytes] | None = None
        self._size = 0
        self._sent_ns = 0
        self._is_answered = False
        self._on_sent: OnSent | None = on_sent
        self._connection: UpstreamConnection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._head: ResponseHead

    def begin(self, pool: UpstreamPool) -> None:
        """Send it, on a connection that is free or a new one."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.job.timeout_s, self._expire)
        connection = pool.idle()
        if connection is not None:
            self._send(connection)
        else:
            _CONNECTING.start("sending a copy to a shadow variant", self._connect(pool))

    async def _connect(self, pool: UpstreamPool) -> None:
        try:
            connection = await pool.connect()
        except OSError:
            self.refused = True
            self._end(0)
            return
        except Exception:
            self._end(0)
            raise
        if self._on_sent is None:
            connection.close()
        else:
            self._send(connection)

    def _send(self, connection: UpstreamConnection) -> None:
        self._connection = connection
        self._sent_ns = monotonic_ns()
        body = self._body
        connection.send(
            self.job.head, body[:_WRITTEN_BYTES], self, complete=len(body) <= _WRITTEN_BYTES, chunked=False
        )
        if len(body) > _WRITTEN_BYTES:
            connection.write(body[_WRITTEN_BYTES:], complete=True)

    # the instance answers

    def response_whole(self, head: ResponseHead, data: bytes) -> None:
        """The whole answer came at once."""
        self.response_begun(head)
        self.response_data(data)
        self.response_ended()

    def response_begun(self, head: ResponseHead) -> None:
        """The head of the answer is there."""
        self._head = head
        self._is_answered = True
        if (self.primary is not None or self.job.returns) and 200 <= head.status < 300:
            self._data = []

    def response_data(self, data: bytes) -> None:
        """Some of the body."""
        if self._data is None:
            return
        self._size += len(data)
        if self._size > self.answer_bytes:
            self._data = None
        else:
            self._data.append(data)

    def response_ended(self) -> None:
        """The answer is complete."""
        if self._data is not None:
            self.answer = Answer(self._head.headers, b"".join(self._data))
        self._end(self._head.status)

    def response_failed(self, reason: str) -> None:
        """There is no answer, or no more of it."""
        self.refused = not self._is_answered
        self._end(0)

    def request_writable(self) -> None:
        """All has been written at once."""

    def _expire(self) -> None:
        if self._connection is not None:
            self._connection.give_up()
        self._end(0)

    def _end(self, status: int) -> None:
        on_sent, self._on_sent = self._on_sent, None
        if on_sent is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._connection = None
        self._body = b""
        self.status = status
        self.model_ns = monotonic_ns() - self._sent_ns if self._sent_ns else 0
        on_sent(self)


_CONNECTING = Tasks()
