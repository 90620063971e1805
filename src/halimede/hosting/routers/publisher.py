"""What router processes are told of the routing table (`table.TableWatcher`), and of the keys of instances.

An instance that leaves is idle only once each router has said that nothing of its own is in flight there: until then
each of them counts as one request of the host's own process.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from halimede.hosting.access.keys import Key
from halimede.hosting.identity import EndpointId
from halimede.hosting.routers.messages import (
    FleetEntry,
    Forget,
    Join,
    KeyBegan,
    KeyEnded,
    Leave,
    Publish,
    TargetEntry,
    VariantEntry,
    Weigh,
    Withdraw,
)
from halimede.hosting.routers.shared_counts import SharedCounts
from halimede.hosting.routing.table import EndpointRoute, RoutingTable, Target, VariantRoute


class Listener(Protocol):
    """A router process."""

    def send(self, message: object) -> None:
        """Tell it something."""


@dataclass(slots=True)
class _Leaving:
    """An instance that routers may still have requests at."""

    target: Target
    routers: set[Listener] = field(default_factory=set)


class Publisher:
    """Keeps the copies of the table what the table is. Lives on the event loop."""

    def __init__(
        self,
        table: RoutingTable,
        counts: SharedCounts,
        routers: Collection[Listener],
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        """Tells a collection of routers, which may change.

        Args:
            table: the table.
            counts: requests in flight, of all routers.
            routers: those that are there.
            settled: returns when they have done all that they were told before.
        """
        self._table = table
        self._counts = counts
        self._routers = routers
        self._settled = settled
        self._numbers = count(1)
        self._variants: dict[VariantRoute, int] = {}
        self._by_number: dict[int, VariantRoute] = {}
        self._columns: dict[Target, int] = {}
        self._targets: dict[int, Target] = {}
        self._published: dict[EndpointId, EndpointRoute] = {}
        self._leaving: dict[int, _Leaving] = {}

    def variant(self, number: int) -> VariantRoute | None:
        """The variant with a number, if it is there."""
        return self._by_number.get(number)

    def column(self, target: Target) -> int | None:
        """The column of an instance, if routers know it."""
        return self._columns.get(target)

    # TableWatcher

    def published(self, route: EndpointRoute) -> None:
        """Requests for the endpoint go where the route says."""
        before = self._published.get(route.id)
        self._published[route.id] = route
        for variant in route.every_variant():
            if variant not in self._variants:
                number = self._variants[variant] = next(self._numbers)
                self._by_number[number] = variant
            for target in variant.targets:
                if target not in self._columns:
                    self._number(target)
        self._tell(self._publication(route))
        self._retire(before)

    def withdrawn(self, endpoint: EndpointId) -> None:
        """The endpoint takes no more requests."""
        self._tell(Withdraw(endpoint))
        self._retire(self._published.pop(endpoint, None))

    def joined(self, variant: VariantRoute, target: Target) -> None:
        """An instance takes requests."""
        number = self._variants.get(variant)
        if number is not None:  # otherwise it is told with the endpoint
            self._number(target)
            self._tell(Join(number, self._entry(target)))

    def left(self, variant: VariantRoute, target: Target) -> None:
        """An instance takes none any more."""
        column = self._columns.pop(target, None)
        if column is None:
            return
        del self._targets[column]
        target.elsewhere = None
        routers = set(self._routers)
        if routers:
            target.inflight += len(routers)
            self._leaving[column] = _Leaving(target, routers)
            self._tell(Leave(column))
        else:
            self._counts.free_column(column)
        self._forget(variant)

    def weighed(self, variant: VariantRoute) -> None:
        """The variant has another weight."""
        number = self._variants.get(variant)
        if number is not None:
            self._tell(Weigh(number, variant.weight))

    async def settled(self) -> None:
        """Return once all routers have the table as it is."""
        await self._settled()

    # RoleWatcher

    def began(self, key: Key) -> None:
        """A key holds from now on."""
        self._tell(KeyBegan(key))

    def ended(self, access_key: str) -> None:
        """The key with an id holds no more."""
        self._tell(KeyEnded(access_key))

    # routers

    def whole(self) -> Iterator[object]:
        """What a router that knows nothing is to be told."""
        for route in self._published.values():
            yield self._publication(route)

    def idle(self, router: Listener, column: int) -> None:
        """Nothing of a router's is in flight at an instance that has left."""
        leaving = self._leaving.get(column)
        if leaving is None or router not in leaving.routers:
            return
        leaving.routers.remove(router)
        if not leaving.routers:
            del self._leaving[column]
            self._counts.free_column(column)
        leaving.target.answered()

    def gone(self, router: Listener) -> None:
        """A router has ended: nothing of its is in flight."""
        for column in list(self._leaving):
            self.idle(router, column)

    def _tell(self, message: object) -> None:
        for router in list(self._routers):
            router.send(message)

    def _number(self, target: Target) -> None:
        column = self._counts.take_column()
        self._columns[target] = column
        self._targets[column] = target
        target.elsewhere = lambda: self._counts.total(column)

    def _retire(self, route: EndpointRoute | None) -> None:
        """An endpoint's variants are out of the table; their instances leave one after the other."""
        if route is not None:
            for variant in route.every_variant():
                self._forget(variant)

    def _forget(self, variant: VariantRoute) -> None:
        """Forget a variant that is out of the table, once no instance of it is left."""
        number = self._variants.get(variant)
        is_current = any(
            variant is each for route in self._published.values() for each in route.every_variant()
        )
        if number is not None and not is_current and not variant.targets:
            del self._variants[variant], self._by_number[number]
            self._tell(Forget(number))

    def _publication(self, route: EndpointRoute) -> Publish:
        beside = [
            FleetEntry(fleet.config, self._entries(fleet.variants), fleet.share) for fleet in route.beside
        ]
        return Publish(
            route.id, route.arn, route.config, self._entries(route.variants), beside, route.asynchronous
        )

    def _entries(self, variants: Mapping[str, VariantRoute]) -> list[VariantEntry]:
        return [self._variant_entry(variant) for variant in variants.values()]

    def _variant_entry(self, variant: VariantRoute) -> VariantEntry:
        return VariantEntry(
            self._variants[variant],
            variant.spec,
            variant.weight,
            [self._entry(target) for target in variant.targets],
            variant.config,
            None if variant.shadow is None else self._variant_entry(variant.shadow),
        )

    def _entry(self, target: Target) -> TargetEntry:
        pool = target.pool
        return TargetEntry(target.id, self._columns[target], pool.host, pool.port, pool.unix_socket)
