"""One place in a variant's fleet: an instance, and the next one when that has ended."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from halimede.core import tasks
from halimede.core.backoff import Backoff
from halimede.hosting.control.settings import Dependencies
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import TRANSFORM_JOBS, EndpointId
from halimede.hosting.routing.table import Target
from halimede.hosting.specs import Variant
from halimede.hosting.substrates.base import ContainerRequest, InstanceRequest, ModelArchive, RunningInstance
from halimede.http1.upstream import UpstreamPool

logger = logging.getLogger("halimede")

_SOON_S = 60.0
"""An instance that ends so soon after it was started is replaced with more patience."""


class _EndedError(ApiError):
    """An instance has ended before it answered; another one may not."""


class Slot:
    """Keeps one instance running. Lives on the event loop.

    Attributes:
        ready: done when its first instance answers; fails with an ApiError if it does not come up, and then whoever
            made the slot retires it.
    """

    def __init__(
        self,
        dependencies: Dependencies,
        endpoint: EndpointId,
        fleet: str,
        variant: Variant,
        archives: Mapping[str, ModelArchive],
        on_joined: Callable[[Target, RunningInstance], None],
        on_left: Callable[[Target], None],
        variables: Mapping[str, str],
        adopted: RunningInstance | None = None,
        *,
        keep_trying: bool = False,
    ) -> None:
        """A slot whose first instance is about to be started.

        Args:
            dependencies: what it needs of the host.
            endpoint: whose it is.
            fleet: the fleet's id.
            variant: what runs.
            archives: those of its containers' models, by container; that of the only one is called "".
            on_joined: told when an instance takes requests.
            on_left: told when that takes none any more.
            variables: what instances get of the platform.
            adopted: an instance that runs already.
            keep_trying: go on also if the first instance does not come up, as one of its kind has served before.
        """
        self._dependencies = dependencies
        self._endpoint = endpoint
        self._fleet = fleet
        self._variant = variant
        self._archives = archives
        self._on_joined = on_joined
        self._on_left = on_left
        self._variables = variables
        self._keep_trying = keep_trying
        self._instance = adopted
        self._target: Target | None = None
        self._ended: asyncio.Event = asyncio.Event()
        self._why = ""
        self.instance_id = "" if adopted is None else adopted.request.id
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = loop.create_future()
        self._task = tasks.start(f"an instance of {self._endpoint.name}", self._run())
        self._retiring: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> str:
        """Why there is no room for its instance yet; "" if there is, or nobody knows."""
        return self._dependencies.substrate.waiting(self.instance_id)

    def ended(self, reason: str) -> None:
        """Its instance has ended by itself."""
        self._why = reason
        self._ended.set()
        self._leave()

    # coming and going

    async def retire(self) -> None:
        """Let no new request reach the instance, let those under way be answered, and end it.

        Once begun it goes on, also if its caller is cancelled, who may call it again.
        """
        if self._retiring is None or (self._retiring.done() and self._retiring.exception() is not None):
            self._retiring = tasks.start(f"ending an instance of {self._endpoint.name}", self._retire())
        await asyncio.shield(self._retiring)

    async def _retire(self) -> None:
        await self._give_up(self._task)
        target = self._target
        if target is not None:
            target.draining = True
            self._on_left(target)
            await self._drained(target)
            target.pool.close()
            self._target = None
        await self._end()

    async def _drained(self, target: Target) -> None:
        """Return once all requests of the instance have been answered, or cannot be, or may take no longer."""
        idle = asyncio.Event()
        target.on_idle = idle.set
        if not target.inflight:
            return
        await tasks.first_of(idle.wait(), self._ended.wait(), timeout_s=self._dependencies.settings.drain_s)

    async def forget(self) -> None:
        """Look after the instance no more, and let it run on."""
        await self._give_up(self._task)
        if self._retiring is not None:
            await self._give_up(self._retiring)
        if self._target is not None:
            self._on_left(self._target)
            self._target.pool.close()

    async def _give_up(self, task: asyncio.Task[None]) -> None:
        await tasks.cancel(task)
        if not self.ready.done():
            self.ready.cancel()
        elif not self.ready.cancelled():
            self.ready.exception()  # nobody may have asked

    # the instance

    async def _run(self) -> None:
        settings = self._dependencies.settings
        backoff = Backoff(settings.backoff_s, settings.longest_backoff_s, _SOON_S)
        while True:
            try:
                await self._start()
                self._join()
                self._say(f"takes no requests any more: {await self._watch()}")
            except ApiError as error:
                self._say(f"does not come up: {error.message}")
                is_over = not self.ready.done() and not self._keep_trying
                self._failed(error)
                if is_over:
                    return
            except Exception as error:  # of one instance, and the log has what nobody foresaw
                logger.exception(
                    "%s: instance %s", self._endpoint.variant_words(self._variant.name), self.instance_id
                )
                self._failed(ApiError("InternalFailure", f"the host failed: {error}", 500))
            self._leave()
            try:
                await self._end()
            except Exception:  # it is looked after again, and ended when it does not answer
                logger.exception(
                    "%s: instance %s does not end",
                    self._endpoint.variant_words(self._variant.name),
                    self.instance_id,
                )
            await backoff.pause()

    def _failed(self, error: ApiError) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)

    async def _start(self) -> None:
        """Have an instance that answers, the adopted one or a new one.

        Raises:
            ApiError: there is no room for it, its model cannot be fetched, it took too long, or it ended before, as
                often as it was tried.
        """
        settings = self._dependencies.settings
        starts = 1 if self.ready.done() else settings.starts
        while True:
            try:
                await self._start_once()
            except _EndedError as error:
                starts -= 1
                if not starts:
                    raise
                self._say(f"is started again: {error.message}")
            else:
                return
            await self._end()
            await asyncio.sleep(settings.backoff_s)

    async def _start_once(self) -> None:
        if self._instance is None:
            await self._launch()
        assert self._instance is not None
        seconds = self._variant.startup_timeout_s
        try:
            async with asyncio.timeout(seconds):
                await self._wait_for_answer(self._instance)
        except TimeoutError:
            printed = await self._dependencies.substrate.failure(self.instance_id)
            msg = (
                f"The {self._container_words} for {self._whose} did not pass the "
                f"ping health check within {seconds} seconds: {self._why}{printed}. Look at the log of "
                f"{self._log_stream}, or set ContainerStartupHealthCheckTimeoutInSeconds."
            )
            raise ApiError("ServiceUnavailable", msg, 503) from None

    async def _launch(self) -> None:
        variant = self._variant
        container = variant.container
        resources = self._dependencies.resources(variant.instance_type)
        self._ended = asyncio.Event()
        self._why = "it has not been asked yet"
        self.instance_id = f"i-{secrets.token_hex(8)}"
        request = InstanceRequest(
            self.instance_id,
            self._endpoint.account,
            self._endpoint.region,
            self._endpoint.name,
            variant.name,
            self._fleet,
            container.image,
            container.environment,
            None,
            container.multi_model,
            resources,
            _containers_of(variant),
        )
        launching = tasks.submit(
            self._dependencies.substrate.launch(request, self._variables, self._archives)
        )
        try:
            self._instance = await asyncio.shield(launching)
        except asyncio.CancelledError:
            # it waits for room no more; what is being started has to be known to whoever ends it
            await self._dependencies.substrate.terminate(self.instance_id, 0.0)
            with suppress(Exception):
                self._instance = await launching
            raise

    async def _wait_for_answer(self, instance: RunningInstance) -> None:
        settings = self._dependencies.settings
        while True:
            if self._ended.is_set():
                msg = (
                    f"The {self._container_words} for {self._whose} did not pass "
                    f"the ping health check: {self._why}. Its log is {self._log_stream}."
                )
                raise _EndedError("ServiceUnavailable", msg, 503)
            trouble = await self._dependencies.ping(instance.host, instance.port, settings.ping_timeout_s)
            if not trouble and not self._ended.is_set():
                return
            if not self._ended.is_set():
                self._why = trouble
            with suppress(TimeoutError):
                async with asyncio.timeout(settings.first_ping_s):
                    await self._ended.wait()

    async def _watch(self) -> str:
        """Wait until the instance has ended, or does not answer any more: why."""
        settings = self._dependencies.settings
        failures = 0
        instance = self._instance
        assert instance is not None
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(settings.ping_s):
                    await self._ended.wait()
                return self._why
            trouble = await self._dependencies.ping(instance.host, instance.port, settings.ping_timeout_s)
            failures = failures + 1 if trouble else 0
            if failures >= settings.failed_pings:
                return trouble

    def _join(self) -> None:
        instance = self._instance
        assert instance is not None
        self._target = Target(
            instance.request.id, UpstreamPool(instance.host, instance.port, instance.unix_socket)
        )
        self._on_joined(self._target, instance)
        if not self.ready.done():
            self.ready.set_result(None)

    def _leave(self) -> None:
        target, self._target = self._target, None
        if target is not None:
            self._on_left(target)
            target.pool.close()

    async def _end(self) -> None:
        if self._instance is not None:
            await self._dependencies.substrate.terminate(
                self.instance_id, self._dependencies.settings.grace_s
            )
            self._instance = None

    @property
    def _container_words(self) -> str:
        name = self._variant.container_name
        return f"containers {name}" if self._variant.further else f"{name} container"

    @property
    def _whose(self) -> str:
        name = self._variant.name
        return (
            f"transform job {name}" if self._endpoint.name == TRANSFORM_JOBS else f"production variant {name}"
        )

    @property
    def _log_stream(self) -> str:
        return f"{self._variant.name}/{self.instance_id} in {self._endpoint.log_group}"

    def _say(self, what: str) -> None:
        logger.warning(
            "%s: instance %s %s",
            self._endpoint.variant_words(self._variant.name),
            self.instance_id,
            what,
        )


def _containers_of(variant: Variant) -> Sequence[ContainerRequest]:
    """What an instance of the variant has containers for, if those are several."""
    if not variant.further:
        return ()
    return tuple(ContainerRequest(each.hostname, each.image, each.environment) for each in variant.containers)
