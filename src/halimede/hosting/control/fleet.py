"""The instances of an endpoint that belong together: brought up, kept up, scaled, drained and ended as one."""

import asyncio
import shutil
from collections.abc import Mapping, Sequence

from halimede.hosting.control.model_archive import archives_of
from halimede.hosting.control.records import EndpointRecord, FleetRecord
from halimede.hosting.control.settings import Dependencies
from halimede.hosting.control.slot import Slot
from halimede.hosting.errors import ApiError
from halimede.hosting.identity import EndpointId
from halimede.hosting.routing.table import Target, VariantRoute
from halimede.hosting.specs import Variant
from halimede.hosting.substrates.base import RunningInstance


class VariantFleet:
    """The instances of one variant.

    Attributes:
        route: where its requests go.
        lost: how many instances have ended by themselves, or have stopped answering, that took requests.
    """

    def __init__(
        self,
        dependencies: Dependencies,
        endpoint: EndpointId,
        fleet: str,
        variant: Variant,
        weight: float,
        config: str = "",
        *,
        is_shadow: bool = False,
    ) -> None:
        self._dependencies = dependencies
        self._endpoint = endpoint
        self._fleet = fleet
        self._variant = variant
        self._is_shadow = is_shadow
        self._slots: list[Slot] = []
        self._leaving: list[Slot] = []
        self.lost = 0
        self._directory = dependencies.directory / fleet / variant.name
        self._archives = archives_of(dependencies, endpoint, variant, self._directory)
        self._platform_variables = dependencies.begin_role(endpoint, fleet, variant)
        self.route = VariantRoute(
            variant,
            weight,
            meter=dependencies.make_meter(endpoint, variant.name, config),
            observers=dependencies.observers(endpoint, variant),
            config=config,
        )
        if variant.container.multi_model:
            self.route.residency = dependencies.make_residency(endpoint, self.route)

    async def start(self, count: int, adopted: Sequence[RunningInstance], *, keep_trying: bool) -> None:
        """Have so many instances that answer. It may be cancelled and called again.

        Args:
            count: how many.
            adopted: those that run already.
            keep_trying: go on trying if they do not come up.

        Raises:
            ApiError: the model cannot be fetched, or an instance does not come up.
        """
        if not keep_trying:
            for archive in self._archives.values():
                await self._dependencies.substrate.prepare(archive)
        if not self._slots:
            for instance in adopted[:count]:
                self._add(instance, keep_trying=keep_trying)
        for _ in range(count - len(self._slots)):
            self._add(keep_trying=keep_trying)
        grace = self._dependencies.settings.grace_s
        await asyncio.gather(
            *(self._dependencies.substrate.terminate(each.request.id, grace) for each in adopted[count:])
        )
        await self.ready()

    async def ready(self) -> None:
        """Return once all instances that it is to have have come up.

        Raises:
            ApiError: one does not.
        """
        await _ready(self._slots)

    def _add(self, adopted: RunningInstance | None = None, *, keep_trying: bool = False) -> Slot:
        slot = Slot(
            self._dependencies,
            self._endpoint,
            self._fleet,
            self._variant,
            self._archives,
            self._joined,
            self._left,
            self._platform_variables,
            adopted,
            keep_trying=keep_trying,
        )
        self._slots.append(slot)
        return slot

    @property
    def count(self) -> int:
        """How many instances it is to have."""
        return len(self._slots)

    @property
    def waiting(self) -> str:
        """Why there is no room yet for one of them."""
        return next((slot.waiting for slot in self._slots if slot.waiting), "")

    async def scale(self, count: int) -> None:
        """Have so many instances; those that are too many answer what they have been asked.

        Raises:
            ApiError: one does not come up; those that were started with it are ended again.
        """
        self._leaving += self._slots[count:]
        del self._slots[count:]
        new = [self._add() for _ in range(count - len(self._slots))]
        try:
            await _ready(new)
        except ApiError:
            self._leaving += new
            self._slots = [slot for slot in self._slots if slot not in new]
            raise
        finally:
            await self._retire_leaving()

    async def _retire_leaving(self) -> None:
        """End those that leave. They end also if nobody waits for it."""
        leaving = list(self._leaving)
        await asyncio.gather(*(slot.retire() for slot in leaving))
        self._leaving = [slot for slot in self._leaving if slot not in leaving]

    def ended(self, instance_id: str, reason: str) -> bool:
        """Whether the instance that has ended is one of these."""
        for slot in self._slots + self._leaving:
            if slot.instance_id == instance_id:
                slot.ended(reason)
                return True
        return False

    def _joined(self, target: Target, instance: RunningInstance) -> None:
        # once it has come up, as starting takes much time of the processors
        if self._is_shadow and instance.pid:
            self._dependencies.lower_priority(instance.pid)
        self._dependencies.table.join(self.route, target)
        if self.route.residency is not None:
            self.route.residency.joined(target, instance)

    def _left(self, target: Target) -> None:
        if target in self.route.targets:
            self.lost += not target.draining
            self._dependencies.table.leave(self.route, target)
            if self.route.residency is not None:
                self.route.residency.left(target)

    async def retire(self) -> None:
        """End all of it, when what is under way has been answered; what was extracted is removed.

        It may be cancelled and called again.
        """
        self._leaving += self._slots
        self._slots = []
        await self._retire_leaving()
        if self.route.residency is not None:
            await self.route.residency.close()
        self._dependencies.end_role(self._fleet, self._variant.name)
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    async def forget(self) -> None:
        """Look after none of it any more, and let the instances run on."""
        await asyncio.gather(*(slot.forget() for slot in self._slots + self._leaving))
        if self.route.residency is not None:
            await self.route.residency.close()


async def _ready(slots: Sequence[Slot]) -> None:
    """Return once all of them have instances that answer.

    Raises:
        ApiError: one does not come up.
    """
    if not slots:
        return
    ready = [slot.ready for slot in slots]
    await asyncio.wait(ready, return_when=asyncio.FIRST_EXCEPTION)
    for each in ready:
        if each.done():
            each.result()


class Fleet:
    """The instances of all variants of an endpoint.

    Attributes:
        record: what it is to be.
    """

    def __init__(self, dependencies: Dependencies, endpoint: EndpointRecord, record: FleetRecord) -> None:
        self._dependencies = dependencies
        self.record = record
        self._variants = {
            variant.name: VariantFleet(
                dependencies,
                endpoint.id,
                record.id,
                variant,
                record.weights[variant.name],
                record.config_name,
                is_shadow=variant.name in record.shadows(),
            )
            for variant in record.variants()
        }
        for shadow, production in record.shadows().items():
            routes = self._variants[production].route, self._variants[shadow].route
            routes[0].shadow = routes[1]
            routes[0].observers = (*routes[0].observers, dependencies.make_shadow(*routes))

    async def start(
        self,
        adopted: Mapping[str, RunningInstance],
        counts: Mapping[str, int] | None = None,
        *,
        keep_trying: bool = False,
    ) -> None:
        """Have all instances answer.

        Args:
            adopted: instances that run already, by id; those of this fleet are taken over.
            counts: variant → how many instances it is to have for now; those of the record if it is left out.
            keep_trying: it has served before; what does not come up is tried again and again, after this has returned.

        Raises:
            ApiError: a model cannot be fetched, or an instance does not come up.
        """
        counts = self.record.counts if counts is None else counts
        work = []
        for name, variant in self._variants.items():
            mine = [
                instance
                for instance in adopted.values()
                if (instance.request.fleet, instance.request.variant) == (self.record.id, name)
            ]
            work.append(variant.start(counts[name], mine, keep_trying=keep_trying))
        await _all(work)

    async def apply(self) -> None:
        """Make weights and counts those of the record.

        Raises:
            ApiError: an instance does not come up.
        """
        for name, variant in self._variants.items():
            self._dependencies.table.weigh(variant.route, self.record.weights[name])
        await self.scale(self.record.counts)

    async def scale(self, counts: Mapping[str, int]) -> None:
        """Have so many instances of each variant; those that are too many answer what they have been asked.

        Raises:
            ApiError: one does not come up.
        """
        await _all([variant.scale(counts[name]) for name, variant in self._variants.items()])

    async def ready(self) -> None:
        """Return once all instances that it is to have have come up.

        Raises:
            ApiError: one does not.
        """
        await _all([variant.ready() for variant in self._variants.values()])

    def routes(self) -> Mapping[str, VariantRoute]:
        """Variant → where its requests go; shadow variants have none of their own."""
        shadows = self.record.shadows()
        return {name: variant.route for name, variant in self._variants.items() if name not in shadows}

    @property
    def lost(self) -> int:
        """How many instances have ended by themselves, or have stopped answering, that took requests."""
        return sum(variant.lost for variant in self._variants.values())

    def ended(self, instance_id: str, reason: str) -> bool:
        """Whether the instance that has ended is one of these."""
        return any(variant.ended(instance_id, reason) for variant in self._variants.values())

    def instances(self) -> Mapping[str, int]:
        """Variant → how many instances take requests now."""
        return {name: len(variant.route.targets) for name, variant in self._variants.items()}

    def waiting(self) -> dict[str, str]:
        """Variant → why there is no room yet for one of its instances; those that do not wait lack."""
        return {name: variant.waiting for name, variant in self._variants.items() if variant.waiting}

    def counts(self) -> dict[str, int]:
        """Variant → how many instances it is to have."""
        return {name: variant.count for name, variant in self._variants.items()}

    async def retire(self) -> None:
        """End all of it, when what is under way has been answered. It may be cancelled and called again."""
        await asyncio.gather(*(variant.retire() for variant in self._variants.values()))
        await asyncio.to_thread(
            shutil.rmtree, self._dependencies.directory / self.record.id, ignore_errors=True
        )

    async def forget(self) -> None:
        """Look after none of it any more, and let the instances run on."""
        await asyncio.gather(*(variant.forget() for variant in self._variants.values()))


async def _all(work: Sequence[object]) -> None:
    """Run all to their ends; then raise the first error."""
    outcomes = await asyncio.gather(*work, return_exceptions=True)  # type: ignore[call-overload]  # coroutines
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    for error in errors:
        if not isinstance(error, ApiError):
            raise error
    if errors:
        raise errors[0]
