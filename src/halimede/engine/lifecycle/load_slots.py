"""How many versions load at once, with those left out that themselves wait for a load."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType


class LoadSlots:
    """So many loads at once; `async with` is one of them. Lives on the event loop.

    A model may load others while it is being loaded. It needs no slot while it waits for them, or all slots could be
    taken by models that wait for one. When it goes on, more loads than slots may run for a while.
    """

    def __init__(self, count: int) -> None:
        self._slots = asyncio.Semaphore(count)
        self._excess = 0

    async def __aenter__(self) -> None:
        await self._slots.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._excess:
            self._excess -= 1
        else:
            self._slots.release()

    @asynccontextmanager
    async def stand_aside(self) -> AsyncIterator[None]:
        """Let another load have the caller's slot meanwhile."""
        self._leave()
        try:
            yield
        finally:
            if self._slots.locked():
                self._excess += 1
            else:
                await self._slots.acquire()  # which is there, so this does not wait
