"""Times of the control plane, and what it is given of the rest of the host."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from halimede.core.clock import WALL_CLOCK
from halimede.hosting.http.ping import ping
from halimede.hosting.identity import EndpointId, Scope
from halimede.hosting.metering.alarms.alarm import Alarm
from halimede.hosting.routing.meters import InvocationMeter
from halimede.hosting.routing.table import Residency, RoutingTable, VariantRoute
from halimede.hosting.routing.taps import NoObserver, Observer
from halimede.hosting.specs import Variant
from halimede.hosting.store.source import ModelSource, OnProgress
from halimede.hosting.substrates.base import Resources, Substrate


@dataclass(frozen=True, slots=True)
class ControlSettings:
    """Times, in seconds.

    Attributes:
        first_ping_s: between two pings of an instance that is starting.
        ping_s: between two pings of one that serves.
        ping_timeout_s: how long an answer to a ping may take.
        failed_pings: so many in a row and the instance is replaced.
        drain_s: how long requests that are under way may take when their instance is to go.
        starts: how often an instance is started that ends before it has answered, until its endpoint fails.
        grace_s: how long an instance may take to end after it was asked to (SageMaker: 30).
        backoff_s: before an instance that ended is replaced; twice as long each time that it ends again soon.
        longest_backoff_s: but not longer than this.
        look_s: how often alarms and the new fleet are looked at while an update is under way.
        describe_hold_s: how long DescribeEndpoint may hold its answer while the endpoint changes; 0 for not at all.
    """

    first_ping_s: float = 0.05
    ping_s: float = 5.0
    ping_timeout_s: float = 2.0
    failed_pings: int = 3
    drain_s: float = 30.0
    starts: int = 2
    grace_s: float = 30.0
    backoff_s: float = 1.0
    longest_backoff_s: float = 60.0
    look_s: float = 0.25
    describe_hold_s: float = 20.0


def _ignore(_: EndpointId) -> None:
    """Nobody counts."""


def _tell_nobody(_: EndpointId, __: str, ___: str) -> OnProgress:
    return lambda done, total: None


def _no_variables(_: EndpointId, __: str, ___: Variant) -> Mapping[str, str]:
    return {}


def _end_nothing(_: str, __: str) -> None:
    """Nothing was begun."""


def _observe_nothing(_: EndpointId, __: Variant) -> Sequence[Observer]:
    return ()


def _is_never() -> bool:
    return False


def _copy_nothing(_: VariantRoute, __: VariantRoute) -> Observer:
    return NoObserver()


def _keep_priority(_: int) -> None:
    """All processes are alike."""


def _allow(_: EndpointId, __: Mapping[str, str]) -> None:
    """Nobody minds."""


def _no_alarm(_: Scope, __: str) -> None:
    """There are no alarms."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What fleets are made with.

    Attributes:
        substrate: where instances run.
        source_of: where the model archives of an account's endpoints come from.
        table: where requests learn where to go.
        directory: where extracted models of fleets are.
        resources: what an instance of a type may use; raises an ApiError for a type that the catalogue lacks.
        make_residency: keeps track of the models of an endpoint's multi-model variant.
        make_meter: counts the invocations of an endpoint's variant; with the name of an endpoint configuration, also
            those of its instances alone.
        settings: times.
        forget_meters: the endpoint is gone.
        begin_fetch: makes what is told how far the fetch of a model has come, for an endpoint, a variant and a URL.
        begin_role: the variables that instances of an endpoint's variant get of the platform, with keys that hold until
            the role is ended, given the fleet's id.
        end_role: the fleet with that id has no more instances of the variant with that name.
        check_update: raises an ApiError if an endpoint may not have these variants, given as variant → instance type.
        alarm: the CloudWatch alarm of a name, if an account and region have one.
        now: the time, in seconds since 1970.
        make_shadow: makes copies of a variant's requests for another one.
        lower_priority: called with a process of this machine, whose session is to make way for others where there are
            too few processors.
        ping: asks what listens at an address and a port whether it is well, within so many seconds; see `http.ping`.
        observers: what looks at the invocations of an endpoint's variant.
        is_capture_stopped: whether nothing is captured for want of room on the disk.
    """

    substrate: Substrate
    source_of: Callable[[str], ModelSource]
    table: RoutingTable
    directory: Path
    resources: Callable[[str], Resources]
    make_residency: Callable[[EndpointId, VariantRoute], Residency]
    make_meter: Callable[[EndpointId, str, str], InvocationMeter]
    settings: ControlSettings = ControlSettings()
    forget_meters: Callable[[EndpointId], None] = _ignore
    begin_fetch: Callable[[EndpointId, str, str], OnProgress] = _tell_nobody
    begin_role: Callable[[EndpointId, str, Variant], Mapping[str, str]] = _no_variables
    end_role: Callable[[str, str], None] = _end_nothing
    check_update: Callable[[EndpointId, Mapping[str, str]], None] = _allow
    alarm: Callable[[Scope, str], Alarm | None] = _no_alarm
    now: Callable[[], float] = WALL_CLOCK.now
    make_shadow: Callable[[VariantRoute, VariantRoute], Observer] = _copy_nothing
    lower_priority: Callable[[int], object] = _keep_priority
    ping: Callable[[str, int, float], Awaitable[str]] = ping
    observers: Callable[[EndpointId, Variant], Sequence[Observer]] = _observe_nothing
    is_capture_stopped: Callable[[], bool] = _is_never
