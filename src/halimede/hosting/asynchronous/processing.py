"""One request, from its input to its outcome.

    input ─ place at an instance ─ invocation ─ outcome

A request leaves the journal once its result is an object; whatever ends the host before that lets it begin again.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic_ns

from halimede.hosting.asynchronous.answers import some_variant
from halimede.hosting.asynchronous.dependencies import Dependencies
from halimede.hosting.asynchronous.exchange import OversizedError, Response, exchange
from halimede.hosting.asynchronous.meter import DOWNLOAD, IN_BACKLOG
from halimede.hosting.asynchronous.outcomes import Kind, Outcome, failed
from halimede.hosting.asynchronous.requests import AsyncRequest
from halimede.hosting.asynchronous.slots import FindRoute, Slot, Slots
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import EndpointId
from halimede.hosting.routing.answers import model_error, no_answer, timed_out
from halimede.hosting.routing.heads import CONTAINER
from halimede.http1.client import CallError, RefusedError

_TEXT_BYTES = 16_384
"""So much of what an instance says of an error is passed on."""

_OVERSIZED = 413


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
        found = await self._written(request)
        if found is not None:
            return found
        try:
            if not request.source:
                return await self._invoke(request, request.body, request.headers)
            async with self._input(request) as (body, headers):
                return await self._invoke(request, body, headers)
        except InputError as error:
            return failed(Kind.NO_INPUT, error.why)
        except OSError as error:
            why = ApiError("InternalFailure", f"a file of the host cannot be written: {error.strerror}", 500)
            return failed(Kind.FAILED, why)

    async def too_late(self, request: AsyncRequest) -> Outcome:
        """What becomes of a request that has waited for too long."""
        return await self._written(request) or expired(request, self._host.now())

    async def _written(self, request: AsyncRequest) -> Outcome | None:
        """How the request ended, if another process had written that before it was ended itself."""
        if request.seq > self._recovered or not request.is_named_here:  # the objects may be another request's
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
        """The object that is the input, as bytes or as a file if it is large, and the headers that go with it.

        Raises:
            InputError: it cannot be had.
        """
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
                self._host.meter.took(self._endpoint, some_variant(self._find_route), DOWNLOAD, took)
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
            slot = await self._slots.take(request.seq)
            if slot is None:
                return expired(request, self._host.now())
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
                    why = f"the instance accepts no connection ({error.why})"
                    return failed(
                        Kind.FAILED, no_answer(slot.route, slot.variant.spec.container_name, why), name
                    )
            except CallError as error:
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
        slot.target.refuse(self._settings.refusal_s, self._slots.grant)

    async def _ask(
        self, slot: Slot, request: AsyncRequest, body: bytes | Path, headers: Mapping[str, str]
    ) -> Outcome:
        """What an instance answers.

        Raises:
            RefusedError: it accepts no connection.
            CallError: it gave no whole response.
            OSError: the response does not fit on the disk.
        """
        route, variant = slot.route, slot.variant
        name = variant.spec.name
        began, status = monotonic_ns(), 424
        try:
            response = await exchange(
                slot.target.pool,
                headers,
                body,
                self._host.directory,
                timeout_s=request.timeout_s,
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
