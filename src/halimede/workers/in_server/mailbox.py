"""Messages from a model's threads to the event loop."""

from collections.abc import Callable, Sequence

from halimede.workers.channel import Message
from halimede.workers.in_server.inbox import Inbox
from halimede_worker.messages.memory import Announced, Memory
from halimede_worker.messages.wire import Channel, ClosedError


class Mailbox(Channel):
    """Takes messages on any thread, and hands them on, on the loop, in that order. On the loop it does so at once."""

    def __init__(self, inbox: Inbox, deliver: Callable[[Message], None]) -> None:
        """Hand messages on to `deliver`."""
        self.memory = _NO_MEMORY
        self._inbox = inbox
        self._deliver = deliver
        self._closed = False

    def send(self, message: Message, fresh: Sequence[Announced] = (), descriptor: int = -1) -> None:
        """Hand on a message.

        Raises:
            ClosedError: nobody takes any more.
        """
        if self._closed:
            raise ClosedError
        self._inbox.post(self._take, message)

    def poll(self) -> None:
        """Hand on what is waiting. To be called on the loop."""
        self._inbox.poll()

    def close(self) -> None:
        """Take no more; what is waiting is lost."""
        self._closed = True

    def _take(self, message: Message) -> None:
        if not self._closed:
            self._deliver(message)


_NO_MEMORY = Memory()
