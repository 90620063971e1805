"""Sequences that have ended, of which a worker process is told."""

from asyncio import AbstractEventLoop

from halimede.workers.channel import Channel
from halimede_worker.messages import wire


class EndedSequences:
    """Tells a worker of many sequences by one message, and before the batch that is sent next. Lives on the event loop.

    Attributes:
        pending: those that it was not told of yet: key, correlation id and reason of each.
    """

    __slots__ = ("_loop", "_work", "pending")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.pending: list[tuple[int, int | str, str]] = []
        self._loop = loop
        self._work: Channel | None = None

    def serve(self, work: Channel | None) -> None:
        """Another process is there, which knows of no sequence; None if there is none, or it need not be told."""
        self._work = work
        self.pending = []

    def add(self, key: int, correlation_id: int | str, reason: str) -> None:
        """A sequence has ended."""
        if self._work is not None:
            if not self.pending:  # many may end in one turn of the loop
                self._loop.call_soon(self.tell)
            self.pending.append((key, correlation_id, reason))

    def tell(self) -> None:
        """Tell the process now."""
        ended, self.pending = self.pending, []
        if ended and self._work is not None:
            self._work.send((wire.SEQUENCES_ENDED, ended))
