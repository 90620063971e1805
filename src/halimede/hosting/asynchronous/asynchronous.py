"""Asynchronous inference: all of it, put together."""

import asyncio
import logging
import shutil
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import count
from pathlib import Path

import orjson

from halimede.core import tasks
from halimede.core.clock import WALL_CLOCK
from halimede.hosting.asynchronous.acceptance import BODY_BYTES, accepted, parameters_of, too_large
from halimede.hosting.asynchronous.dependencies import Dependencies
from halimede.hosting.asynchronous.journal import Journal
from halimede.hosting.asynchronous.meter import NOTIFICATION_FAILURES, AsyncMeter
from halimede.hosting.asynchronous.queue import Queue
from halimede.hosting.asynchronous.requests import AsyncRequest, Notice
from halimede.hosting.asynchronous.settings import AsyncSettings
from halimede.hosting.asynchronous.work import EndpointWork
from halimede.hosting.each_second import EachSecond
from halimede.hosting.errors import ApiError, invalid_invocation
from halimede.hosting.http.request import Request
from halimede.hosting.identity import EndpointId, Scope
from halimede.hosting.metering.store import MetricStore
from halimede.hosting.request_ids import new_request_id
from halimede.hosting.routing.answers import answer_error
from halimede.hosting.routing.invocations import operation_of
from halimede.hosting.routing.table import EndpointRoute, RoutingTable
from halimede.hosting.store.objects import Objects

logger = logging.getLogger("halimede")

_EXPIRED_AT_A_TIME = 500
_AGAIN_S = 1.0
_TOLD_AT_A_TIME = 64

Publish = Callable[[Notice], Awaitable[None]]
"""Gives a message to its topic; raises an ApiError if there is none, or it cannot be kept. A message that has been
given before is left alone."""


class Asynchronous:
    """The queues of all asynchronous endpoints. Lives on the event loop."""

    def __init__(
        self,
        path: Path,
        table: RoutingTable,
        objects_of: Callable[[str], Objects],
        store_of: Callable[[Scope], MetricStore],
        publish: Publish,
        settings: AsyncSettings = AsyncSettings(),  # noqa: B008 - never changes
        now: Callable[[], float] = WALL_CLOCK.now,
        system_time: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Nothing is accepted before `start`.

        Args:
            path: the file of the queues; beside it is a directory for what is too large for memory.
            table: the endpoints that take requests.
            objects_of: the objects of an account.
            store_of: the metrics of an account and region.
            publish: gives messages to topics.
            settings: limits.
            now: the time, in seconds since 1970, by which requests expire.
            system_time: the time of metrics.
            sleep: lets so many seconds pass.
        """
        self._table = table
        self._journal = Journal(path)
        self._directory = path.with_name(f"{path.stem}-results")
        self._publish = publish
        self._now = now
        self._system_time = system_time
        self._sleep = sleep
        self._meter = AsyncMeter(store_of)
        self._dependencies = Dependencies(
            self._journal, objects_of, self._directory, self._meter, settings, now, sleep, self._tell
        )
        self._works: dict[EndpointId, EndpointWork] = {}
        self._places = count(1)
        self._recovered = 0
        self._notices: deque[Notice] = deque()
        self._telling: asyncio.Task[None] | None = None
        self._ticking = EachSecond("asynchronous inference", self.tick)
        self._is_open = False

    # coming and going

    async def open(self, endpoints: Iterable[EndpointId]) -> None:
        """Read what was there before.

        Args:
            endpoints: those that there are; the requests of others are dropped.

        Raises:
            DatabaseError: the file cannot be used.
        """
        await self._journal.open()
        await asyncio.to_thread(_empty, self._directory)
        self._recovered = await self._journal.last()
        self._places = count(self._recovered + 1)
        there = set(endpoints)
        for endpoint, kept in (await self._journal.counts()).items():
            if endpoint in there:
                self._works[endpoint] = self._make(endpoint, kept)
            else:
                self._journal.drop(endpoint, _ignore)
        self._notices.extend(await self._journal.notices())
        self._table.listeners.append(self.pump)
        self._is_open = True
        self._tell_on()
        self.pump()

    async def start(self, endpoints: Iterable[EndpointId]) -> None:
        """Read what was there before, and go on with it; as `open`."""
        await self.open(endpoints)
        self._ticking.start()

    async def stop(self) -> None:
        """Accept nothing more, and leave what has not been answered to the next process."""
        if not self._is_open:
            return
        self._is_open = False
        self._table.listeners.remove(self.pump)
        await self._ticking.stop()
        await tasks.cancel(self._telling)
        await asyncio.gather(*(work.stop() for work in self._works.values()))
        self.flush()
        await self._journal.close()

    def forget(self, endpoint: EndpointId) -> None:
        """An endpoint is gone, and its requests with it."""
        work = self._works.pop(endpoint, None)
        if work is not None:
            if work.queue.backlog:
                logger.warning(
                    "endpoint '%s' is gone, and %d requests with it", endpoint.name, work.queue.backlog
                )
            work.drop()
        if self._is_open:
            self._journal.drop(endpoint, _ignore)

    def backlogs(self) -> Mapping[EndpointId, int]:
        """Endpoint → how many of its requests have been accepted and not been answered."""
        return {endpoint: work.queue.backlog for endpoint, work in self._works.items()}

    @property
    def is_telling(self) -> bool:
        """Whether there are messages that their topics have not got yet."""
        return self._telling is not None

    def pump(self) -> None:
        """Begin with whatever there is room for: where requests go has changed."""
        for work in self._works.values():
            work.pump()

    def _make(self, endpoint: EndpointId, kept: int = 0) -> EndpointWork:
        queue = Queue(endpoint, self._journal, kept, self._recovered)
        return EndpointWork(
            endpoint, queue, lambda: self._table.find(*endpoint), self._dependencies, self._recovered
        )

    # requests

    async def handle(self, request: Request, scope: Scope, body: bytes | None = None) -> None:
        """Answer InvokeEndpointAsync.

        Args:
            request: the client's, whose path is of that operation.
            scope: whose endpoint is meant.
            body: its whole body, if it has been read already.
        """
        try:
            kept = await self._accept(request, scope, body)
        except ApiError as error:
            answer_error(request, error)
            return
        headers = [
            ("Content-Type", "application/json"),
            ("x-amzn-RequestId", new_request_id()),
            ("X-Amzn-SageMaker-OutputLocation", kept.output),
        ]
        if kept.failure:
            headers.append(("X-Amzn-SageMaker-FailureLocation", kept.failure))
        request.respond(202, orjson.dumps({"InferenceId": kept.id}), headers)

    async def _accept(self, request: Request, scope: Scope, body: bytes | None) -> AsyncRequest:
        head = request.head
        if head.method != "POST":
            raise ApiError("MethodNotAllowed", f"{head.path} takes POST, not {head.method}", 405)
        name, _ = operation_of(head.path)
        parameters = parameters_of(head, name)
        route = self._find(scope, name)
        if body is None:
            if head.length > BODY_BYTES:
                raise too_large(head.length)
            body = await request.read(BODY_BYTES + 1)
        if len(body) > BODY_BYTES:
            raise too_large(len(body))
        if not self._is_open:
            raise ApiError("ServiceUnavailable", "the host is being stopped; try again", 503)
        kept = accepted(parameters, body, route, next(self._places), self._now())
        await self.keep(kept)
        return kept

    def _find(self, scope: Scope, name: str) -> EndpointRoute:
        route = self._table.find(*scope, name)
        if route is None:
            raise invalid_invocation(f"Endpoint {name} of account {scope.account} not found.")
        return route

    async def keep(self, request: AsyncRequest) -> None:
        """Have a request on disk and in its queue.

        Raises:
            ApiError: it cannot be kept.
        """
        written: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()

        def on_written(error: ApiError | None) -> None:
            if error is None:  # also if nobody waits any more
                self._enqueue(request)
            if not written.done():
                written.set_result(error)

        self._journal.add(request, on_written)
        error = await written
        if error is not None:
            raise error

    def _enqueue(self, request: AsyncRequest) -> None:
        work = self._works.get(request.endpoint)
        if work is None:
            work = self._works[request.endpoint] = self._make(request.endpoint)
        work.queue.accept(request)
        work.pump()

    # messages

    def _tell(self, notice: Notice) -> None:
        self._notices.append(notice)
        self._tell_on()

    def _tell_on(self) -> None:
        if self._telling is None and self._notices and self._is_open:
            self._telling = tasks.start("telling topics of requests", self._tell_all())

    async def _tell_all(self) -> None:
        try:
            while self._notices:
                some = [self._notices.popleft() for _ in range(min(len(self._notices), _TOLD_AT_A_TIME))]
                told = await asyncio.gather(*(self._tell_one(notice) for notice in some))
                left = [notice for notice, is_told in zip(some, told, strict=True) if not is_told]
                if left:
                    self._notices.extendleft(reversed(left))
                    await self._sleep(_AGAIN_S)
        finally:
            self._telling = None

    async def _tell_one(self, notice: Notice) -> bool:
        """Whether a message is its topic's, or never will be."""
        try:
            await self._publish(notice)
        except ApiError as error:
            if error.status >= 500:  # it could not be written
                logger.error("topic %s: %s", notice.topic, error.message)
                return False
            logger.warning("topic %s is told nothing: %s", notice.topic, error.message)
            self._meter.count(notice.endpoint, notice.variant, NOTIFICATION_FAILURES)
        except Exception:  # of one message, and the log has what nobody foresaw
            logger.exception("topic %s is not told yet", notice.topic)
            return False
        self._journal.forget(notice, _ignore)
        return True

    # time

    async def tick(self) -> None:
        """What is done each second: count, and give up what has waited for too long."""
        now = self._now()
        for route in self._table.routes():
            if route.asynchronous is not None:
                self._count(route.id, now)
        self._meter.flush(self._system_time())
        running = sum(len(work.queue.running) for work in self._works.values())
        for request in await self._journal.expired(now, _EXPIRED_AT_A_TIME + running):
            work = self._works.get(request.endpoint)
            if work is not None:
                work.expire(request)

    def _count(self, endpoint: EndpointId, now: float) -> None:
        work = self._works.get(endpoint)
        if work is None:
            work = self._works[endpoint] = self._make(endpoint)
        oldest = work.queue.oldest()
        age = 0.0 if oldest is None else max(now - oldest, 0.0)
        self._meter.backlog(endpoint, work.queue.backlog, work.instances, age, self._system_time())

    def flush(self) -> None:
        """Put into the store what was counted up to now."""
        self._meter.flush(self._system_time())


def _empty(directory: Path) -> None:
    """Have an empty directory: what was in it is another process's, which has ended."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)


def _ignore(error: ApiError | None) -> None:
    """A change that is made again at the next start, if it was not made."""
    if error is not None:
        logger.error("%s", error.message)
