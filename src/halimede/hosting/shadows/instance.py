"""One instance of a shadow variant, as the process that sends copies knows it."""

from collections import deque

from halimede.hosting.shadows.frames import Job
from halimede.hosting.shadows.sending import OnSent, Sending
from halimede.http1.upstream import UpstreamPool


class Instance:
    """The copies for one instance: so many at a time, the others wait. Lives on the event loop."""

    def __init__(self, pool: UpstreamPool, concurrency: int, on_sent: OnSent) -> None:
        """There are none.

        Args:
            pool: connections to it.
            concurrency: how many it is asked at a time.
            on_sent: called with each that is over.
        """
        self._pool = pool
        self._free = concurrency
        self._on_sent = on_sent
        self._waiting: deque[Sending] = deque()

    def add(self, job: Job, data: bytes, answer_bytes: int) -> None:
        """Send a copy, now or when others are over; see `Sending` for the arguments."""
        self._waiting.append(Sending(job, data, answer_bytes, self._sent))
        self._send()

    def _send(self) -> None:
        while self._waiting and self._free > 0:
            self._free -= 1
            self._waiting.popleft().begin(self._pool)

    def _sent(self, sending: Sending) -> None:
        self._free += 1
        self._on_sent(sending)
        self._send()

    def close(self) -> None:
        """Nothing more comes: close connections once they are free."""
        self._pool.close()
