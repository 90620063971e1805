"""Looking at the repositories time and again (`--model-control-mode=poll`).

A change is acted on when two looks in a row have seen the same, so that a copy that is still being written is left
alone. While a repository cannot be read, its models stay as they are, and the other repositories are looked at.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Executor
from pathlib import Path

from halimede.core.clock import SECOND, Clock, Timer
from halimede.core.tasks import Tasks
from halimede.engine.lifecycle.buckets import Buckets
from halimede.engine.lifecycle.model_table import ModelTable
from halimede.repository.layout import unreadable
from halimede.repository.snapshots import ABSENT, Snapshot, sight_models

logger = logging.getLogger("halimede")

Act = Callable[[str, Snapshot], Awaitable[object]]
"""Does what a model needs that was seen like this."""


class Polling:
    """The looks at the repositories. Lives on the event loop.

    Attributes:
        under_way: looks, and what is done upon them.
    """

    def __init__(
        self,
        repositories: Sequence[Path],
        buckets: Buckets,
        table: ModelTable,
        clock: Clock,
        loop: AbstractEventLoop,
        disk: Executor,
        load: Act,
        withdraw: Act,
    ) -> None:
        """No look so far.

        Args:
            repositories: where to look.
            buckets: what some of them mirror.
            table: the models.
            clock: the time.
            loop: the event loop.
            disk: looks.
            load: loads a model, or loads it again.
            withdraw: unloads a model whose directory is gone, or is no longer the only one of that name.
        """
        self.under_way = Tasks()
        self._repositories = repositories
        self._buckets = buckets
        self._table = table
        self._clock = clock
        self._loop = loop
        self._disk = disk
        self._load = load
        self._withdraw = withdraw
        self._last_look: dict[str, Snapshot] | None = None
        self._looking = False
        self._timer: Timer | None = None

    def start(self, period_s: float) -> None:
        """Look again and again, the first time in so many seconds."""
        self._timer = self._clock.call_at(self._clock.now() + round(period_s * SECOND), self._now, period_s)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _now(self, period_s: float) -> None:
        if self._table.stopping:
            return
        if not self._looking:
            self.under_way.start("polling the model repositories", self.look())
        self.start(period_s)

    async def look(self) -> None:
        """Look at the repositories, and act on what changed and is as it was at the look before.

        Another look may begin while this one's loads are under way; it leaves their models alone.
        """
        self._looking = True
        try:
            await self._buckets.update_all()
            seen, away = await self._loop.run_in_executor(self._disk, self._sight)
        except Exception as error:  # the next look may succeed
            unforeseen = None if isinstance(error, OSError) else error
            logger.error("Poll failed: %s", error, exc_info=unforeseen)
            return
        finally:
            self._looking = False
        for name, each in self._table.records.items():
            if each.snapshot is not None and any(place.parent in away for place in each.snapshot.directories):
                seen[name] = each.snapshot  # what is served goes on until its repository can be read again
        before, self._last_look = self._last_look, seen
        self._table.set_catalog({name: len(snapshot.directories) > 1 for name, snapshot in seen.items()})
        if before is None or self._table.stopping:
            return
        actions = []
        for name in sorted(seen.keys() | self._table.records.keys()):
            record = self._table.records.get(name)
            snapshot = seen.get(name, ABSENT)
            known = ABSENT if record is None else record.snapshot
            settled = snapshot == before.get(name, ABSENT)
            if snapshot == known or not settled or (record is not None and record.operations):
                continue
            act = self._load if len(snapshot.directories) == 1 else self._withdraw
            actions.append(_done(act, name, snapshot))
        await asyncio.gather(*actions)

    def _sight(self) -> tuple[dict[str, Snapshot], Collection[Path]]:
        """What there is of every model, and the repositories that cannot be read. Blocks."""
        away = unreadable(self._repositories)
        for repository, why in away.items():
            logger.error("failed to poll model repository '%s': %s", repository, why)
        readable = [repository for repository in self._repositories if repository not in away]
        return sight_models(readable, namespaced=self._table.namespaced), away


async def _done(act: Act, name: str, snapshot: Snapshot) -> None:
    """Do what a model needs; what fails is tried again at the next look."""
    try:
        await act(name, snapshot)
    except Exception:  # of one model; the others are seen to
        logger.exception("Poll failed for model '%s'", name)
