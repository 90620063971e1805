"""Compressed messages while they are decompressed: off the loop, and counted against the memory for bodies."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from contextlib import suppress

from halimede.frontends.grpc.transport.call import Call
from halimede.frontends.grpc.transport.compression import Inflater
from halimede.frontends.receiving import ReceiveBudget, ReceiveError, Reception

Done = Callable[[memoryview], None]


class Inflation:
    """One message. What it has become counts for as long as anybody uses it."""

    def __init__(
        self,
        budget: ReceiveBudget,
        inflater: Inflater,
        call: Call,
        done: Done,
        failed: Callable[[Exception], None],
    ) -> None:
        """Begin.

        Args:
            budget: counts the memory.
            inflater: decompresses the message.
            call: whose message it is; once it is closed, nothing more is decompressed.
            done: gets the content.
            failed: gets the error if there is none: the inflater's, or the budget's.
        """
        self._budget = budget
        self._inflater = inflater
        self._call = call
        self._done = done
        self._failed = failed
        self._reception: Reception | None = budget.open(self, -1)
        self._waits = False
        self._working = False
        self._refused: ReceiveError | None = None
        self._go_on()

    def _go_on(self) -> None:
        self._working = True
        work = asyncio.get_running_loop().run_in_executor(None, self._inflater.step)
        work.add_done_callback(self._stepped)

    def _stepped(self, work: asyncio.Future[int]) -> None:
        self._working = False
        error = work.exception() or self._refused
        if self._reception is None or self._call.closed:
            self.cancel()
        elif isinstance(error, Exception):
            self.cancel()
            self._failed(error)
        else:
            self._reception.add(work.result())
            if self._inflater.complete:
                self.cancel()
                content = self._inflater.take()
                self._keep(content)
                self._done(content)
            elif not self._waits:
                self._go_on()

    def cancel(self) -> None:
        """Decompress nothing more."""
        if self._reception is not None:
            self._reception.close()
            self._reception = None  # which refers to this

    def _keep(self, content: memoryview) -> None:
        owner = content.obj
        if isinstance(owner, bytes):  # at most a piece
            return
        size, budget, loop = len(content), self._budget, asyncio.get_running_loop()

        def release() -> None:  # on whatever thread
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(budget.release, size)

        budget.keep(size)
        weakref.finalize(owner, release).atexit = False

    # the budget calls

    @property
    def may_send(self) -> bool:
        """No client is waited for."""
        return False

    def hold_back(self) -> None:
        """Decompress no more until `go_on`."""
        self._waits = True

    def go_on(self) -> None:
        """Decompress the next piece."""
        self._waits = False
        if not self._working and self._reception is not None:
            self._go_on()

    def refuse_body(self, error: ReceiveError) -> None:
        """Give the message up."""
        self._refused = error
        if not self._working and self._reception is not None:
            self.cancel()
            self._failed(error)
