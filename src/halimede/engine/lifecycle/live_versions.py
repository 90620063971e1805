"""Loaded versions from their making to their end: retiring them, and waiting for them when the server stops."""

import asyncio
import logging
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Executor

from halimede.core import tasks
from halimede.core.clock import SECOND, Clock
from halimede.core.tasks import Tasks
from halimede.engine.lifecycle.agents import AgentChain
from halimede.engine.lifecycle.version_states import OverrideFiles, Serving
from halimede.engine.memory.model_memory import ModelMemory
from halimede.engine.served_model import ServedModel
from halimede.repository import overrides

logger = logging.getLogger("halimede")


class LiveVersions:
    """Every version that is loaded and not yet closed. Lives on the event loop."""

    def __init__(self, loop: AbstractEventLoop, disk: Executor, memory: ModelMemory) -> None:
        self._loop = loop
        self._disk = disk
        self._memory = memory
        self._live: set[Serving] = set()
        self._retiring: dict[asyncio.Task[None], tuple[Serving, ...]] = {}  # the version, then its users
        self._ending = Tasks()

    def add(self, serving: Serving) -> None:
        """Count a version that was loaded; its files are kept until it is retired."""
        self._live.add(serving)
        if serving.files is not None:
            serving.files.users += 1
        if serving.agents is not None:
            serving.agents.hold()

    def retire(
        self, serving: Serving, gone: Callable[[], None] | None = None, *, succeeded: bool = False
    ) -> None:
        """Let the version finish its requests, close it, then call `gone`. Returns at once.

        Ensembles that use it must have been retired before; it takes their requests until they have finished.
        Its sequences go on if another version has `succeeded` it, and end with the requests that they have if not.
        """
        users = [user for user in self._live if serving in user.uses]
        if not users:
            serving.model.stop()
        if serving.holding is not None:
            serving.holding.leaving = True
        what = f"unloading '{serving.model.identifier}' version {serving.model.version}"
        task = tasks.start(what, self._retire(serving, users, gone, succeeded))
        self._retiring[task] = (serving, *users)
        task.add_done_callback(self._retiring.pop)

    async def _retire(
        self,
        serving: Serving,
        users: Sequence[Serving],
        gone: Callable[[], None] | None,
        succeeded: bool,
    ) -> None:
        model = serving.model
        for user in users:
            await user.model.drained()
        model.stop()
        if not succeeded:
            model.end_sequences()
        await model.drained()
        try:
            await self._memory.close(serving.holding, model.close)
        except Exception:  # a framework's; the version is gone all the same
            logger.exception("closing '%s' version %d", model.identifier, model.version)
        self._live.discard(serving)
        if serving.files is not None:
            await self.release(serving.files)
        if serving.agents is not None:
            serving.agents.release()
        logger.info("successfully unloaded '%s' version %d", model.identifier, model.version)
        if gone is not None:
            gone()

    async def release(self, files: OverrideFiles) -> None:
        """Have one user less; the last one deletes the files."""
        files.users -= 1
        if not files.users:
            try:
                await self._loop.run_in_executor(self._disk, overrides.remove, files.directory)
            except OSError as error:
                logger.error("cannot delete temporary directory '%s': %s", files.directory, error)

    def end_agents(self, agents: AgentChain) -> None:
        """Have the agents unload a model, whose versions are being retired. Returns at once."""
        self._ending.start("ending repository agents", agents.end())

    def stop(self) -> list[ServedModel]:
        """Let no version accept another request, but for those that ensembles with requests in flight use.

        Returns:
            the versions that still accept requests; `drained` stops them when their ensembles have finished.
        """
        stopped: set[Serving] = set()
        still_used = []
        for serving in self._users_first():
            users = [user for user in self._live if serving in user.uses]
            if all(user in stopped and not user.model.inflight for user in users):
                serving.model.stop()
                stopped.add(serving)
            else:
                still_used.append(serving.model)
        return still_used

    async def drained(self) -> None:
        """Return when no version has a request in flight."""
        for serving in self._users_first():
            serving.model.stop()  # those that use it have finished
            await serving.model.drained()

    def _users_first(self) -> list[Serving]:
        """Every version, each ensemble before those that it uses."""
        order: dict[Serving, None] = {}

        def visit(serving: Serving) -> None:
            if serving not in order and serving in self._live:
                for used in serving.uses:
                    visit(used)
                order[serving] = None

        for serving in self._live:
            visit(serving)
        return list(reversed(order))

    async def closed(self, names: Container[str] | None = None) -> None:
        """Return when every retired version is closed, or every one of the models of these names.

        Without names, the repository agents have finished too. Nothing else waits for them.
        """
        while retiring := [task for task, (serving, *_) in self._retiring.items() if _is_of(serving, names)]:
            await asyncio.wait(retiring)
        if names is None:
            await self._ending.wait()

    async def settled(self, names: Container[str]) -> None:
        """Return when every retired version of these models is closed, unless it has requests in flight."""
        retiring = [
            task
            for task, servings in self._retiring.items()
            if _is_of(servings[0], names)
            and not any(each.model.inflight or each.model.sequences for each in servings)
        ]
        if retiring:
            await asyncio.wait(retiring)

    def report_inflight(self, seconds: int) -> None:
        """Log which versions have requests in flight, and that the wait for them ends in `seconds`.

        A sequence counts as one, whether a request of it is under way or not.
        """
        models = [serving.model for serving in self._live]
        busy = [
            (model.identifier, model.version, model.sequences or model.inflight)
            for model in models
            if model.inflight or model.sequences
        ]
        logger.info("Timeout %d: Found %d model versions that have in-flight inferences", seconds, len(busy))
        for each in sorted(busy):
            logger.info("Model '%s' (version %d) has %d in-flight inferences", *each)

    def report_live(self, seconds: int, operations: int) -> None:
        """Log how many versions are still there, and that the wait for them ends in `seconds`."""
        logger.info(
            "Timeout %d: Found %d live models and %d in-flight non-inference requests",
            seconds, len(self._live), operations,
        )  # fmt: skip


def _is_of(serving: Serving, names: Container[str] | None) -> bool:
    """Whether it is a version of one of the models of these names; of any model for None."""
    return names is None or serving.model.identifier in names


async def wait_until(deadline: int, work: Future[None], clock: Clock, report: Callable[[int], None]) -> bool:
    """Wait for the work: whether it was done by the deadline.

    Args:
        deadline: the latest time, in nanoseconds of `clock`.
        work: what is waited for; cancelled if it is late.
        clock: the time to go by.
        report: called at once and then each second with the seconds that are left.
    """
    while not work.done():
        report(max(0, -(-(deadline - clock.now()) // SECOND)))
        tick = work.get_loop().create_future()
        timer = clock.call_at(min(clock.now() + SECOND, deadline), _ring, tick)
        await asyncio.wait({work, tick}, return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        if clock.now() >= deadline and not work.done():
            work.cancel()
            return False
    await work
    return True


def _ring(tick: Future[None]) -> None:
    if not tick.done():
        tick.set_result(None)
