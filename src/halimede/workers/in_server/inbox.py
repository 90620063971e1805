"""What an instance's threads have the event loop do."""

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any

from halimede_worker.messages.wire import ClosedError


class Inbox:
    """Calls that are made on the loop, in the order in which threads asked for them."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        """To be made on the loop's thread."""
        self._loop = loop
        self._thread = get_ident()
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()

    @property
    def on_loop(self) -> bool:
        """Whether the calling thread is that of the loop."""
        return get_ident() == self._thread

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call it on the loop: at once from the loop itself, but after what was asked for before.

        Raises:
            ClosedError: the loop is closed.
        """
        if get_ident() == self._thread:
            if self._calls:
                self.poll()
            function(*arguments)
            return
        self._calls.append((function, arguments))
        try:
            self._loop.call_soon_threadsafe(self.poll)
        except RuntimeError as error:
            raise ClosedError from error

    def poll(self) -> None:
        """Make the calls that are asked for. On the loop."""
        calls = self._calls
        while calls:
            function, arguments = calls.popleft()
            function(*arguments)
