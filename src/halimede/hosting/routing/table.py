"""Which endpoints there are and where their requests go. Lives on the event loop; the control plane changes it."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from halimede.hosting.errors import ApiError
from halimede.hosting.identity import EndpointId
from halimede.hosting.routing.meters import InvocationMeter, NoMeter
from halimede.hosting.routing.taps import Observer
from halimede.hosting.specs import AsyncSpec, Variant
from halimede.hosting.substrates.base import RunningInstance
from halimede.http1.upstream import UpstreamPool

_REFUSAL_S = 1.0
"""So long an instance that gave no answer gets no requests that others can take."""


@dataclass(slots=True, eq=False)
class Target:
    """An instance that takes requests.

    Attributes:
        id: the instance's.
        pool: connections to it.
        inflight: requests that have been sent to it by this process and not been answered.
        draining: it gets no new requests.
        refuses: it has accepted no connection, or broken off without an answer, a moment ago: requests go to others, if
            there are any. Such an instance has the fewest requests in flight, and must not be preferred for that.
        on_idle: called when a request has been answered and no other is under way.
        elsewhere: how many requests other processes have sent to it that have not been answered; None if there are no
            such processes.
    """

    id: str
    pool: UpstreamPool
    inflight: int = 0
    draining: bool = False
    refuses: bool = False
    on_idle: Callable[[], None] | None = None
    elsewhere: Callable[[], int] | None = None
    _accepting: asyncio.TimerHandle | None = field(default=None, init=False, repr=False)

    @property
    def outstanding(self) -> int:
        """Requests that any process has sent to it and that have not been answered."""
        return self.inflight if self.elsewhere is None else self.inflight + self.elsewhere()

    def refuse(self, seconds: float = _REFUSAL_S, on_accept: Callable[[], None] | None = None) -> None:
        """It has given no answer, and gets no requests for a while that others can take.

        Args:
            seconds: how long.
            on_accept: called when it may be tried again.
        """
        if self._accepting is not None:
            self._accepting.cancel()
        self.refuses = True
        self._accepting = asyncio.get_running_loop().call_later(seconds, self._accept, on_accept)

    def _accept(self, on_accept: Callable[[], None] | None) -> None:
        self.refuses, self._accepting = False, None
        if on_accept is not None:
            on_accept()

    def answered(self) -> None:
        """One of its requests is over."""
        self.inflight -= 1
        if self.on_idle is not None and not self.inflight:
            self.on_idle()


UNREACHABLE = 0
"""In place of a status: the instance accepts no connection."""


@dataclass(slots=True, eq=False)
class Placement:
    """An instance that holds a model, which stays there until the placement is given back.

    Attributes:
        target: the instance.
        path: where to send the request, such as ``/models/4f…/invoke``.
        cache_hit: the model had been loaded when the request came.
        release: to be called once, when the request has been answered or given up.
        failed: to be called before `release` with the status if the instance answered that it has no memory to run
            the model (507), or that it does not have the model (404), and with `UNREACHABLE` if it accepts no
            connection: whether something is done about it, so that the request may be placed again.
    """

    target: Target
    path: str
    cache_hit: bool
    release: Callable[[], None]
    failed: Callable[[int], bool]


class NothingDoneError(ApiError):
    """Nothing could be done about what `Placement.failed` was told, though that could not say so at once."""

    def __init__(self) -> None:
        super().__init__("ServiceUnavailable", "the instance did not run the model", 503)


OnPlaced = Callable[["Placement | ApiError"], None]


class Residency(Protocol):
    """Which models the instances of a multi-model variant hold, and bringing one there that is asked for."""

    def place(self, model: str, deadline_ns: int, on_placed: OnPlaced) -> Placement | None:
        """Where a request for a model goes.

        Args:
            model: the path that `TargetModel` says, relative to the variant's prefix.
            deadline_ns: on the monotonic clock; until then the model has to be there.
            on_placed: called later with the placement, or with what the client is to be told
                (429 ``ModelNotReadyException`` at the deadline, while the load goes on).

        Returns:
            The placement if the model is there, and then `on_placed` is not called; otherwise None.
        """

    def cancel(self, on_placed: OnPlaced) -> None:
        """The client has gone; a load that has begun goes on."""

    def joined(self, target: Target, instance: RunningInstance) -> None:
        """An instance takes requests from now on."""

    def left(self, target: Target) -> None:
        """An instance takes none any more; what it held is gone."""

    def loaded_counts(self) -> Mapping[str, int]:
        """Instance → how many models it holds."""

    async def close(self) -> None:
        """No more requests come: end what is under way."""


@dataclass(slots=True, eq=False)
class VariantRoute:
    """A variant and the instances that serve it.

    Attributes:
        spec: what it is.
        weight: its share of the traffic now.
        targets: its instances that take requests.
        residency: (multi-model) which of them holds what; None for a variant of one model.
        meter: counts its invocations.
        observers: look at its invocations.
        config: the endpoint configuration under whose name they are counted too; "" for none.
        shadow: the variant that gets copies of its requests, and none of its own; None for none.
    """

    spec: Variant
    weight: float
    targets: list[Target] = field(default_factory=list)
    residency: Residency | None = None
    meter: InvocationMeter = field(default_factory=NoMeter)
    observers: Sequence[Observer] = ()
    config: str = ""
    shadow: "VariantRoute | None" = None

    @property
    def is_able(self) -> bool:
        """Whether an instance of it takes requests."""
        return any(not target.draining for target in self.targets)


@dataclass(frozen=True, slots=True, eq=False)
class FleetRoute:
    """Another fleet of an endpoint, which takes a share of its requests while an update is under way.

    Attributes:
        config: the name of its endpoint configuration.
        variants: its variants, by name.
        share: which part of the endpoint's requests it takes.
    """

    config: str
    variants: Mapping[str, VariantRoute]
    share: float


@dataclass(slots=True, eq=False)
class EndpointRoute:
    """An endpoint that takes requests.

    Attributes:
        name: its name.
        arn: its ARN.
        region, account: where its name holds.
        config: the name of its endpoint configuration.
        variants: its variants, by name.
        beside: other fleets, which take their shares of the requests; the variants above take the rest.
        asynchronous: what makes it asynchronous; None if it answers at once.
        only_variant: its variant, if it has no other one, nor another fleet.
    """

    name: str
    arn: str
    region: str
    account: str
    config: str
    variants: Mapping[str, VariantRoute]
    beside: Sequence[FleetRoute] = ()
    asynchronous: AsyncSpec | None = None
    only_variant: VariantRoute | None = field(init=False)

    def __post_init__(self) -> None:
        is_only = len(self.variants) == 1 and not self.beside
        self.only_variant = next(iter(self.variants.values())) if is_only else None

    def fleets(self) -> Iterator[Mapping[str, VariantRoute]]:
        """The variants of each fleet, by name."""
        yield self.variants
        for fleet in self.beside:
            yield fleet.variants

    def shares(self) -> Iterator[tuple[VariantRoute, float]]:
        """Each variant, and which part of the endpoint's requests it takes; 0 for all of a fleet without weights."""
        rest = 1 - sum(fleet.share for fleet in self.beside)
        parts = [(self.variants, max(rest, 0.0)), *((fleet.variants, fleet.share) for fleet in self.beside)]
        for variants, share in parts:
            whole = sum(variant.weight for variant in variants.values())
            for variant in variants.values():
                yield variant, share * variant.weight / whole if whole else 0.0

    def every_variant(self) -> Iterator[VariantRoute]:
        """The variants of all fleets, and their shadows."""
        for variants in self.fleets():
            for variant in variants.values():
                yield variant
                if variant.shadow is not None:
                    yield variant.shadow

    def by_name(self) -> Mapping[str, Sequence[VariantRoute]]:
        """The variants of all fleets and their shadows, by name."""
        found: dict[str, list[VariantRoute]] = {}
        for variant in self.every_variant():
            found.setdefault(variant.spec.name, []).append(variant)
        return found

    @property
    def id(self) -> EndpointId:
        """Which endpoint it is."""
        return EndpointId(self.account, self.region, self.name)


class TableWatcher(Protocol):
    """Is told what has changed in a table, after it has."""

    def published(self, route: EndpointRoute) -> None:
        """Requests for the endpoint go where the route says."""

    def withdrawn(self, endpoint: EndpointId) -> None:
        """The endpoint takes no more requests."""

    def joined(self, variant: VariantRoute, target: Target) -> None:
        """An instance takes requests."""

    def left(self, variant: VariantRoute, target: Target) -> None:
        """An instance takes none any more."""

    def weighed(self, variant: VariantRoute) -> None:
        """The variant has another weight."""

    async def settled(self) -> None:
        """Return once requests go where the table says, whichever process has them."""


class RoutingTable:
    """The endpoints that take requests, by account, region and name.

    Attributes:
        watcher: is told of each change; None for nobody.
        listeners: called after each change, when there may be room for requests that wait.
    """

    def __init__(self) -> None:
        self._routes: dict[tuple[str, str, str], EndpointRoute] = {}
        self.watcher: TableWatcher | None = None
        self.listeners: list[Callable[[], None]] = []

    def _changed(self) -> None:
        for listener in list(self.listeners):
            listener()

    def publish(self, route: EndpointRoute) -> None:
        """From now on requests for the endpoint go where the route says."""
        self._routes[route.id] = route
        if self.watcher is not None:
            self.watcher.published(route)
        self._changed()

    def withdraw(self, endpoint: EndpointId) -> None:
        """The endpoint takes no more requests."""
        if self._routes.pop(endpoint, None) is not None and self.watcher is not None:
            self.watcher.withdrawn(endpoint)
        self._changed()

    def join(self, variant: VariantRoute, target: Target) -> None:
        """From now on an instance of a variant takes requests."""
        variant.targets.append(target)
        if self.watcher is not None:
            self.watcher.joined(variant, target)
        self._changed()

    def leave(self, variant: VariantRoute, target: Target) -> None:
        """An instance of a variant takes no more requests. It is idle once all processes have had their answers."""
        variant.targets.remove(target)
        if self.watcher is not None:
            self.watcher.left(variant, target)
        self._changed()

    def weigh(self, variant: VariantRoute, weight: float) -> None:
        """From now on a variant has another weight."""
        variant.weight = weight
        if self.watcher is not None:
            self.watcher.weighed(variant)
        self._changed()

    async def settled(self) -> None:
        """Return once requests go where the table says, whichever process has them."""
        if self.watcher is not None:
            await self.watcher.settled()

    def find(self, account: str, region: str, name: str) -> EndpointRoute | None:
        """The route of an endpoint that takes requests."""
        return self._routes.get((account, region, name))

    def routes(self) -> Sequence[EndpointRoute]:
        """All of them."""
        return list(self._routes.values())
