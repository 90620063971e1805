"""What becomes of requests that are answered.

    outcome ─ object ─ out of the journal, with the message that tells of it

Small results for the host's own store come many at a time: all that are there share one write to the store and one to
the journal. Others are written each by itself, and so is what could not be written at once.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from halimede.core.tasks import Tasks
from halimede.hosting.asynchronous.dependencies import Dependencies
from halimede.hosting.asynchronous.meter import PROCESSING, UPLOAD
from halimede.hosting.asynchronous.outcomes import (
    Kind,
    Outcome,
    error_text,
    failed,
    host_failure,
    message_of,
    topic_of,
)
from halimede.hosting.asynchronous.requests import AsyncRequest, Notice
from halimede.hosting.asynchronous.slots import FindRoute
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import EndpointId
from halimede.hosting.store.records import SmallPut

logger = logging.getLogger("halimede")

_BATCH_RESULTS = 256
_FEW_RESULTS = 4
_GATHER_S = 0.01
"""If more than `_FEW_RESULTS` results are to be written, others are about to come: one write of all costs much less."""

_WRITE_AGAIN_S = 1.0

Answered = tuple[AsyncRequest, Outcome]


class Answers:
    """Writes the answers of one endpoint's requests. Lives on the event loop."""

    def __init__(
        self,
        endpoint: EndpointId,
        find_route: FindRoute,
        dependencies: Dependencies,
        tasks: Tasks,
        on_done: Callable[[Sequence[AsyncRequest]], None],
    ) -> None:
        """Writes answers.

        Args:
            endpoint: whose requests they are.
            find_route: where its requests go now; None if nowhere.
            dependencies: what else is needed.
            tasks: those of the endpoint's requests, which their owner ends.
            on_done: told of requests that are not in the journal any more.
        """
        self._endpoint = endpoint
        self._find_route = find_route
        self._host = dependencies
        self._objects = dependencies.objects_of(endpoint.account)
        self._on_done = on_done
        self._small: deque[tuple[AsyncRequest, Outcome, SmallPut]] = deque()
        self._is_writing = False
        self._tasks = tasks
        self._is_stopped = False

    def add(self, request: AsyncRequest, outcome: Outcome) -> None:
        """A request has an outcome."""
        if self._is_stopped:
            return
        url = _place(request, outcome)
        put = self._objects.small_put(url, outcome.body, outcome.content_type) if url else None
        if put is None:
            self._begin(self._answer(request, outcome))
            return
        self._small.append((request, outcome, put))
        if not self._is_writing:
            self._write_some()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.start(f"answering requests of endpoint '{self._endpoint.name}'", work)

    def stop(self) -> None:
        """Begin to write nothing more. What is not written is asked for again by the next process."""
        self._is_stopped = True
        self._small.clear()

    # small results

    def _write_some(self) -> None:
        self._is_writing = bool(self._small)
        if self._is_writing:
            self._begin(self._answer_together())

    async def _answer_together(self) -> None:
        try:
            if len(self._small) > _FEW_RESULTS:
                await self._host.sleep(_GATHER_S)
            some = [self._small.popleft() for _ in range(min(len(self._small), _BATCH_RESULTS))]
            written = await self._put_together(some)
        finally:
            # the journal is still to be written, but the store need not wait for that
            self._write_some()
        await self._forget(written)

    async def _put_together(
        self, some: Sequence[tuple[AsyncRequest, Outcome, SmallPut]]
    ) -> Sequence[Answered]:
        """Write objects; those of them that are written. The others are tried one by one."""
        began = self._host.now()
        refusals: Sequence[object | None]
        try:
            refusals = await self._objects.write_small([put for _, _, put in some])
        except Exception as error:
            logger.exception("endpoint '%s': cannot write results together", self._endpoint.name)
            refusals = [error] * len(some)
        took = self._host.now() - began
        written: list[Answered] = []
        for (request, outcome, _), refusal in zip(some, refusals, strict=True):
            if refusal is None:
                written.append((request, outcome))
                self._host.meter.took(self._endpoint, self._variant(outcome), UPLOAD, took)
            else:
                self._begin(self._answer(request, outcome))
        return written

    # one by one

    async def _answer(self, request: AsyncRequest, outcome: Outcome) -> None:
        try:
            outcome = await self._write(request, outcome)
            await self._forget([(request, outcome)])
        finally:
            if isinstance(outcome.body, Path):
                await asyncio.shield(asyncio.to_thread(outcome.body.unlink, missing_ok=True))

    async def _write(self, request: AsyncRequest, outcome: Outcome) -> Outcome:
        """Write the object: the outcome, or another one if it cannot be written."""
        url = _place(request, outcome)
        if not url:
            return outcome
        began = self._host.now()
        variant = self._variant(outcome)
        try:
            await self._put(url, outcome)
        except ApiError as error:
            logger.error("endpoint '%s': %s", self._endpoint.name, error.message)
            if not outcome.is_success:
                self._host.meter.count(self._endpoint, variant, Kind.NOT_WRITTEN.value)
                return outcome
            if isinstance(outcome.body, Path):
                await asyncio.to_thread(outcome.body.unlink, missing_ok=True)
            return await self._write(request, failed(Kind.NOT_WRITTEN, error, variant))
        self._host.meter.took(self._endpoint, variant, UPLOAD, self._host.now() - began)
        return outcome

    async def _put(self, url: str, outcome: Outcome) -> None:
        """Write an object, and try again if it cannot be written.

        Raises:
            ApiError: it could not, as often as it was tried.
        """
        pauses = iter(self._host.settings.pauses_s)
        while True:
            try:
                await self._objects.write(url, outcome.body, outcome.content_type)
                return
            except ApiError as error:
                refusal = error
            except Exception as error:  # the log has what nobody foresaw
                logger.exception("endpoint '%s': cannot write %s", self._endpoint.name, url)
                refusal = host_failure(error)
            pause = next(pauses, None)
            if pause is None:
                raise refusal
            await self._host.sleep(pause)

    # the journal

    async def _forget(self, answered: Sequence[Answered]) -> None:
        """Count them, and have it on disk that they are answered."""
        notices = []
        for request, outcome in answered:
            try:
                self._count(request, outcome)
                notice = self._notice(request, outcome)
            except Exception:  # it is answered all the same
                logger.exception(
                    "endpoint '%s': nobody is told of request %s", self._endpoint.name, request.id
                )
                continue
            if notice is not None:
                notices.append(notice)
        requests = [request for request, _ in answered]
        while True:
            try:
                await self._host.journal.remove(requests, notices)
                break
            except Exception as error:  # whatever it is, they would be worked on again by the next process
                text = error_text(error)
                logger.error("endpoint '%s': cannot forget answered requests: %s", self._endpoint.name, text)
                await self._host.sleep(_WRITE_AGAIN_S)
        for notice in notices:
            self._host.tell(notice)
        self._on_done(requests)

    def _count(self, request: AsyncRequest, outcome: Outcome) -> None:
        meter, variant = self._host.meter, self._variant(outcome)
        meter.count(self._endpoint, variant, outcome.kind.value)
        if outcome.is_success:
            meter.took(self._endpoint, variant, PROCESSING, self._host.now() - request.accepted)
        else:
            logger.warning(
                "endpoint '%s': request %s failed: %s", self._endpoint.name, request.id, outcome.reason
            )

    def _notice(self, request: AsyncRequest, outcome: Outcome) -> Notice | None:
        """The message that is to tell of it; None if no topic wants one."""
        route = self._find_route()
        spec = None if route is None else route.asynchronous
        topic = "" if spec is None else topic_of(spec, outcome)
        if spec is None or not topic:
            return None
        text = message_of(request, outcome, spec, self._host.now())
        return Notice(str(uuid4()), topic, self._endpoint, self._variant(outcome), text)

    def _variant(self, outcome: Outcome) -> str:
        """The variant that is counted for; any, if no variant has had the request."""
        return outcome.variant or some_variant(self._find_route)


def _place(request: AsyncRequest, outcome: Outcome) -> str:
    """The URL of the object that is to be written; "" if there is none, or it is there already."""
    if outcome.is_written:
        return ""
    return request.output if outcome.is_success else request.failure


def some_variant(find_route: FindRoute) -> str:
    """For what is counted of a request that no variant has had."""
    route = find_route()
    return "" if route is None else next(iter(route.variants))
