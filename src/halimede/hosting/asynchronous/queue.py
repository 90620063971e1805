"""The requests of one endpoint: those that wait, in order, and those that are being worked on.

All of them are in the journal. The first of those that wait are here as well; the rest is read when it is wanted, so
that a long queue takes no more memory than a short one.
"""

from collections import deque
from collections.abc import Iterable

from halimede.hosting.asynchronous.journal import Journal
from halimede.hosting.asynchronous.requests import AsyncRequest
from halimede.hosting.identity import EndpointId

_AHEAD = 512
"""So many requests are here at most before they are worked on."""

_AHEAD_BYTES = 16 << 20
"""Their bodies take no more memory than that, or than one of them does."""


class Queue:
    """A queue. Lives on the event loop.

    Attributes:
        running: the requests that are being worked on, by place.
    """

    def __init__(self, endpoint: EndpointId, journal: Journal, kept: int = 0, last: int = 0) -> None:
        """A queue.

        Args:
            endpoint: whose it is.
            journal: where its requests are.
            kept: how many of them there are.
            last: none of those has a greater place.
        """
        self.running: dict[int, AsyncRequest] = {}
        self._endpoint = endpoint
        self._journal = journal
        self._ahead: deque[AsyncRequest] = deque()
        self._ahead_bytes = 0
        self._behind = kept
        self._accepted_to = last
        self._read_to = 0
        self._reading = False

    @property
    def waiting(self) -> int:
        """How many requests nobody works on."""
        return len(self._ahead) + self._behind

    @property
    def first(self) -> AsyncRequest | None:
        """The request that `take` would give."""
        return self._ahead[0] if self._ahead else None

    @property
    def backlog(self) -> int:
        """How many requests there are, those that are being worked on included."""
        return self.waiting + len(self.running)

    def oldest(self) -> float | None:
        """When the oldest request was accepted, as far as that is known here; None if there is none."""
        times = [request.accepted for request in self.running.values()]
        if self._ahead:
            times.append(self._ahead[0].accepted)
        return min(times, default=None)

    def accept(self, request: AsyncRequest) -> None:
        """A request is in the journal."""
        self._accepted_to = request.seq
        if self._behind or self._reading or not self._has_room:
            self._behind += 1
        else:
            self._append(request)

    @property
    def _has_room(self) -> bool:
        return len(self._ahead) < _AHEAD and self._ahead_bytes < _AHEAD_BYTES

    def _append(self, request: AsyncRequest) -> None:
        self._ahead.append(request)
        self._ahead_bytes += len(request.body)
        self._read_to = request.seq

    @property
    def must_read(self) -> bool:
        """Whether requests have to be read before one can be taken."""
        return not self._ahead and self._behind > 0 and not self._reading

    async def read(self) -> None:
        """Read more of those that wait.

        Raises:
            ApiError: they cannot be read.
        """
        self._reading = True
        try:
            found = await self._journal.read(self._endpoint, self._read_to, _AHEAD)
        finally:
            self._reading = False
        for request in found:
            if not self._has_room or request.seq > self._accepted_to:
                return
            if request.seq in self.running:  # it expired before it was read
                self._read_to = request.seq
            else:
                self._append(request)
                self._behind -= 1
        if not found:
            self._behind = 0  # whatever was counted: that was all

    def take(self) -> AsyncRequest | None:
        """The first request of those that are here; it is being worked on from now on."""
        if not self._ahead:
            return None
        request = self._ahead.popleft()
        self._ahead_bytes -= len(request.body)
        self.running[request.seq] = request
        return request

    def take_out(self, request: AsyncRequest) -> bool:
        """Work on a request that is not the first one; False if somebody does already."""
        if request.seq in self.running or request.seq > self._accepted_to:
            return False
        if request.seq > self._read_to:
            self._behind -= 1
        elif request in self._ahead:
            self._ahead.remove(request)
            self._ahead_bytes -= len(request.body)
        else:  # it has just been answered
            return False
        self.running[request.seq] = request
        return True

    def done(self, requests: Iterable[AsyncRequest]) -> None:
        """Requests are not in the journal any more."""
        for request in requests:
            self.running.pop(request.seq, None)

    def clear(self) -> None:
        """Nothing of it is in the journal any more."""
        self._ahead.clear()
        self._ahead_bytes = self._behind = 0
        self.running.clear()
