"""What an instance in a worker process has under way."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from halimede.backends.batch import DEFERRED, Batch, fail
from halimede.backends.text_counts import TextCounts
from halimede.core.errors import HalimedeError, InternalError
from halimede.core.requests import InferRequest, InferResponse
from halimede_worker.messages.memory import Segment


@dataclass(slots=True)
class Sent:
    """A batch that the worker has.

    Attributes:
        first: the number of its first request.
        batch: the batch.
        segments: where its tensors lie; they are the worker's until it has answered.
        answered: (not decoupled) requests whose response was sent before the execution was over.
    """

    first: int
    batch: Batch
    segments: Sequence[Segment]
    answered: set[InferRequest] | None = None

    def request(self, number: int) -> InferRequest:
        """The request of that number."""
        return self.batch.requests[number - self.first]

    def answer(self, request: InferRequest) -> None:
        """Note that the request's response was sent."""
        if self.answered is None:
            self.answered = set()
        self.answered.add(request)


@dataclass(slots=True)
class Open:
    """A request whose responses come by themselves: of a decoupled model, or not yet answered by its execution.

    Attributes:
        batch: the batch that it ran in.
        request: the request.
        owed: responses that the worker does not know to be taken.
    """

    batch: Batch
    request: InferRequest
    owed: int = 0


def fail_sent(sent: Sent, error: HalimedeError) -> None:
    """Make the error the answer to each request of the batch that has none."""
    fail(sent.batch, error)
    if sent.answered:
        sent.batch.responses = [
            DEFERRED if request in sent.answered else InferResponse(error=error)
            for request in sent.batch.requests
        ]


class WarmUp:
    """The owner of an instance that is being loaded: one batch runs, and whoever runs it waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.finished: asyncio.Future[None] = loop.create_future()
        self._early: dict[InferRequest, InferResponse] = {}
        self._ran = False

    def ran(self, instance: object, batch: Batch) -> None:
        """The execution is over. Requests that are to come again do not."""
        self._ran = True
        for request in batch.rescheduled:
            if batch.send is not None:
                batch.send(request, None, True)
            else:
                self._early[request] = InferResponse()
        self._finish(batch)

    def sent(self, batch: Batch, request: InferRequest, response: InferResponse | None, final: bool) -> None:
        """A response came by itself."""
        if batch.send is not None:
            batch.send(request, response, final)
        elif response is not None:
            self._early[request] = response
            self._finish(batch)

    def returned(self, instance: object, batch: Batch) -> None:
        """The process ended before it began the batch."""
        fail(batch, InternalError("the process ended before it ran the warm-up"))
        self.ran(None, batch)

    def counted(self, instance: object, counts: TextCounts) -> None:
        """Texts of the warm-up do not count."""

    def called(self) -> None:
        """There is no other batch."""

    def changed(self, instance: object) -> None:
        """The process ended; the batch says so."""

    def _finish(self, batch: Batch) -> None:
        if not self._ran or self.finished.done():
            return
        if batch.send is None and not batch.failed:
            batch.responses = [
                self._early.get(request, DEFERRED) if response is DEFERRED else response
                for request, response in zip(batch.requests, batch.responses, strict=True)
            ]
            if DEFERRED in batch.responses:
                return
        self.finished.set_result(None)
