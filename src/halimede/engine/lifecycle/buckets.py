"""Repositories in buckets, looked at and fetched from beside the event loop.

A bucket that is away takes nothing down: models whose files were fetched earlier are loaded without it, and it is
asked again from time to time.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop, Task
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halimede.core.clock import SECOND, Clock, Timer
from halimede.core.errors import HalimedeError
from halimede.core.tasks import Tasks
from halimede.engine.lifecycle.model_table import ModelTable
from halimede.engine.settings import EngineSettings
from halimede.repository.cloud.failures import AwayError, BucketError
from halimede.repository.cloud.listing import can_be_file
from halimede.repository.overrides import Override

if TYPE_CHECKING:  # it needs an extra
    from halimede.repository.cloud.mirror import Mirror

logger = logging.getLogger("halimede")

_LONGEST_WAIT_S = 3.0
"""So long a bucket is waited for where what is known of it will do."""

_PERIOD_S = 15
"""Seconds after which a bucket that is away is asked again, unless the settings say how often to look."""


class Buckets:
    """The repositories in buckets; all of this does nothing where there are none. Lives on the event loop."""

    def __init__(
        self,
        settings: EngineSettings,
        table: ModelTable,
        clock: Clock,
        loop: AbstractEventLoop,
        on_return: Callable[[], Awaitable[None]],
    ) -> None:
        """Nothing has been looked at.

        Args:
            settings: which repositories there are.
            table: the models, which tells what is in use.
            clock: the time.
            loop: the event loop.
            on_return: called when a bucket answers again that did not.
        """
        self._cloud = settings.cloud
        self._mirrors = [] if settings.cloud is None else settings.cloud.mirrors
        self._repositories = settings.model_repositories
        self._config_name = settings.model_config_name
        self._period = (settings.repository_poll_secs or _PERIOD_S) * SECOND
        self._table = table
        self._clock = clock
        self._loop = loop
        self._on_return = on_return
        self._away: set[Mirror] = set()
        self._unknown: set[Mirror] = set()
        self._logged: dict[Mirror, str] = {}
        self._looks: dict[Callable[[], None], Task[None]] = {}
        self._timer: Timer | None = None
        self._tasks = Tasks()

    @property
    def known(self) -> bool:
        """Whether it is known of each bucket which models it has, if only from earlier."""
        return not self._unknown

    async def check(self, *, all_needed: bool) -> None:
        """Learn which models there are, and refuse what cannot be read.

        Args:
            all_needed: refuse also a bucket that is away and of which nothing was fetched earlier.

        Raises:
            HalimedeError: a bucket cannot be listed, or holds no repository there.
        """
        looks = [self._ask(mirror, mirror.check) for mirror in self._mirrors]
        for mirror, outcome in zip(
            self._mirrors, await asyncio.gather(*looks, return_exceptions=True), strict=True
        ):
            if outcome is None:
                continue
            fetched = await self._loop.run_in_executor(mirror.listers, mirror.has_any_fetched)
            if not isinstance(outcome, AwayError) or (all_needed and not fetched):
                raise outcome
            if fetched:
                logger.error("%s. Its models are loaded as they were fetched earlier", outcome)
            else:
                self._unknown.add(mirror)
                logger.error(
                    "%s. Nothing of it was fetched earlier; the other repositories are served", outcome
                )

    async def update_names(self) -> None:
        """Learn which models there are, as far as the buckets tell soon."""
        await self._look([(mirror, mirror.update_names) for mirror in self._mirrors])

    async def update_all(self) -> None:
        """Learn what there is of every model, as far as the buckets tell soon."""
        await self._look([(mirror, mirror.update_all) for mirror in self._mirrors])

    async def ask_again(self, name: str) -> None:
        """See whether buckets that were away answer again, as far as they tell soon, if they are known to have a model.

        What a client loads is not to be older than it needs to be.
        """
        if can_be_file(name):
            away = [each for each in self._away if (each.directory / name).is_dir()]
            await self._look([(each, each.update_names) for each in away])

    async def _look(self, looks: "Iterable[tuple[Mirror, Callable[[], None]]]") -> None:
        """Look at buckets side by side, each once at a time; those that are slow go on. What fails changes nothing."""

        async def look(mirror: "Mirror", update: Callable[[], None]) -> None:
            try:
                await self._ask(mirror, update)
            except HalimedeError as error:
                if str(error) != self._logged.get(mirror) and not self._table.stopping:
                    self._logged[mirror] = str(error)
                    logger.error("failed to poll model repository '%s': %s", mirror.location.url, error)
            finally:
                del self._looks[update]

        tasks = []
        for mirror, update in looks:
            if update not in self._looks:
                self._looks[update] = self._start(look(mirror, update))
            tasks.append(self._looks[update])
        if tasks:
            await asyncio.wait(tasks, timeout=_LONGEST_WAIT_S)

    async def update(self, name: str) -> None:
        """Learn what there is of a model.

        Nothing happens if no model can have that name. A bucket that is away or slow only matters to models that are
        in no other repository, and have not been fetched earlier or are loaded.

        Args:
            name: the model's name in the server.

        Raises:
            BucketError: a bucket cannot be listed that may have it.
        """
        own_name, namespace = self._table.own_name(name), self._table.namespace(name)
        mirrors = {
            each for each in self._mirrors if namespace in ("", str(each.directory)) and can_be_file(own_name)
        }
        if away := self._away & mirrors:
            mirrors -= away - set(await self._needed(own_name, away))
        if not mirrors:
            return
        fetched_suffices = self._fetched_suffices(name)
        looks = {
            self._start(
                self._ask(each, partial(each.update, own_name, fetched_suffices=fetched_suffices))
            ): each
            for each in mirrors
        }
        _, slow = await asyncio.wait(looks, timeout=_LONGEST_WAIT_S)
        if slow and await self._needed(own_name, [looks[task] for task in slow]):
            await asyncio.wait(slow)
        failures = {each: task.exception() for task, each in looks.items() if task.done()}
        for failure in failures.values():
            if failure is not None and not isinstance(failure, BucketError):
                raise failure
        failed = {each: failure for each, failure in failures.items() if failure is not None}
        for needed in await self._needed(own_name, failed) if failed else ():
            raise failed[needed]
        for failure in failed.values():
            logger.warning("%s", failure)

    async def _needed(self, own_name: str, unknown: "Collection[Mirror]") -> "list[Mirror]":
        """Those without which it is not known from where to load a model, if nothing can be learnt of any of these."""

        def needed() -> "list[Mirror]":
            directories = {each.directory for each in unknown}
            others = [each for each in self._repositories if each not in directories]
            elsewhere = any((each / own_name).is_dir() for each in others)
            return [each for each in unknown if not elsewhere or (each.directory / own_name).is_dir()]

        return await self._loop.run_in_executor(None, needed)

    async def fetch(self, name: str, directories: Sequence[Path], override: Override) -> bool:
        """Fetch what is to be loaded of a model with these directories, unless that is there.

        Args:
            name: the model's name in the server.
            directories: where it is, as last seen.
            override: what a client brings instead.

        Returns:
            Whether it is what the bucket has, and not what was fetched earlier.

        Raises:
            HalimedeError: the bucket does not give it, or there is no room for it on the disk.
        """
        mirror = self._mirror_of(directories)
        if mirror is None or override.files:
            return True
        fetch = partial(
            mirror.fetch,
            directories[0].name,
            self._config_name,
            override.config,
            self._in_use,
            fetched_suffices=self._fetched_suffices(name),
        )
        return await self._loop.run_in_executor(mirror.fetchers, fetch)

    def mark_used(self, directories: Sequence[Path]) -> None:
        """Note that a model with these directories has been in use until now."""
        mirror = self._mirror_of(directories)
        if mirror is not None:
            mirror.mark_used(directories[0].name)

    def stop(self) -> None:
        """Have what is fetched end soon, with an error."""
        if self._timer is not None:
            self._timer.cancel()
        if self._cloud is not None:
            self._cloud.stop()

    async def close(self) -> None:
        """Let other servers use what has been fetched; when no load is under way any more."""
        await self._tasks.wait()
        if self._cloud is not None:
            await self._loop.run_in_executor(None, self._cloud.close)

    async def _ask(self, mirror: "Mirror", work: Callable[[], None]) -> None:
        """Look at a bucket, and note whether it is away."""
        try:
            await self._loop.run_in_executor(mirror.listers, work)
        finally:
            if mirror.away is not None:
                self._away.add(mirror)
                if self._timer is None:
                    self._ask_later()
            elif mirror in self._away:
                self._away.remove(mirror)
                self._logged.pop(mirror, None)
                logger.info("model repository '%s' can be listed again", mirror.location.url)
                self._start(self._return(mirror))

    def _ask_later(self) -> None:
        self._timer = self._clock.call_at(self._clock.now() + self._period, self._ask_again)

    def _ask_again(self) -> None:
        self._timer = None
        if self._away and not self._table.stopping:
            self._start(self._look([(mirror, mirror.update_names) for mirror in self._away]))
            self._ask_later()

    async def _return(self, mirror: "Mirror") -> None:
        await self._on_return()
        self._unknown.discard(mirror)
        self._table.tell_readiness()

    def _start(self, work: Coroutine[Any, Any, None]) -> Task[None]:
        return self._tasks.start("looking at a bucket of models", work)

    def _mirror_of(self, directories: Sequence[Path]) -> "Mirror | None":
        """What the only one of these directories is in, if that is the mirror of a bucket."""
        if len(directories) != 1:
            return None
        return next((each for each in self._mirrors if each.directory == directories[0].parent), None)

    def _fetched_suffices(self, name: str) -> bool:
        """Whether to load what was fetched earlier is better than nothing: the model does not serve."""
        record = self._table.records.get(name)
        return record is None or not record.models

    def _in_use(self, directory: Path) -> bool:
        """Whether a model serves or is being loaded; called on other threads."""
        return any(
            record.operations or any(each.serving or each.draining for each in list(record.versions.values()))
            for record in list(self._table.records.values())
            if self._table.own_name(record.name) == directory.name
        )
