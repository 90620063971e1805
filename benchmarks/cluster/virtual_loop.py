"""An event loop whose time is virtual: it never waits, and goes straight to what is due next.

The code that runs on it is the real one: tasks, timers and timeouts are asyncio's own, and see `loop.time()`.
"""

import asyncio
import selectors
import time
from array import array
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

MIDNIGHT = 1_700_006_400.0
"""When virtual time begins, in seconds since 1970: 2023-11-15 00:00 UTC."""


class StalledError(Exception):
    """Nothing is due any more, and what was to be run has not ended."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits.

    Attributes:
        turns_ns: how much processor time each turn of the loop took, without what would run on other threads.
        elsewhere_ns: how much that was in this turn.
    """

    def __init__(self) -> None:
        """A loop at time 0."""
        self._virtual = 0.0
        self.turns_ns = array("q")
        self.elsewhere_ns = 0
        super().__init__(_Skipping(self))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual

    def now_ns(self) -> int:
        """The virtual monotonic clock."""
        return int(self._virtual * 1e9)

    def wall_time(self) -> float:
        """The virtual time of day, in seconds since 1970."""
        return MIDNIGHT + self._virtual

    def advance(self, seconds: float) -> None:
        """Be later."""
        self._virtual += seconds

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Arguments], Result], *args: *Arguments
    ) -> asyncio.Future[Result]:
        """What would run on another thread runs at once: real time does not count here."""
        future: asyncio.Future[Result] = self.create_future()
        began_ns = time.thread_time_ns()
        try:
            result = func(*args)
        except Exception as error:  # whoever waits for it is told
            future.set_exception(error)
        else:
            future.set_result(result)
        self.elsewhere_ns += time.thread_time_ns() - began_ns
        return future


class _Skipping(selectors.BaseSelector):
    """Moves the loop's time on instead of waiting; nothing ever becomes readable."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._began_ns = time.thread_time_ns()
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """End a turn of the loop, and go to the time of the next one."""
        if timeout is None:
            raise StalledError("nothing is due any more")
        loop = self._loop
        loop.turns_ns.append(time.thread_time_ns() - self._began_ns - loop.elsewhere_ns)
        loop.elsewhere_ns = 0
        if timeout > 0:
            self._loop.advance(timeout)
        self._began_ns = time.thread_time_ns()
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Remember a file, such as the loop's own socket; nothing comes of it."""
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Forget a file."""
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """The files."""
        return self._keys

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        """What is remembered of a file."""
        return self._keys[fileobj]

    def close(self) -> None:
        """Forget the files."""
        self._keys.clear()


def run(work: Callable[[VirtualLoop], Coroutine[Any, Any, Result]]) -> Result:
    """Run something on a virtual loop of its own: its result.

    Raises:
        StalledError: it waits for what will never be.
    """
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work(loop))
    finally:
        loop.close()
