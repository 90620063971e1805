"""Messages from a model's threads to the event loop."""

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident

from halimede.workers.channel import Message
from halimede_worker.messages.memory import Announced, Memory
from halimede_worker.messages.wire import Channel, ClosedError


class Mailbox(Channel):
    """Takes messages on any thread, and hands them on, on the loop, in that order. On the loop it does so at once."""

    def __init__(self, loop: AbstractEventLoop, thread: int, deliver: Callable[[Message], None]) -> None:
        """Hand messages on to `deliver`; `thread` is that of the loop."""
        self.memory = _NO_MEMORY
        self._loop = loop
        self._thread = thread
        self._deliver = deliver
        self._messages: deque[Message] = deque()
        self._closed = False

    def send(self, message: Message, fresh: Sequence[Announced] = (), descriptor: int = -1) -> None:
        """Hand on a message.

        Raises:
            ClosedError: nobody takes any more.
        """
        if self._closed:
            raise ClosedError
        if get_ident() == self._thread:
            if self._messages:
                self.poll()
            self._deliver(message)
            return
        self._messages.append(message)
        try:
            self._loop.call_soon_threadsafe(self.poll)
        except RuntimeError as error:  # the loop is closed
            raise ClosedError from error

    def sibling(self, deliver: Callable[[Message], None]) -> "Mailbox":
        """Another one for the same loop."""
        return Mailbox(self._loop, self._thread, deliver)

    def poll(self) -> None:
        """Hand on what is waiting. To be called on the loop."""
        messages = self._messages
        while messages:
            self._deliver(messages.popleft())

    def close(self) -> None:
        """Take no more; what is waiting is lost."""
        self._closed = True
        self._messages.clear()


_NO_MEMORY = Memory()
