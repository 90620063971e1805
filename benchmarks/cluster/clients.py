"""Clients: requests that go where the host's routing sends them, and what becomes of them."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import thread_time_ns

from benchmarks.cluster.instances import Instance
from benchmarks.cluster.times import CONNECT_S
from benchmarks.cluster.virtual_loop import VirtualLoop
from halimede.hosting.errors import ApiError
from halimede.hosting.routing.selection import choose_target, choose_variant
from halimede.hosting.routing.table import UNREACHABLE, EndpointRoute, Placement, Target, VariantRoute

_WAIT_NS = 60_000_000_000
"""How long a request waits for its model (SageMaker's)."""


@dataclass
class Outcomes:
    """What became of requests.

    Attributes:
        sent: how many there were.
        hits: those whose model was loaded when they came.
        answered: those that were answered.
        lost: those that had been sent to an instance which then failed.
        sent_again: how often one found an instance that had failed, and went to another one.
        refused: code of an error → how often a request was answered with it.
        latencies: of those that were answered, in seconds.
        waits: of those that waited for their model, in seconds.
        hit_ns, miss_ns: processor time to find the instance of a model that was loaded, and of another one.
    """

    sent: int = 0
    hits: int = 0
    answered: int = 0
    lost: int = 0
    sent_again: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    latencies: "array[float]" = field(default_factory=lambda: array("f"))
    waits: "array[float]" = field(default_factory=lambda: array("f"))

    hit_ns: "array[int]" = field(default_factory=lambda: array("q"))
    miss_ns: "array[int]" = field(default_factory=lambda: array("q"))

    @property
    def done(self) -> int:
        """How many are over."""
        return self.answered + self.lost + sum(self.refused.values())


class Clients:
    """Sends requests to one endpoint, and counts, as the host's router does."""

    def __init__(self, loop: VirtualLoop, instances: Mapping[str, Instance]) -> None:
        """Clients that have sent nothing; `instances` are those that run, by id."""
        self.outcomes = Outcomes()
        self._loop = loop
        self._instances = instances

    def send(self, route: EndpointRoute, model: str | None, takes_s: float) -> None:
        """Send a request that keeps a processor busy for so many seconds; `model` is for multi-model endpoints."""
        self.outcomes.sent += 1
        _Request(self, choose_variant(route, None), takes_s).begin(model)

    @property
    def loop(self) -> VirtualLoop:
        """Where time is."""
        return self._loop

    def instance(self, target: Target) -> Instance | None:
        """The instance, if it runs."""
        return self._instances.get(target.id)


class _Request:
    """One request, as `Invocation` treats it."""

    __slots__ = (
        "_began_ns",
        "_clients",
        "_is_again",
        "_model",
        "_placement",
        "_sent_ns",
        "_takes_s",
        "_target",
        "_variant",
    )

    def __init__(self, clients: Clients, variant: VariantRoute, takes_s: float) -> None:
        self._clients = clients
        self._variant = variant
        self._model: str | None = None
        self._is_again = False
        self._takes_s = takes_s
        self._began_ns = clients.loop.now_ns()
        self._sent_ns = 0
        self._placement: Placement | None = None
        self._target: Target | None = None

    def begin(self, model: str | None) -> None:
        self._model = model
        residency = self._variant.residency
        if residency is None:
            try:
                target = choose_target(self._variant)
            except ApiError as error:
                self._refused(error)
            else:
                self._send(target)
            return
        assert model is not None
        began_ns = thread_time_ns()
        placement = residency.place(model, self._began_ns + _WAIT_NS, self._placed)
        outcomes, took_ns = self._clients.outcomes, thread_time_ns() - began_ns
        if placement is None:
            outcomes.miss_ns.append(took_ns)
        else:
            outcomes.hit_ns.append(took_ns)
            self._placed(placement)

    def _placed(self, placement: Placement | ApiError) -> None:
        if isinstance(placement, ApiError):
            self._refused(placement)
            return
        outcomes, wait_ns = self._clients.outcomes, self._clients.loop.now_ns() - self._began_ns
        if not self._is_again:
            self._variant.meter.placed(wait_ns, cache_hit=placement.cache_hit)
            outcomes.hits += placement.cache_hit
            if not placement.cache_hit:
                outcomes.waits.append(wait_ns / 1e9)
        self._placement = placement
        self._send(placement.target)

    def _send(self, target: Target) -> None:
        self._target = target
        self._sent_ns = self._clients.loop.now_ns()
        target.inflight += 1
        if not self._is_again:
            self._variant.meter.sent(len(self._variant.targets))
        instance = self._clients.instance(target)
        if instance is None:  # it has failed, and the host does not know yet
            self._clients.loop.call_later(CONNECT_S, self._unsent)
        else:
            instance.submit(self._takes_s, self._answered)

    def _unsent(self) -> None:
        """The instance accepts no connection: the request goes elsewhere."""
        placement, target = self._placement, self._target
        assert target is not None
        self._clients.outcomes.sent_again += 1
        if placement is None:
            target.refuse()
        else:
            placement.failed(UNREACHABLE)
            placement.release()
        target.answered()
        self._target = self._placement = None
        self._is_again = True
        self.begin(self._model)

    def _answered(self, well: bool) -> None:
        outcomes = self._clients.outcomes
        now = self._clients.loop.now_ns()
        assert self._target is not None
        self._target.answered()
        if self._placement is not None:
            self._placement.release()
        if well:
            outcomes.answered += 1
            outcomes.latencies.append((now - self._began_ns) / 1e9)
        else:
            outcomes.lost += 1
        model_ns = now - self._sent_ns
        overhead_ns = self._sent_ns - self._began_ns
        self._variant.meter.ended(200 if well else 424, model_ns, overhead_ns, model_error=not well)

    def _refused(self, error: ApiError) -> None:
        refused = self._clients.outcomes.refused
        refused[error.code] = refused.get(error.code, 0) + 1
        now = self._clients.loop.now_ns()
        self._variant.meter.ended(error.status, 0, now - self._began_ns, model_error=False)
