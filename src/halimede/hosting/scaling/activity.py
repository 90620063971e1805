"""Scaling activities: what autoscaling has done, is doing, and has left, with AWS's texts."""

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from halimede.hosting.errors import ApiError
from halimede.hosting.scaling.decision import Unscaled
from halimede.hosting.scaling.names import NAMESPACE, VariantId

_SET = "set desired instance count to"


class Status(StrEnum):
    """States of an activity, as AWS calls them."""

    PENDING = "Pending"
    IN_PROGRESS = "InProgress"
    SUCCESSFUL = "Successful"
    OVERRIDDEN = "Overridden"
    UNFULFILLED = "Unfulfilled"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Activity:
    """One activity. Times are seconds since 1970.

    Attributes:
        variant: what is scaled.
        id: its id.
        number: later ones have greater numbers.
        cause: why it is done.
        description: what is done.
        started, ended: when; `ended` is None while it goes on.
        status: its state.
        message: what has become of it so far.
        before, after: how many instances there were to be, and are to be; 0 if it is about something else.
        by_policy: a policy wants it, so that a cooldown follows.
        reasons: why nothing was changed (`NotScaledReasons`); nothing if something was.
    """

    variant: VariantId
    id: str
    number: int
    cause: str
    description: str
    started: float
    status: Status
    message: str = ""
    ended: float | None = None
    before: int = 0
    after: int = 0
    by_policy: bool = False
    reasons: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_over(self) -> bool:
        """Nothing of it is left to be done."""
        return self.status not in (Status.PENDING, Status.IN_PROGRESS)

    # a change of the number of instances

    @classmethod
    def of_change(
        cls,
        variant: VariantId,
        number: int,
        cause: str,
        before: int,
        after: int,
        now: float,
        *,
        by_policy: bool,
    ) -> "Activity":
        """A change that has not begun."""
        return cls(
            variant,
            str(uuid.uuid4()),
            number,
            cause,
            f"Setting desired instance count to {after}.",
            now,
            Status.PENDING,
            before=before,
            after=after,
            by_policy=by_policy,
        )

    def accepted(self) -> "Activity":
        """The variant is being changed."""
        message = f"Successfully {_SET} {self.after}. Waiting for change to be fulfilled by {NAMESPACE}."
        return replace(self, status=Status.IN_PROGRESS, message=message)

    def fulfilled(self, now: float) -> "Activity":
        """The variant has been changed."""
        message = f"Successfully {_SET} {self.after}. Change successfully fulfilled by {NAMESPACE}."
        return replace(self, status=Status.SUCCESSFUL, message=message, ended=now)

    def failed(self, reason: str, now: float) -> "Activity":
        """The variant cannot be changed."""
        return replace(
            self, status=Status.FAILED, message=f"Failed to {_SET} {self.after}. Reason: {reason}", ended=now
        )

    def refused(self, error: ApiError, now: float) -> "Activity":
        """The control plane refuses the change."""
        source = f"(Service: AmazonSageMaker; Status Code: {error.status}; Error Code: {error.code})"
        return self.failed(f"{error.message} {source}", now)

    def overridden(self, desired: int, now: float) -> "Activity":
        """Somebody else has set the number of instances since."""
        message = (
            f"Successfully {_SET} {self.after}. Change was overridden: desired instance count is {desired}."
        )
        return replace(self, status=Status.OVERRIDDEN, message=message, ended=now)

    def unfulfilled(self, now: float) -> "Activity":
        """The variant is no more."""
        message = (
            f"Successfully {_SET} {self.after}. Change was not fulfilled by {NAMESPACE}: the variant is gone."
        )
        return replace(self, status=Status.UNFULFILLED, message=message, ended=now)

    # anything else

    @classmethod
    def of_unscaled(
        cls, variant: VariantId, number: int, cause: str, code: Unscaled, now: float, **capacities: int
    ) -> "Activity":
        """A policy was to scale, and nothing was changed; `capacities` are members of `NotScaledReason`."""
        return cls(
            variant,
            str(uuid.uuid4()),
            number,
            cause,
            "Attempting to scale due to alarm triggered",
            now,
            Status.FAILED,
            ended=now,
            reasons=({"Code": str(code), **capacities},),
        )

    @classmethod
    def of_bounds(
        cls, variant: VariantId, number: int, action: str, what: str, refusal: str, now: float
    ) -> "Activity":
        """A scheduled action has set bounds.

        Args:
            variant: whose.
            number: of the activity.
            action: the action's name.
            what: such as ``min capacity to 1 and max capacity to 5``.
            refusal: why they were not set, "" if they were.
            now: the time.
        """
        return cls(
            variant,
            str(uuid.uuid4()),
            number,
            f"scheduled action name {action} was triggered",
            f"Setting {what}",
            now,
            Status.FAILED if refusal else Status.SUCCESSFUL,
            f"Failed to set {what}. Reason: {refusal}" if refusal else f"Successfully set {what}",
            now,
        )

    def document(self) -> dict[str, Any]:
        """What is kept of it."""
        document = asdict(self)
        document["variant"] = self.variant.resource
        return document

    @classmethod
    def from_document(cls, variant: VariantId, document: Mapping[str, Any]) -> "Activity":
        """The activity that was kept."""
        return cls(
            **{
                **document,
                "variant": variant,
                "status": Status(document["status"]),
                "reasons": tuple(document["reasons"]),
            }
        )
