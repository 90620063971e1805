"""What the host's own process and its router processes tell each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from halimede.hosting.access.keys import Key
from halimede.hosting.capture.settings import CaptureSettings
from halimede.hosting.identity import Caller, EndpointId
from halimede.hosting.routing.counts import InvocationCounts
from halimede.hosting.routing.settings import InvocationSettings
from halimede.hosting.specs import AsyncSpec, Variant

# to a router


@dataclass(frozen=True, slots=True)
class Begin:
    """The first message: what a router needs of the host's settings.

    Attributes:
        address, allowed_hosts, allowed_origins: by which names clients, and which web pages, may ask.
        keys: access keys, by id; None to let anybody in.
        caller: whose account and region count where a request does not say.
        invocation: limits of invocations.
        receive_bytes: the router's share of the memory of bodies that are received.
        instance_keys: the keys of instances that hold.
        capture_directory, capture: where what is captured is written, and what that may take.
        session_key: what ids of sessions are made with.
        closed_sessions: sessions that are closed, with the times at which they would have ended.
        time: what the host's `WallClock` shows, as sessions end by it.
    """

    address: str
    allowed_hosts: Sequence[str]
    allowed_origins: Sequence[str]
    keys: Mapping[str, Key] | None
    caller: Caller
    invocation: InvocationSettings
    receive_bytes: int
    instance_keys: Sequence[Key]
    capture_directory: Path
    capture: CaptureSettings
    session_key: bytes
    closed_sessions: Mapping[str, int]
    time: tuple[float, float]


@dataclass(frozen=True, slots=True)
class TargetEntry:
    """An instance that takes requests.

    Attributes:
        id: the instance's.
        column: where its requests in flight are counted; no other instance has it meanwhile.
        host, port, unix_socket: where it listens.
    """

    id: str
    column: int
    host: str
    port: int
    unix_socket: str


@dataclass(frozen=True, slots=True)
class VariantEntry:
    """A variant.

    Attributes:
        number: no other variant ever has it.
        spec: what it is.
        weight: its share of the traffic.
        targets: its instances.
        config: the endpoint configuration under whose name it is counted too; "" for none.
        shadow: the variant that gets copies of its requests.
    """

    number: int
    spec: Variant
    weight: float
    targets: Sequence[TargetEntry]
    config: str
    shadow: "VariantEntry | None" = None


@dataclass(frozen=True, slots=True)
class FleetEntry:
    """Another fleet of an endpoint, with its share of the requests."""

    config: str
    variants: Sequence[VariantEntry]
    share: float


@dataclass(frozen=True, slots=True)
class Publish:
    """An endpoint takes requests, or others than before take them."""

    endpoint: EndpointId
    arn: str
    config: str
    variants: Sequence[VariantEntry]
    beside: Sequence[FleetEntry]
    asynchronous: AsyncSpec | None = None


@dataclass(frozen=True, slots=True)
class Withdraw:
    """An endpoint takes no more requests."""

    endpoint: EndpointId


@dataclass(frozen=True, slots=True)
class Join:
    """An instance of a variant takes requests."""

    variant: int
    target: TargetEntry


@dataclass(frozen=True, slots=True)
class Leave:
    """An instance takes none any more; `Idle` is to be answered once none is in flight."""

    column: int


@dataclass(frozen=True, slots=True)
class Weigh:
    """A variant has another weight."""

    variant: int
    weight: float


@dataclass(frozen=True, slots=True)
class Forget:
    """A variant is gone, with all its instances."""

    variant: int


@dataclass(frozen=True, slots=True)
class KeyBegan:
    """A key of instances holds."""

    key: Key


@dataclass(frozen=True, slots=True)
class KeyEnded:
    """A key of instances holds no more."""

    id: str


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """A session is closed, which would have ended at a time in seconds since 1970; it is told in both directions."""

    token: str
    expires: int


@dataclass(frozen=True, slots=True)
class Sync:
    """All before this is to have been done when `Synced` is answered, with the same number."""

    number: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A request has found its model.

    Attributes:
        request: the router's number of it.
        placement: to be said when it is given back.
        column: the instance.
        path: where to send the request.
        cache_hit: the model had been loaded.
    """

    request: int
    placement: int
    column: int
    path: str
    cache_hit: bool


@dataclass(frozen=True, slots=True)
class NotPlaced:
    """A request will not find its model: an `ApiError`."""

    request: int
    code: str
    message: str
    status: int
    fields: dict[str, object]


@dataclass(frozen=True, slots=True)
class NothingDone:
    """Nothing could be done about the failure after which a request was to be placed again."""

    request: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Answer what has been asked, and end."""

    grace_s: float


# to the host's own process


@dataclass(frozen=True, slots=True)
class Synced:
    """All before the `Sync` of that number has been done."""

    number: int


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing is in flight, or ever will be, at an instance that has left."""

    column: int


@dataclass(frozen=True, slots=True)
class Counted:
    """What has been counted of variants since the last time, by endpoint, variant and `VariantEntry.config`."""

    counts: Sequence[tuple[EndpointId, str, str, InvocationCounts]]


@dataclass(frozen=True, slots=True)
class Place:
    """A request for a model of a multi-model variant.

    Attributes:
        request: no other one of this router ever has it.
        variant: the variant.
        model: what `TargetModel` says.
        deadline_ns: until then it must be there, on the monotonic clock, which all processes of a machine share.
        after: the placement of the same request that has just failed; 0 for none.
    """

    request: int
    variant: int
    model: str
    deadline_ns: int
    after: int = 0


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody waits for a placement any more."""

    request: int


@dataclass(frozen=True, slots=True)
class Failed:
    """An instance has answered that it does not have a model, or lacks the memory to run it."""

    placement: int
    status: int


@dataclass(frozen=True, slots=True)
class Release:
    """A placement is given back."""

    placement: int


@dataclass(frozen=True, slots=True)
class Logged:
    """A line for the log."""

    level: int
    text: str
