"""The fleets of one endpoint: which serve, with which shares of the requests, and which are leaving."""

import asyncio
import logging
from collections.abc import Mapping

from halimede.core.tasks import Tasks
from halimede.hosting.control.fleet import Fleet
from halimede.hosting.control.records import EndpointRecord, FleetRecord
from halimede.hosting.control.settings import Dependencies
from halimede.hosting.routing.table import EndpointRoute, FleetRoute
from halimede.hosting.substrates.base import RunningInstance

logger = logging.getLogger("halimede")


class Fleets:
    """The fleets of an endpoint, of which each is None until it is looked after. Lives on the event loop.

    Attributes:
        current: the one that serves.
        mixed: the one that serves beside it since an update could not be rolled back.
        pending: the one that is to take their place.
        adopted: instances that run already, by id.
    """

    def __init__(
        self, dependencies: Dependencies, record: EndpointRecord, adopted: Mapping[str, RunningInstance]
    ) -> None:
        self.current: Fleet | None = None
        self.mixed: Fleet | None = None
        self.pending: Fleet | None = None
        self.adopted = adopted
        self._dependencies = dependencies
        self._record = record
        self._leaving: list[Fleet] = []  # others have taken their places
        self._retiring = Tasks()

    def make(self, record: FleetRecord) -> Fleet:
        """A fleet of the endpoint, of which nothing has been started."""
        return Fleet(self._dependencies, self._record, record)

    def adopted_counts(self, record: FleetRecord) -> Mapping[str, int]:
        """Variant → how many instances of a fleet run already."""
        requests = [each.request for each in self.adopted.values()]
        mine = [request.variant for request in requests if request.fleet == record.id]
        return {name: mine.count(name) for name in record.counts}

    def all(self) -> list[Fleet]:
        """Those that there are."""
        fleets = (self.current, self.mixed, self.pending, *self._leaving)
        return [fleet for fleet in fleets if fleet is not None]

    # requests

    def publish(self, share: float = 0.0) -> None:
        """From now on, such a share of the requests goes to the pending fleet, and the rest to the others."""
        assert self.current is not None
        beside = []
        if self.pending is not None and share > 0:
            beside.append(self._beside(self.pending, share))
        if self.mixed is not None:
            beside.append(self._beside(self.mixed, (1 - share) * self._mixed_share()))
        record = self._record
        route = EndpointRoute(
            record.name,
            record.arn,
            record.region,
            record.account,
            self.current.record.config_name,
            self.current.routes(),
            beside,
            self.current.record.asynchronous,
        )
        self._dependencies.table.publish(route)

    def _beside(self, fleet: Fleet, share: float) -> FleetRoute:
        return FleetRoute(fleet.record.config_name, fleet.routes(), share)

    def _mixed_share(self) -> float:
        """The mixed fleet's share, beside the current one: each of their instances gets as much."""
        record = self._record
        assert record.current is not None
        assert record.mixed is not None
        mixed, current = sum(record.mixed.counts.values()), sum(record.current.counts.values())
        return mixed / (mixed + current)

    # coming and going

    def promote(self) -> list[Fleet]:
        """Let the pending fleet take the place of the others: those. They are to be retired."""
        before = [fleet for fleet in (self.current, self.mixed) if fleet is not None]
        self.current, self.mixed, self.pending = self.pending, None, None
        self.publish()
        return before

    def keep_pending(self, record: FleetRecord) -> None:
        """Let the pending fleet serve beside the current one, as a record says."""
        assert self.pending is not None
        self.mixed, self.pending = self.pending, None
        self.mixed.record = record

    def retire_soon(self, fleet: Fleet) -> None:
        """End a fleet whose place another one has taken, when what it has been asked is answered."""
        self._leaving.append(fleet)
        self._retiring.start(f"ending a fleet of endpoint '{self._record.name}'", self._retire(fleet))

    async def _retire(self, fleet: Fleet) -> None:
        try:
            await fleet.retire()
        except Exception:  # what is left of it is ended with the endpoint
            logger.exception("endpoint '%s': a fleet that was replaced does not end", self._record.name)
        else:
            self._leaving.remove(fleet)

    async def retire_pending(self) -> None:
        """End the pending fleet, also what runs of it from before a restart. It may be cancelled and called again."""
        if self.pending is not None:
            await self.pending.retire()
            self.pending = None
        kept, dependencies = self._record.pending, self._dependencies
        left = [
            name for name, each in self.adopted.items() if kept is not None and each.request.fleet == kept.id
        ]
        await asyncio.gather(
            *(dependencies.substrate.terminate(name, dependencies.settings.grace_s) for name in left)
        )

    async def retire(self) -> None:
        """End all of them, when what they have been asked is answered. It may be cancelled and called again."""
        await asyncio.gather(*(fleet.retire() for fleet in self.all()))

    async def room(self) -> None:
        """Return once what has been replaced lately has given back its GPUs, or whatever else it had."""
        await self._retiring.wait()

    async def stop(self) -> None:
        """Look after none of them any more, and let the instances run on."""
        await self._retiring.close()
        await asyncio.gather(*(fleet.forget() for fleet in self.all()))

    # instances

    def ended(self, instance_id: str, reason: str) -> bool:
        """Whether the instance that has ended is one of theirs."""
        return any(fleet.ended(instance_id, reason) for fleet in self.all())

    def instances(self) -> Mapping[str, int]:
        """Variant → how many instances of the fleet that serves take requests now."""
        return {} if self.current is None else self.current.instances()

    def pending_instances(self) -> Mapping[str, int]:
        """Variant → how many instances of the pending fleet answer."""
        return {} if self.pending is None else self.pending.instances()

    def waiting(self) -> Mapping[str, str]:
        """Variant → why there is no room yet for one of its instances, of the fleet that is being brought up first."""
        fleets = [fleet for fleet in (self.current, self.pending) if fleet is not None]
        return {name: why for fleet in fleets for name, why in fleet.waiting().items()}
