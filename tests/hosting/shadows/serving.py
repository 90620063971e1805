"""A production variant and its shadow on a real socket, with copies that are really sent."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from halimede.hosting.routing.agreement import ShadowCounts
from halimede.hosting.routing.counts import CountingMeter, InvocationCounts
from halimede.hosting.routing.settings import InvocationSettings
from halimede.hosting.shadows.copies import Copies
from halimede.hosting.shadows.settings import ShadowSettings
from tests.hosting.instances import FakeInstance
from tests.hosting.routing.serving import (
    Runtime,
    SharedRuntime,
    instances,
    runtime,
    variant_route,
)
from tests.support.waiting import wait_until

PRODUCTION, SHADOW = "Production", "Shadow"


class ShadowMeter(CountingMeter):
    """Counts what goes to the shadow variant, whichever process sends it."""

    def absorb(self, counts: InvocationCounts) -> None:
        """Count what another process has counted."""
        self.add(counts)

    @property
    def now(self) -> InvocationCounts:
        """What has been counted so far."""
        return self._counts


@dataclass
class Shadowed:
    """What a test has.

    Attributes:
        host: the runtime.
        primary: the production variant's instance.
        shadow: the shadow variant's; None if it has none.
        copies: those of the tests' own process.
        meter: counts what goes to the shadow variant.
    """

    host: Runtime
    primary: FakeInstance
    shadow: FakeInstance | None
    copies: Copies
    meter: ShadowMeter

    @property
    def counts(self) -> InvocationCounts:
        """What has been counted of the shadow variant."""
        self.host.settle()
        return self.meter.now

    @property
    def agreement(self) -> ShadowCounts:
        """What has been counted of copies."""
        return self.counts.shadow

    def ready(self) -> None:
        """Return once there is a process that sends copies, so that none waits for its start."""
        link = self.copies._link  # noqa: SLF001 - tests need the process before its first copy
        self.host.loop.call(link.want)
        wait_until(lambda: link.frames is not None, "the process")


@contextmanager
def shadowed(
    settings: ShadowSettings | None = None,
    *,
    shadows: int = 1,
    weight: float = 1.0,
    invocations: InvocationSettings | None = None,
) -> Iterator[Shadowed]:
    """A production variant of weight 1 with one instance, and a shadow; in the end nothing is left of any copy."""
    with instances(1 + shadows) as [primary, *others]:
        production = variant_route(PRODUCTION, [primary])
        shadow = variant_route(SHADOW, others, weight)
        meter = shadow.meter = ShadowMeter()
        production.shadow = shadow
        # of the tests' own process; router processes have their own
        copies = Copies(settings or ShadowSettings.of(invocations or InvocationSettings()), is_idle=True)
        production.observers = (copies.observer(production, shadow),)
        with runtime(production, settings=invocations) as host:
            given = copies.free_bytes
            try:
                yield Shadowed(host, primary, others[0] if others else None, copies, meter)
                wait_until(lambda: not any(target.outstanding for target in shadow.targets), "all answers")
                wait_until(lambda: host.loop.call(lambda: not copies.count), "the end of all copies")
                assert copies.free_bytes == given
            finally:
                host.loop.run(copies.close())
                assert copies.free_bytes == given
                if isinstance(host, SharedRuntime):
                    for target in list(shadow.targets):
                        host.loop.call(host.table.leave, shadow, target)


def with_limits(**limits: float) -> ShadowSettings:
    """The usual limits, but for some."""
    return replace(ShadowSettings(), **limits)  # type: ignore[arg-type]
