"""Which instance takes a request: each has so many at a time, and whoever waits longest is next.

A request is one variant's by the variants' weights, and waits for an instance of that variant. If the variant has none
any more, the request becomes another one's.
"""

import asyncio
import random
from collections import deque
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
    variant: str
    granted: asyncio.Future[Slot]


class Slots:
    """The places at an endpoint's instances. Lives on the event loop."""

    def __init__(self, find_route: FindRoute) -> None:
        """Places at the instances of what `find_route` gives, which may be another one each time."""
        self._find_route = find_route
        self._waiters: deque[_Waiter] = deque()

    @property
    def capacity(self) -> int:
        """How many requests all instances take at a time."""
        route = self._find_route()
        if route is None or route.asynchronous is None:
            return 0
        return route.asynchronous.concurrency * sum(
            not target.draining for variant in route.variants.values() for target in variant.targets
        )

    async def take(self) -> Slot:
        """Wait for a place; `give_back` is to be called with it."""
        waiter = _Waiter("", asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self.grant()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled():
                self.give_back(waiter.granted.result())
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise

    def give_back(self, slot: Slot) -> None:
        """The request is over."""
        slot.target.answered()
        self.grant()

    def grant(self) -> None:
        """Give the places that are free to those that wait."""
        if not self._waiters:
            return
        route = self._find_route()
        if route is None or route.asynchronous is None:
            return
        serving = {name: each for name, each in route.variants.items() if _takes(each)}
        full: set[str] = set()
        still: deque[_Waiter] = deque()
        while self._waiters and len(full) < len(serving):
            waiter = self._waiters.popleft()
            if waiter.granted.done():
                continue
            if waiter.variant not in serving:
                waiter.variant = _choose(serving)
            variant = serving[waiter.variant]
            target = None if waiter.variant in full else _free(variant, route.asynchronous.concurrency)
            if target is None:
                full.add(waiter.variant)
                still.append(waiter)
            else:
                target.inflight += 1
                waiter.granted.set_result(Slot(route, variant, target))
        self._waiters.extendleft(reversed(still))


def _takes(variant: VariantRoute) -> bool:
    return any(not target.draining for target in variant.targets)


def _choose(serving: dict[str, VariantRoute]) -> str:
    """A variant by the variants' weights; any, if all of those that have instances have the weight 0."""
    names = list(serving)
    if len(names) == 1:
        return names[0]
    weights = [serving[name].weight for name in names]
    # which requests go where is no secret
    return random.choices(names, weights if any(weights) else None)[0]  # noqa: S311


def _free(variant: VariantRoute, concurrency: int) -> Target | None:
    """The instance that has the fewest requests, if it takes another one."""
    able = [
        target
        for target in variant.targets
        if not target.draining and not target.refuses and target.outstanding < concurrency
    ]
    return min(able, key=lambda target: target.outstanding, default=None)
