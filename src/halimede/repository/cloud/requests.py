"""Requests to buckets, on an event loop of their own: when the server stops, none is waited for any longer."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from typing import TypeVar

from halimede.core.errors import UnavailableError

T = TypeVar("T")


class Requests:
    """What is asked of buckets. Any thread may use it."""

    def __init__(self) -> None:
        self._stopped = False
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._serve, name="halimede-buckets", daemon=True).start()

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def run(self, request: Callable[[], Awaitable[T]]) -> T:
        """The result of what is called and awaited on the loop. Blocks.

        Raises:
            UnavailableError: the server is stopping.
            Exception: what the request raises.
        """

        async def answer() -> T:
            if self._stopped:
                raise asyncio.CancelledError
            return await request()

        try:
            return asyncio.run_coroutine_threadsafe(answer(), self._loop).result()
        except CancelledError:
            raise UnavailableError("Server is stopping, models are no longer fetched") from None

    def stop(self) -> None:
        """End what is under way, and whatever is asked from now on."""
        self._stopped = True
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    def close(self) -> None:
        """End the loop, when nobody asks for anything any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
