"""Who is told what an instance in a worker process did."""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from halimede.backends.batch import Batch
from halimede.backends.text_counts import TextCounts
from halimede.core.requests import InferRequest, InferResponse

SomeInstance = TypeVar("SomeInstance", contravariant=True)
OneInstance = TypeVar("OneInstance")


class Owner(Protocol[SomeInstance]):
    """Who is told what an instance did: the model. Called on the event loop."""

    def ran(self, instance: SomeInstance, batch: Batch) -> None:
        """An execution is over. A response that is DEFERRED was sent before, or will be."""

    def sent(self, batch: Batch, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """A response came by itself."""

    def returned(self, instance: SomeInstance, batch: Batch) -> None:
        """A batch that was sent was not begun, and will not be."""

    def counted(self, instance: SomeInstance, counts: TextCounts) -> None:
        """A language model told what it has counted."""

    def called(self) -> None:
        """The model called the server while it executed, for the first time in this process."""

    def changed(self, instance: SomeInstance) -> None:
        """The process ended, could not be started again, or runs again."""


class Leaving(Generic[OneInstance]):
    """The owner of an instance that takes no more batches: tells the owner that it had, and when all is over."""

    def __init__(
        self, owner: Owner[OneInstance], loop: asyncio.AbstractEventLoop, is_idle: Callable[[], bool]
    ) -> None:
        self.finished: asyncio.Future[None] = loop.create_future()
        self._owner = owner
        self._is_idle = is_idle

    def look(self) -> None:
        """See whether all is over."""
        if self._is_idle() and not self.finished.done():
            self.finished.set_result(None)

    def ran(self, instance: OneInstance, batch: Batch) -> None:
        """An execution is over."""
        self._owner.ran(instance, batch)
        self.look()

    def sent(self, batch: Batch, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """A response came by itself."""
        self._owner.sent(batch, request, response, final)
        self.look()

    def returned(self, instance: OneInstance, batch: Batch) -> None:
        """A batch that was sent was not begun, and will not be."""
        self._owner.returned(instance, batch)
        self.look()

    def counted(self, instance: OneInstance, counts: TextCounts) -> None:
        """A language model told what it has counted."""
        self._owner.counted(instance, counts)

    def called(self) -> None:
        """The model called the server."""
        self._owner.called()

    def changed(self, instance: OneInstance) -> None:
        """The process ended, whose requests are told next, or runs again: its owner expects nothing of it."""
