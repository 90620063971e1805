"""A router's copy of the routing table, kept as the host's own process says. Lives on the event loop."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from halimede.hosting.identity import EndpointId
from halimede.hosting.routers.messages import (
    Counted,
    Forget,
    Idle,
    Join,
    Leave,
    Publish,
    TargetEntry,
    VariantEntry,
    Weigh,
    Withdraw,
)
from halimede.hosting.routers.placements import RemotePlacements
from halimede.hosting.routers.shared_counts import SharedCounts
from halimede.hosting.routing.counts import CountingMeter, InvocationCounts
from halimede.hosting.routing.table import EndpointRoute, FleetRoute, RoutingTable, Target, VariantRoute
from halimede.hosting.routing.taps import Observer
from halimede.hosting.shadows.copies import Copies
from halimede.hosting.specs import Variant
from halimede.http1.upstream import UpstreamPool

Send = Callable[[object], None]
Observers = Callable[[EndpointId, Variant, CountingMeter], Sequence[Observer]]


def _observe_nothing(_: EndpointId, __: Variant, ___: CountingMeter) -> Sequence[Observer]:
    return ()


class SharedTarget(Target):
    """An instance whose requests in flight all processes see."""

    def __init__(self, entry: TargetEntry, counts: SharedCounts, row: int) -> None:
        self._counts = counts
        self._row = row
        self.column = entry.column
        super().__init__(
            entry.id,
            UpstreamPool(entry.host, entry.port, entry.unix_socket),
            elsewhere=lambda: counts.total(entry.column, without=row),
        )

    @property
    def inflight(self) -> int:
        """Requests that this process has sent to it and that have not been answered."""
        return self._counts.get(self._row, self.column)

    @inflight.setter
    def inflight(self, count: int) -> None:
        self._counts.put(self._row, self.column, count)


class Replica:
    """The copy.

    Attributes:
        table: what requests are routed by.
        placements: asks where models are.
        observers: what looks at the invocations of an endpoint's variant, and counts with a meter.
        copies: of this router's invocations, for shadow variants; None to make none.
    """

    def __init__(self, counts: SharedCounts, row: int, send: Send) -> None:
        """An empty copy.

        Args:
            counts: requests in flight, of all processes.
            row: the router's own row of them.
            send: tells the host's own process something.
        """
        self.table = RoutingTable()
        self.copies: Copies | None = None
        self.placements = RemotePlacements(send, self._target)
        self.observers: Observers = _observe_nothing
        self._counts = counts
        self._row = row
        self._send = send
        self._variants: dict[int, VariantRoute] = {}
        self._targets: dict[int, tuple[VariantRoute, SharedTarget]] = {}
        self._meters: dict[tuple[EndpointId, str, str], CountingMeter] = {}
        self._does: dict[type, Callable[[Any], None]] = {
            Publish: self._publish,
            Withdraw: lambda message: self.table.withdraw(message.endpoint),
            Join: self._join,
            Leave: self._leave,
            Weigh: self._weigh,
            Forget: self._forget,
        }

    def apply(self, message: object) -> bool:
        """Do what a message says; False if it is about something else."""
        does = self._does.get(type(message))
        if does is None:
            return self.placements.apply(message)
        does(message)
        return True

    def _target(self, column: int) -> Target:
        return self._targets[column][1]

    def _publish(self, message: Publish) -> None:
        account, region, name = message.endpoint
        variants = self._variants_of(message.endpoint, message.variants)
        beside = [
            FleetRoute(fleet.config, self._variants_of(message.endpoint, fleet.variants), fleet.share)
            for fleet in message.beside
        ]
        self.table.publish(
            EndpointRoute(
                name, message.arn, region, account, message.config, variants, beside, message.asynchronous
            )
        )

    def _variants_of(self, endpoint: EndpointId, entries: Sequence[VariantEntry]) -> dict[str, VariantRoute]:
        return {each.spec.name: self._variant(endpoint, each) for each in entries}

    def _variant(self, endpoint: EndpointId, entry: VariantEntry) -> VariantRoute:
        route = self._variants.get(entry.number)
        if route is None:
            meter = self._meters.setdefault((endpoint, entry.spec.name, entry.config), CountingMeter())
            observers = self.observers(endpoint, entry.spec, meter)
            route = self._variants[entry.number] = VariantRoute(
                entry.spec, entry.weight, meter=meter, observers=observers, config=entry.config
            )
            if entry.spec.container.multi_model:
                route.residency = self.placements.of(entry.number)
            if entry.shadow is not None and self.copies is not None:
                route.shadow = self._variant(endpoint, entry.shadow)
                route.observers = (*route.observers, self.copies.observer(route, route.shadow))
        elif entry.shadow is not None:
            self._variant(endpoint, entry.shadow)
        for target in entry.targets:
            if target.column not in self._targets:
                self._add(route, target)
        return route

    def _add(self, route: VariantRoute, entry: TargetEntry) -> None:
        target = SharedTarget(entry, self._counts, self._row)
        self._targets[entry.column] = route, target
        self.table.join(route, target)

    def _join(self, message: Join) -> None:
        route = self._variants.get(message.variant)
        if route is not None:  # otherwise it was replaced before this router was started
            self._add(route, message.target)

    def _leave(self, message: Leave) -> None:
        found = self._targets.pop(message.column, None)
        if found is None:  # it left while this router was being started
            self._send(Idle(message.column))
            return
        route, target = found
        target.draining = True
        self.table.leave(route, target)

        def idle() -> None:
            target.on_idle = None
            self.send_counts()  # before whoever waits for it forgets the variant
            self._send(Idle(message.column))

        if target.inflight:
            target.on_idle = idle
        else:
            idle()
        target.pool.close()

    def _weigh(self, message: Weigh) -> None:
        route = self._variants.get(message.variant)
        if route is not None:
            self.table.weigh(route, message.weight)

    def _forget(self, message: Forget) -> None:
        self._variants.pop(message.variant, None)

    # what is counted

    def send_counts(self) -> None:
        """Tell what has been counted since this was last called."""
        taken = list(self._take_counts())
        if taken:
            self._send(Counted(taken))

    def _take_counts(self) -> Iterator[Any]:
        for key, meter in list(self._meters.items()):
            counts = meter.take()
            if counts != InvocationCounts():
                yield *key, counts
            elif self.table.find(*key[0]) is None:
                del self._meters[key]
