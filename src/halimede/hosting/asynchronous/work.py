"""The queue of one endpoint, worked off: inputs are read ahead, instances are kept busy, results are written behind."""

import asyncio
import logging
from collections.abc import Sequence

from halimede.core.tasks import Tasks
from halimede.hosting.asynchronous.answers import Answers
from halimede.hosting.asynchronous.dependencies import Dependencies
from halimede.hosting.asynchronous.outcomes import Kind, Outcome, error_text, failed, host_failure
from halimede.hosting.asynchronous.processing import Processing, expired
from halimede.hosting.asynchronous.queue import Queue
from halimede.hosting.asynchronous.requests import AsyncRequest
from halimede.hosting.asynchronous.slots import FindRoute, Slots
from halimede.hosting.identity import EndpointId

logger = logging.getLogger("halimede")

_READ_AGAIN_S = 1.0


class EndpointWork:
    """Works on the requests of one endpoint. Lives on the event loop.

    Attributes:
        queue: the requests.
    """

    def __init__(
        self,
        endpoint: EndpointId,
        queue: Queue,
        find_route: FindRoute,
        dependencies: Dependencies,
        recovered: int,
    ) -> None:
        """Nothing is done before `pump`.

        Args:
            endpoint: whose requests they are.
            queue: the requests.
            find_route: where the endpoint's requests go now; None if nowhere.
            dependencies: what else is needed.
            recovered: requests up to this place were accepted by another process, which may have answered them.
        """
        self.queue = queue
        self._endpoint = endpoint
        self._find_route = find_route
        self._host = dependencies
        self._slots = Slots(find_route)
        self._processing = Processing(endpoint, find_route, self._slots, dependencies, recovered)
        self._tasks = Tasks()
        self._answers = Answers(endpoint, find_route, dependencies, self._tasks, self._done)
        self._working = 0  # tasks that process requests
        self._capacity = 0  # changes with the routing table only, after which `pump` is called
        self._leaving = 0  # grows with the routing table only
        self._reading: asyncio.Task[None] | None = None
        self._is_stopped = False

    @property
    def instances(self) -> int:
        """How many instances the endpoint has."""
        route = self._find_route()
        return 0 if route is None else sum(len(variant.targets) for variant, _ in route.shares())

    def pump(self) -> None:
        """Begin with as many requests as there is room for: something has changed."""
        if self._is_stopped:
            return
        self._slots.grant()
        self._capacity, self._leaving = self._slots.capacity, self._slots.leaving
        while self._working < self._limit and (request := self._next()) is not None:
            self._working += 1
            what = f"working on requests of endpoint '{self._endpoint.name}'"
            self._tasks.start(what, self._process(request))
        if self.queue.must_read and self._capacity and self._reading is None:
            what = f"reading the queue of endpoint '{self._endpoint.name}'"
            self._reading = self._tasks.start(what, self._read())

    @property
    def _limit(self) -> int:
        """How many requests are processed at a time: some more than instances take, if they have to wait elsewhere."""
        first = self.queue.first
        must_wait = first is None or first.source or not self._slots.has_one_variant
        return self._capacity * (2 if must_wait else 1) + self._leaving

    def _next(self) -> AsyncRequest | None:
        """The next request, if there is room for its result."""
        is_full = len(self.queue.running) >= self._limit + self._host.settings.uploads
        return None if is_full else self.queue.take()

    async def _process(self, request: AsyncRequest | None) -> None:
        """Process a request and those that follow, as a task for each would cost as much as the rest of the work."""
        try:
            while request is not None:
                self._answers.add(request, await self._outcome(request))
                if self._leaving:
                    self._leaving = self._slots.leaving
                request = self._next() if self._working <= self._limit else None
        finally:
            self._working -= 1
        self.pump()

    async def _outcome(self, request: AsyncRequest) -> Outcome:
        """What becomes of a request, which is tried again after an error that nobody foresaw, and fails in the end."""
        pauses = iter(self._host.settings.pauses_s)
        while True:
            try:
                return await self._processing.outcome(request)
            except Exception as error:  # of one request
                logger.exception("endpoint '%s': request %s", self._endpoint.name, request.id)
                pause = next(pauses, None)
                if pause is None:
                    return failed(Kind.FAILED, host_failure(error))
            await self._host.sleep(pause)

    async def _read(self) -> None:
        try:
            await self.queue.read()
        except Exception as error:  # whatever it is, the requests are still there
            logger.error("endpoint '%s': cannot read its queue: %s", self._endpoint.name, error_text(error))
            await self._host.sleep(_READ_AGAIN_S)
        finally:
            self._reading = None
        self.pump()

    def expire(self, request: AsyncRequest) -> None:
        """A request has waited for too long."""
        if self._is_stopped:
            return
        if self.queue.take_out(request):
            what = f"ending a request of endpoint '{self._endpoint.name}' that has expired"
            self._tasks.start(what, self._end(request))
        else:
            self._slots.give_up(request.seq)

    async def _end(self, request: AsyncRequest) -> None:
        """Answer a request that has waited for too long."""
        try:
            outcome = await self._processing.too_late(request)
        except Exception:  # of one request
            logger.exception("endpoint '%s': request %s", self._endpoint.name, request.id)
            outcome = expired(request, self._host.now())
        self._answers.add(request, outcome)

    def _done(self, requests: Sequence[AsyncRequest]) -> None:
        self.queue.done(requests)
        self.pump()

    async def stop(self) -> None:
        """Work no more. What has not been answered is begun again by the next process."""
        self._is_stopped = True
        self._answers.stop()
        await self._tasks.close()

    def drop(self) -> None:
        """The endpoint is gone, and with it all of its requests."""
        self._is_stopped = True
        self._answers.stop()
        self._tasks.cancel()
        self.queue.clear()
