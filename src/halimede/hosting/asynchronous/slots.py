"""Which instance takes a request: each has so many at a time, and whoever waits longest is next.

A request is one variant's by the variants' weights, and while an update is under way by the shares of the fleets; it
waits for an instance of that variant. If the variant has none any more, the request becomes another one's.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from halimede.hosting.routing.table import EndpointRoute, Target, VariantRoute

FindRoute = Callable[[], EndpointRoute | None]


@dataclass(frozen=True, slots=True)
class Slot:
    """A place at an instance.

    Attributes:
        route: the endpoint.
        variant: the variant.
        target: the instance; the request counts as one of its in flight.
    """

    route: EndpointRoute
    variant: VariantRoute
    target: Target


@dataclass(slots=True, eq=False)
class _Waiter:
    seq: int
    variant: VariantRoute | None
    granted: asyncio.Future[Slot | None]


class Slots:
    """The places at an endpoint's instances. Lives on the event loop."""

    def __init__(self, find_route: FindRoute) -> None:
        """Places at the instances of what `find_route` gives, which may be another one each time."""
        self._find_route = find_route
        self._waiters: deque[_Waiter] = deque()
        self._taken: Counter[Target] = Counter()

    @property
    def capacity(self) -> int:
        """How many requests all instances take at a time."""
        route = self._find_route()
        if route is None or route.asynchronous is None:
            return 0
        return route.asynchronous.concurrency * len(_staying(route))

    @property
    def leaving(self) -> int:
        """How many requests are at instances that take no others, such as those of the fleet before an update."""
        route = self._find_route()
        staying = set() if route is None else _staying(route)
        return sum(count for target, count in self._taken.items() if target not in staying)

    @property
    def has_one_variant(self) -> bool:
        """Whether no request has to wait for a variant of several while another one has room."""
        route = self._find_route()
        return route is not None and route.only_variant is not None

    async def take(self, seq: int) -> Slot | None:
        """Wait for a place for a request; `give_back` is to be called with it.

        Args:
            seq: the request's place in the queue.

        Returns:
            The place; None if `give_up` was called meanwhile.
        """
        slot = None if self._waiters else self._take_at_once()
        if slot is not None:
            return slot
        waiter = _Waiter(seq, None, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self.grant()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled():
                granted = waiter.granted.result()
                if granted is not None:
                    self.give_back(granted)
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise

    def give_up(self, seq: int) -> None:
        """A request needs no place any more, if it still waits for one."""
        for waiter in self._waiters:
            if waiter.seq == seq and not waiter.granted.done():
                waiter.granted.set_result(None)

    def _take_at_once(self) -> Slot | None:
        """A place that is free now, at the instances of an endpoint that has one variant."""
        route = self._find_route()
        if route is None or route.asynchronous is None or route.only_variant is None:
            return None
        target = _free(route.only_variant, route.asynchronous.concurrency)
        if target is None:
            return None
        return self._slot(route, route.only_variant, target)

    def _slot(self, route: EndpointRoute, variant: VariantRoute, target: Target) -> Slot:
        target.inflight += 1
        self._taken[target] += 1
        return Slot(route, variant, target)

    def give_back(self, slot: Slot) -> None:
        """The request is over."""
        self._taken[slot.target] -= 1
        if not self._taken[slot.target]:
            del self._taken[slot.target]
        slot.target.answered()
        self.grant()

    def grant(self) -> None:
        """Give the places that are free to those that wait."""
        if not self._waiters:
            return
        route = self._find_route()
        if route is None or route.asynchronous is None:
            return
        serving = {variant: share for variant, share in route.shares() if variant.is_able}
        full: set[VariantRoute] = set()
        still: deque[_Waiter] = deque()
        while self._waiters and len(full) < len(serving):
            waiter = self._waiters.popleft()
            if waiter.granted.done():
                continue
            if waiter.variant is None or waiter.variant not in serving:
                waiter.variant = _choose(serving)
            variant = waiter.variant
            target = None if variant in full else _free(variant, route.asynchronous.concurrency)
            if target is None:
                full.add(variant)
                still.append(waiter)
            else:
                waiter.granted.set_result(self._slot(route, variant, target))
        self._waiters.extendleft(reversed(still))


def _staying(route: EndpointRoute) -> set[Target]:
    """The instances that are to take requests."""
    return {target for variant, _ in route.shares() for target in variant.targets if not target.draining}


def _choose(serving: dict[VariantRoute, float]) -> VariantRoute:
    """A variant by the variants' shares; any, if all of those that have instances have none."""
    variants = list(serving)
    if len(variants) == 1:
        return variants[0]
    shares = list(serving.values())
    # which requests go where is no secret
    return random.choices(variants, shares if any(shares) else None)[0]  # noqa: S311


def _free(variant: VariantRoute, concurrency: int) -> Target | None:
    """The instance that has the fewest requests, if it takes another one."""
    able = [
        target
        for target in variant.targets
        if not target.draining and not target.refuses and target.outstanding < concurrency
    ]
    return min(able, key=lambda target: target.outstanding, default=None)
