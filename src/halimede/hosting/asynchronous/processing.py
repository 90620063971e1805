"""One request, from its input to its result.

    input ─ place at an instance ─ invocation ─ result ─ out of the journal, with the message that tells of it

A request leaves the journal once its result is an object; whatever ends the host before that lets it begin again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from uuid import uuid4

from halimede.hosting.asynchronous.exchange import (
    BrokenError,
    OversizedError,
    RefusedError,
    Response,
    exchange,
)
from halimede.hosting.asynchronous.journal import Journal
from halimede.hosting.asynchronous.meter import DOWNLOAD, IN_BACKLOG, PROCESSING, UPLOAD, AsyncMeter
from halimede.hosting.asynchronous.outcomes import Kind, Outcome, failed, message_of, topic_of
from halimede.hosting.asynchronous.requests import AsyncRequest, Notice
from halimede.hosting.asynchronous.settings import AsyncSettings
from halimede.hosting.asynchronous.slots import FindRoute, Slot, Slots
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import EndpointId
from halimede.hosting.routing.answers import model_error, no_answer, timed_out
from halimede.hosting.routing.heads import CONTAINER
from halimede.hosting.store.objects import Objects

logger = logging.getLogger("halimede")

_TEXT_BYTES = 16_384
"""So much of what an instance says of an error is passed on."""

_WRITE_AGAIN_S = 1.0
_OVERSIZED = 413


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the work on queues needs of the host.

    Attributes:
        journal: where requests are kept.
        objects_of: the objects of an account.
        directory: where large results are before they are written.
        meter: what counts.
        settings: limits.
        now: the time, in seconds since 1970.
        sleep: lets so many seconds pass.
        tell: gives a message, which is in the journal, to its topic.
    """

    journal: Journal
    objects_of: Callable[[str], Objects]
    directory: Path
    meter: AsyncMeter
    settings: AsyncSettings
    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    tell: Callable[[Notice], None]


class InputError(Exception):
    """The input cannot be had."""

    def __init__(self, why: ApiError) -> None:
        super().__init__(why.message)
        self.why = why


class Processing:
    """Processes requests of one endpoint. Lives on the event loop."""

    def __init__(
        self,
        endpoint: EndpointId,
        find_route: FindRoute,
        slots: Slots,
        dependencies: Dependencies,
        recovered: int,
    ) -> None:
        """Processes requests.

        Args:
            endpoint: whose they are.
            find_route: where its requests go now; None if nowhere.
            slots: places at its instances.
            dependencies: what else is needed.
            recovered: requests up to this place were accepted by another process, which may have answered them.
        """
        self._endpoint = endpoint
        self._find_route = find_route
        self._slots = slots
        self._host = dependencies
        self._settings = dependencies.settings
        self._objects = dependencies.objects_of(endpoint.account)
        self._recovered = recovered

    async def outcome(self, request: AsyncRequest) -> Outcome:
        """What becomes of a request; its object is not written yet, unless the outcome says so."""
        if request.seq <= self._recovered:
            found = await self._written(request)
            if found is not None:
                return found
        try:
            async with self._input(request) as (body, headers):
                return await self._invoke(request, body, headers)
        except InputError as error:
            return failed(Kind.NO_INPUT, error.why)
        except OSError as error:
            why = ApiError("InternalFailure", f"a file of the host cannot be written: {error.strerror}", 500)
            return failed(Kind.FAILED, why)

    async def _written(self, request: AsyncRequest) -> Outcome | None:
        """How the request ended, if another process had written that before it was ended itself."""
        if not request.is_named_here:  # the objects may be another request's
            return None
        for url, kind in ((request.output, Kind.COMPLETED), (request.failure, Kind.FAILED)):
            try:
                if url:
                    await self._objects.describe(url)
                    return Outcome(
                        kind, reason="" if kind is Kind.COMPLETED else f"see {url}", is_written=True
                    )
            except ApiError:
                pass  # it is not there, or cannot be asked for
        return None

    # input

    @asynccontextmanager
    async def _input(self, request: AsyncRequest) -> AsyncIterator[tuple[bytes | Path, Mapping[str, str]]]:
        """The request's input, as bytes or as a file if it is large, and the headers that go with it.

        Raises:
            InputError: it cannot be had.
        """
        if not request.source:
            yield request.body, request.headers
            return
        began = self._host.now()
        pauses = iter(self._settings.pauses_s)
        while True:
            async with AsyncExitStack() as stack:
                try:
                    path, headers = await self._fetch(request, stack)
                except ApiError as error:
                    pause = next(pauses, None)
                    if pause is None or error.status == _OVERSIZED:
                        raise InputError(error) from None
                    await self._host.sleep(pause)
                    continue
                small = await asyncio.to_thread(_small, path, self._settings.memory_bytes)
                took = self._host.now() - began
                self._host.meter.took(self._endpoint, self._some_variant(), DOWNLOAD, took)
                yield path if small is None else small, headers
                return

    async def _fetch(self, request: AsyncRequest, stack: AsyncExitStack) -> tuple[Path, Mapping[str, str]]:
        """The file of an input, which is there until the stack is closed, and the headers that go with it.

        Raises:
            ApiError: it cannot be had.
        """
        info = await self._objects.describe(request.source)
        limit = self._settings.input_bytes
        if info.size > limit:
            msg = f"{request.source} has {info.size:,} bytes; it may have {limit:,}"
            raise ApiError("ValidationError", msg, _OVERSIZED)
        path = await stack.enter_async_context(self._objects.file(request.source, self._host.directory))
        headers = request.headers
        if "content-type" not in headers and info.content_type:
            headers = {**headers, "content-type": info.content_type}
        return path, headers

    # instances

    async def _invoke(self, request: AsyncRequest, body: bytes | Path, headers: Mapping[str, str]) -> Outcome:
        """Send the request to an instance, and to another one if that breaks off."""
        attempts = refusals = 0
        while True:
            slot = await self._slots.take()
            name = slot.variant.spec.name
            try:
                if self._host.now() >= request.expires:
                    return expired(request, self._host.now(), name)
                if not attempts:
                    waited = self._host.now() - request.accepted
                    self._host.meter.took(self._endpoint, name, IN_BACKLOG, waited)
                return await self._ask(slot, request, body, headers)
            except RefusedError as error:
                self._leave_alone(slot)
                refusals += 1
                if refusals > self._settings.refusals:
                    why = f"the instance accepts no connection ({error})"
                    return failed(
                        Kind.FAILED, no_answer(slot.route, slot.variant.spec.container_name, why), name
                    )
            except BrokenError as error:
                self._leave_alone(slot)
                attempts += (
                    not slot.target.draining
                )  # an instance that is to go breaks off what takes too long
                if attempts >= self._settings.attempts:
                    why = f"{error}; the request was sent {attempts} times"
                    return failed(
                        Kind.FAILED, no_answer(slot.route, slot.variant.spec.container_name, why), name
                    )
            finally:
                self._slots.give_back(slot)

    def _leave_alone(self, slot: Slot) -> None:
        """Send nothing to an instance for a moment."""
        slot.target.refuses = True

        def accept() -> None:
            slot.target.accept()
            self._slots.grant()

        asyncio.get_running_loop().call_later(self._settings.refusal_s, accept)

    async def _ask(
        self, slot: Slot, request: AsyncRequest, body: bytes | Path, headers: Mapping[str, str]
    ) -> Outcome:
        """What an instance answers.

        Raises:
            RefusedError: it accepts no connection.
            BrokenError: it gave no whole response.
            OSError: the response does not fit on the disk.
        """
        route, variant = slot.route, slot.variant
        name = variant.spec.name
        began, status = monotonic_ns(), 424
        try:
            async with asyncio.timeout(request.timeout_s):
                response = await exchange(
                    slot.target.pool,
                    headers,
                    body,
                    self._host.directory,
                    connect_s=self._settings.connect_s,
                    memory_bytes=self._settings.memory_bytes,
                    limit=self._settings.input_bytes,
                )
            if 200 <= response.status < 300:
                status = 200
                content_type = response.headers.get("content-type", "application/octet-stream")
                return Outcome(Kind.COMPLETED, response.body, content_type, variant=name)
            container = response.headers.get(CONTAINER, variant.spec.container_name)
            error = model_error(route, container, response.status, await _text(response))
            return failed(Kind.FAILED, error, name)
        except TimeoutError:
            return failed(Kind.FAILED, timed_out(route, variant.spec.container_name, request.timeout_s), name)
        except OversizedError:
            text = f"the response is larger than {self._settings.input_bytes:,} bytes"
            return failed(Kind.FAILED, no_answer(route, variant.spec.container_name, text), name)
        except RefusedError:
            status = 0
            raise
        finally:
            if status:
                variant.meter.sent(len(variant.targets))
                variant.meter.ended(status, monotonic_ns() - began, 0, model_error=status != 200)

    # results

    async def answer(self, request: AsyncRequest, outcome: Outcome) -> None:
        """Write the result, keep the message that tells of it, and forget the request."""
        variant = outcome.variant or self._some_variant()
        try:
            outcome = await self._write(request, outcome, variant)
            self._count(request, outcome, variant)
            await self._forget(request, self._notice(request, outcome, variant))
        finally:
            if isinstance(outcome.body, Path):
                await asyncio.shield(asyncio.to_thread(outcome.body.unlink, missing_ok=True))

    async def _write(self, request: AsyncRequest, outcome: Outcome, variant: str) -> Outcome:
        """Write the object: the outcome, or another one if it cannot be written."""
        url = request.output if outcome.is_success else request.failure
        if outcome.is_written or not url:
            return outcome
        began = self._host.now()
        try:
            await self._put(url, outcome)
        except ApiError as error:
            logger.error("endpoint '%s': %s", self._endpoint.name, error.message)
            if not outcome.is_success:
                self._host.meter.count(self._endpoint, variant, Kind.NOT_WRITTEN.value)
                return outcome
            if isinstance(outcome.body, Path):
                await asyncio.to_thread(outcome.body.unlink, missing_ok=True)
            return await self._write(request, failed(Kind.NOT_WRITTEN, error, variant), variant)
        self._host.meter.took(self._endpoint, variant, UPLOAD, self._host.now() - began)
        return outcome

    async def _put(self, url: str, outcome: Outcome) -> None:
        """Write an object, and try again if it cannot be written.

        Raises:
            ApiError: it could not, as often as it was tried.
        """
        pauses = iter(self._settings.pauses_s)
        while True:
            try:
                await self._objects.write(url, outcome.body, outcome.content_type)
            except ApiError:
                pause = next(pauses, None)
                if pause is None:
                    raise
                await self._host.sleep(pause)
            else:
                return

    def _count(self, request: AsyncRequest, outcome: Outcome, variant: str) -> None:
        meter = self._host.meter
        meter.count(self._endpoint, variant, outcome.kind.value)
        if outcome.is_success:
            meter.took(self._endpoint, variant, PROCESSING, self._host.now() - request.accepted)
        else:
            logger.warning(
                "endpoint '%s': request %s failed: %s", self._endpoint.name, request.id, outcome.reason
            )

    def _notice(self, request: AsyncRequest, outcome: Outcome, variant: str) -> Notice | None:
        """The message that is to tell of it; None if no topic wants one."""
        route = self._find_route()
        spec = None if route is None else route.asynchronous
        topic = "" if spec is None else topic_of(spec, outcome)
        if spec is None or not topic:
            return None
        text = message_of(request, outcome, spec, self._host.now())
        return Notice(str(uuid4()), topic, self._endpoint, variant, text)

    async def _forget(self, request: AsyncRequest, notice: Notice | None) -> None:
        """Have it on disk that the request is answered."""
        while True:
            try:
                await self._host.journal.remove(request, notice)
                break
            except ApiError as error:
                logger.error("endpoint '%s': %s", self._endpoint.name, error.message)
                await self._host.sleep(_WRITE_AGAIN_S)
        if notice is not None:
            self._host.tell(notice)

    def _some_variant(self) -> str:
        """For what is counted of a request that no variant has had."""
        route = self._find_route()
        return "" if route is None else next(iter(route.variants))


def expired(request: AsyncRequest, now: float, variant: str = "") -> Outcome:
    """The outcome of a request that has waited for too long."""
    limit = request.expires - request.accepted
    msg = (
        f"The request waited for {now - request.accepted:.0f} seconds, and it may wait for {limit:.0f} "
        f"(RequestTTLSeconds); the endpoint has too few instances, or none"
    )
    return failed(Kind.EXPIRED, ApiError("RequestExpired", msg), variant)


def _small(path: Path, limit: int) -> bytes | None:
    """The bytes of a file, unless it has more than `limit`."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    return data if len(data) <= limit else None


async def _text(response: Response) -> str:
    """The beginning of what an instance says of an error."""
    if isinstance(response.body, bytes):
        return response.body[:_TEXT_BYTES].decode(errors="replace")
    path = response.body

    def read() -> str:
        with path.open("rb") as file:
            text = file.read(_TEXT_BYTES)
        path.unlink(missing_ok=True)
        return text.decode(errors="replace")

    return await asyncio.to_thread(read)
