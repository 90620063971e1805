"""Shares requests out over a job's instances: so many at a time for each. Lives on the event loop."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from halimede.hosting.identity import EndpointId
from halimede.hosting.routing.table import EndpointRoute, Target, VariantRoute
from halimede.hosting.transform.failures import JobError


class Lane:
    """A request's place at an instance.

    Attributes:
        target: the instance.
        lost: done when the instance has gone.
    """

    __slots__ = ("lost", "target")

    def __init__(self, target: Target, lost: asyncio.Future[None]) -> None:
        self.target = target
        self.lost = lost


class Lanes:
    """The places at all instances of a job (`TableWatcher`).

    Attributes:
        each: requests at a time for each instance.
        patience_s: how long there may be no instance at all.
    """

    def __init__(self, each: int, patience_s: float) -> None:
        """Places at no instance yet.

        Args:
            each: requests at a time for each instance.
            patience_s: how long there may be no instance at all.
        """
        self.each = each
        self.patience_s = patience_s
        self._lost: dict[Target, asyncio.Future[None]] = {}
        self._changed = asyncio.Event()

    @property
    def targets(self) -> Mapping[Target, asyncio.Future[None]]:
        """The instances that take requests; what they map to is done when they have gone."""
        return self._lost

    async def acquire(self) -> Lane:
        """A place, once there is one.

        Raises:
            JobError: there has been no instance for too long.
        """
        while True:
            able = [each for each in self._lost if not each.refuses]
            target = min(able, key=lambda each: each.inflight, default=None)
            if target is not None and target.inflight < self.each:
                target.inflight += 1
                return Lane(target, self._lost[target])
            await self._change()

    async def _change(self) -> None:
        """Return when a place may have become free."""
        changed = self._changed
        with suppress(TimeoutError):
            async with asyncio.timeout(None if self._lost else self.patience_s):
                await changed.wait()
            return
        msg = f"there has been no instance for {self.patience_s:g} seconds; the logs of those that were there say why"
        raise JobError("InternalServerError", msg)

    def release(self, lane: Lane) -> None:
        """Give a place back."""
        lane.target.inflight -= 1
        self._tell()

    def refuse(self, lane: Lane) -> None:
        """The instance gave no answer: for a moment, others get the requests, if there are any."""
        lane.target.refuse(on_accept=self._tell)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # the instances, as a routing table tells of them

    def joined(self, variant: VariantRoute, target: Target) -> None:
        """An instance takes requests."""
        del variant
        self._lost[target] = asyncio.get_running_loop().create_future()
        self._tell()

    def left(self, variant: VariantRoute, target: Target) -> None:
        """An instance takes none any more; what it has not answered is lost."""
        del variant
        lost = self._lost.pop(target, None)
        if lost is not None and not lost.done():
            lost.set_result(None)
        self._tell()

    def published(self, route: EndpointRoute) -> None:
        """Nobody else sends requests there."""

    def withdrawn(self, endpoint: EndpointId) -> None:
        """Nobody else sends requests there."""

    def weighed(self, variant: VariantRoute) -> None:
        """There is one variant only."""

    async def settled(self) -> None:
        """No other process is concerned."""
