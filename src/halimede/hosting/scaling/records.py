"""What is kept of scalable targets, their policies and their scheduled actions. Times are seconds since 1970."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from halimede.hosting.scaling.decision import LastScaling, Limits
from halimede.hosting.scaling.names import VariantId

TRACKING = "TargetTrackingScaling"
STEPPING = "StepScaling"


@dataclass(frozen=True, slots=True)
class Target:
    """A variant that is scaled.

    Attributes:
        variant: which one it is.
        arn: of the target, not the variant.
        role: the ARN of a role, as it was given.
        created: when.
        minimum, maximum: instances.
        in_suspended, out_suspended: policies do not remove instances, or do not add any.
        schedule_suspended: scheduled actions do not run.
        is_bounded: the number of instances has been brought within the bounds since they were set.
        last: the last change that a policy made.
    """

    variant: VariantId
    arn: str
    role: str
    created: float
    minimum: int
    maximum: int
    in_suspended: bool = False
    out_suspended: bool = False
    schedule_suspended: bool = False
    is_bounded: bool = False
    last: LastScaling | None = None

    @property
    def limits(self) -> Limits:
        """Within which bounds policies may decide."""
        return Limits(self.minimum, self.maximum, self.in_suspended, self.out_suspended)

    def document(self) -> dict[str, Any]:
        """What is kept of it."""
        return _document(self)

    @classmethod
    def from_document(cls, variant: VariantId, document: Mapping[str, Any]) -> "Target":
        """The target that was kept."""
        last = document["last"]
        return cls(variant, **{**document, "last": LastScaling(**last) if last else None})


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    """A scaling policy.

    Attributes:
        variant: what it scales.
        name: its name.
        arn: its ARN.
        created: when.
        kind: its `PolicyType`.
        config: its configuration, as it was asked for.
        alarms: the names of the alarms that were made for it: the high one and, unless it never scales in, the low one.
        is_settled: those alarms are as the configuration says, and there are no others of it.
    """

    variant: VariantId
    name: str
    arn: str
    created: float
    kind: str
    config: Mapping[str, Any]
    alarms: tuple[str, ...] = ()
    is_settled: bool = True

    def document(self) -> dict[str, Any]:
        """What is kept of it."""
        return _document(self)

    @classmethod
    def from_document(cls, variant: VariantId, document: Mapping[str, Any]) -> "PolicyRecord":
        """The policy that was kept."""
        return cls(variant, **{**document, "alarms": tuple(document["alarms"])})


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """A scheduled action.

    Attributes:
        variant: what it scales.
        name: its name.
        arn: its ARN.
        created: when.
        schedule: the expression.
        zone: its time zone, "" for UTC.
        start, end: it runs within these; None for no bound.
        minimum, maximum: the target's new ones; None for the one it has.
        due: when it runs next; None for never.
    """

    variant: VariantId
    name: str
    arn: str
    created: float
    schedule: str
    zone: str = ""
    start: float | None = None
    end: float | None = None
    minimum: int | None = None
    maximum: int | None = None
    due: float | None = None

    def document(self) -> dict[str, Any]:
        """What is kept of it."""
        return _document(self)

    @classmethod
    def from_document(cls, variant: VariantId, document: Mapping[str, Any]) -> "ActionRecord":
        """The scheduled action that was kept."""
        return cls(variant, **document)


def _document(record: Target | PolicyRecord | ActionRecord) -> dict[str, Any]:
    document = asdict(record)
    del document["variant"]  # what it is kept under says that
    return document
