"""An event loop in a thread of its own, for tests whose client blocks."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

T = TypeVar("T")


class LoopThread:
    """`with LoopThread() as loop: loop.call(function)` runs it there and returns its result."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="test-loop")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float = 30) -> T:
        """The coroutine's result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout)

    def call(self, function: Callable[..., T], *args: Any, timeout: float = 30) -> T:
        """The function's result; it runs on the loop."""

        async def wrapped() -> T:
            return function(*args)

        return self.run(wrapped(), timeout)
