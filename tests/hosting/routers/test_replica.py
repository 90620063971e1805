"""Copies of the routing table after any changes, with messages that are under way for any time."""

import asyncio
import pickle
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import pytest

from halimede.hosting.identity import EndpointId
from halimede.hosting.routers.messages import Idle
from halimede.hosting.routers.publisher import Publisher
from halimede.hosting.routers.replica import Replica
from halimede.hosting.routers.shared_counts import SharedCounts
from halimede.hosting.routing.table import EndpointRoute, FleetRoute, RoutingTable, Target, VariantRoute
from halimede.hosting.shadows.copies import Copies
from halimede.hosting.specs import Container, Variant
from halimede.http1.upstream import UpstreamPool

ROUTERS = 3

T = TypeVar("T")


class Router:
    """A router without a process: what it is told and what it says waits until the test hands it over."""

    def __init__(self, row: int, counts: SharedCounts) -> None:
        self.told: deque[bytes] = deque()
        self.says: deque[object] = deque()
        self.replica = Replica(counts, row, self.says.append)
        self.replica.copies = Copies(is_idle=True)

    def send(self, message: object) -> None:
        self.told.append(pickle.dumps(message))

    def step(self) -> None:
        """Take one message."""
        assert self.replica.apply(pickle.loads(self.told.popleft()))


class World:
    """A table that is changed at random, and the routers that are told."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts = SharedCounts(ROUTERS)
        self.table = RoutingTable()
        self.routers: set[Router] = set()
        self.publisher = Publisher(self.table, self.counts, self.routers, self._nothing)
        self.table.watcher = self.publisher
        self.rows = {row: self._begin(row) for row in range(ROUTERS)}
        self.current: dict[EndpointId, EndpointRoute] = {}
        self.replaced: list[VariantRoute] = []
        self.leaving: list[Target] = []
        self.idle: list[Target] = []
        self.requests: list[tuple[Router, Target]] = []
        self.number = 0

    async def _nothing(self) -> None:
        pass

    def _begin(self, row: int) -> Router:
        router = Router(row, self.counts)
        for message in self.publisher.whole():
            router.send(message)
        self.routers.add(router)
        return router

    # what may happen

    def publish(self) -> None:
        name = self.random.choice("ab")
        route = EndpointRoute(name, "arn", "r", "1", f"c{self._next()}", {
            each: self._variant(each) for each in self.random.sample("XYZ", self.random.randint(1, 3))
        })  # fmt: skip
        if self.random.random() < 0.5:
            [first, *_] = route.variants.values()
            first.shadow = self._variant("W")
            route = replace(route)
        self._retire(route.id)
        self.current[route.id] = route
        self.table.publish(route)

    def withdraw(self) -> None:
        if self.current:
            endpoint = self.random.choice(list(self.current))
            self._retire(endpoint)
            del self.current[endpoint]
            self.table.withdraw(endpoint)

    def _retire(self, endpoint: EndpointId) -> None:
        before = self.current.get(endpoint)
        if before is not None:
            self.replaced += before.every_variant()

    def shift(self) -> None:
        """An update is under way, goes on, comes about or is rolled back."""
        for route in self._some(list(self.current.values())):
            share, variants = self.random.random(), route.variants
            beside = [replace(fleet, share=share) for fleet in route.beside]
            chance = self.random.random()
            if not beside:
                of = {
                    "X": VariantRoute(
                        Variant("X", "m", Container("i"), "t"), 1.0, [self._target()], config="n"
                    )
                }
                beside = [FleetRoute(f"c{self._next()}", of, share)]
            elif chance < 0.3:
                self.replaced += [each for fleet in beside for each in _with_shadows(fleet.variants)]
                beside = []
            elif chance < 0.6:
                self.replaced += _with_shadows(variants)
                variants, beside = beside[0].variants, []
            changed = EndpointRoute(route.name, "arn", "r", "1", f"c{self._next()}", variants, beside)
            self.current[route.id] = changed
            self.table.publish(changed)

    def join(self) -> None:
        for variant in self._some(self._variants()):
            self.table.join(variant, self._target())

    def leave(self) -> None:
        for variant in self._some([*self._variants(), *self.replaced]):
            for target in self._some(variant.targets):
                target.draining = True
                self.table.leave(variant, target)
                self.leaving.append(target)
                target.on_idle = lambda target=target: self.idle.append(target)
                if not target.inflight:
                    self.idle.append(target)

    def weigh(self) -> None:
        for variant in self._some(self._variants()):
            self.table.weigh(variant, self.random.random())

    def request(self) -> None:
        """A router sends a request where its own copy says."""
        router = self.random.choice(list(self.routers))
        variants = [each for route in router.replica.table.routes() for each in route.every_variant()]
        for variant in self._some(variants):
            for target in self._some(variant.targets):
                assert not target.draining
                target.inflight += 1
                self.requests.append((router, target))

    def answer(self) -> None:
        if self.requests:
            _, target = self.requests.pop(self.random.randrange(len(self.requests)))
            target.answered()

    def deliver(self) -> None:
        router = self.random.choice(list(self.routers))
        if router.told and self.random.random() < 0.7:
            router.step()
        elif router.says:
            self._hear(router)

    def die(self) -> None:
        """A router ends, and another one takes its place."""
        row = self.random.randrange(ROUTERS)
        router = self.rows[row]
        self.routers.discard(router)
        self.requests = [each for each in self.requests if each[0] is not router]
        self.counts.clear_row(row)
        self.publisher.gone(router)
        self.rows[row] = self._begin(row)

    # what must hold

    def check_idle(self) -> None:
        """No instance is idle while a router has a request there, or may yet send one."""
        for target in self.idle:
            assert not any(sent.id == target.id for _, sent in self.requests)
            for router in self.routers:
                ids = [
                    each.id
                    for route in router.replica.table.routes()
                    for variant in route.every_variant()
                    for each in variant.targets
                ]
                assert target.id not in ids

    def settle(self) -> None:
        """Everything arrives, and everything is answered."""
        while self.requests or any(router.told or router.says for router in self.routers):
            self.answer()
            for router in self.routers:
                if router.told:
                    router.step()
                if router.says:
                    self._hear(router)

    def check_settled(self) -> None:
        wanted = _content(self.table)
        for router in self.routers:
            assert _content(router.replica.table) == wanted
            assert _shadowed(router.replica.table) == _shadowed(self.table)
            for route in router.replica.table.routes():
                for variant in route.variants.values():
                    assert len(variant.observers) == (variant.shadow is not None)
        assert sorted(each.id for each in self.idle) == sorted(each.id for each in self.leaving)
        known = [target for variant in [*self._variants(), *self.replaced] for target in variant.targets]
        assert not any(target.outstanding for target in known)
        assert len(self.publisher._columns) == len(known)  # noqa: SLF001 - that nothing piles up shows nowhere else
        left = {*self._variants(), *(variant for variant in self.replaced if variant.targets)}
        assert set(self.publisher._variants) == left  # noqa: SLF001 - that nothing piles up shows nowhere else
        numbers = set(self.publisher._by_number)  # noqa: SLF001 - that nothing piles up shows nowhere else
        assert all(router.replica._variants.keys() <= numbers for router in self.routers)  # noqa: SLF001 - that nothing piles up shows nowhere else
        assert not self.publisher._leaving  # noqa: SLF001 - that nothing piles up shows nowhere else

    def _hear(self, router: Router) -> None:
        message = router.says.popleft()
        if isinstance(message, Idle):
            self.publisher.idle(router, message.column)

    def _variants(self) -> list[VariantRoute]:
        return [variant for route in self.current.values() for variant in route.every_variant()]

    def _some(self, of: list[T]) -> list[T]:
        return [self.random.choice(of)] if of else []

    def _variant(self, name: str) -> VariantRoute:
        return VariantRoute(Variant(name, "m", Container("i"), "t"), self.random.random(), [self._target()])

    def _target(self) -> Target:
        return Target(f"i-{self._next()}", UpstreamPool("127.0.0.1", 1))

    def _next(self) -> int:
        self.number += 1
        return self.number


def _with_shadows(variants: Mapping[str, VariantRoute]) -> list[VariantRoute]:
    shadows = [each.shadow for each in variants.values() if each.shadow is not None]
    return [*variants.values(), *shadows]


def _shadowed(table: RoutingTable) -> object:
    """Which variants have a shadow."""
    return {
        route.id: {
            name: variant.shadow.spec.name
            for name, variant in route.variants.items()
            if variant.shadow is not None
        }
        for route in table.routes()
    }


def _content(table: RoutingTable) -> object:
    return {
        route.id: (
            route.config,
            [(fleet.config, fleet.share) for fleet in route.beside],
            [
                {
                    name: (variant.weight, variant.config, sorted(target.id for target in variant.targets))
                    for name, variant in variants.items()
                }
                for variants in route.fleets()
            ],
        )
        for route in table.routes()
    }


@pytest.mark.parametrize("seed", range(60))
def test_copies_become_what_the_table_is_and_no_instance_is_idle_too_early(seed: int) -> None:
    async def run() -> None:
        world = World(seed)
        actions: list[tuple[Callable[[], None], int]] = [
            (world.publish, 2),
            (world.withdraw, 1),
            (world.shift, 3),
            (world.join, 4),
            (world.leave, 4),
            (world.weigh, 2),
            (world.request, 8),
            (world.answer, 8),
            (world.deliver, 30),
            (world.die, 1),
        ]
        for _ in range(400):
            [action] = world.random.choices(*zip(*actions, strict=True))
            action()
            world.check_idle()
        world.settle()
        world.check_idle()
        world.check_settled()
        world.counts.close()

    asyncio.run(run())
