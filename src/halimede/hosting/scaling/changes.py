"""Changes of the number of instances, each of which is an activity, from their beginning to their end.

Pending ──► InProgress ──► Successful     there are so many instances
   │            │    └───► Overridden     somebody else has set their number since
   │            │    └───► Unfulfilled    the variant is gone
   └────────────┴────────► Failed         the control plane refuses it, or could not bring it about
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from halimede.hosting.capacity import Variants
from halimede.hosting.errors import ApiError
from halimede.hosting.scaling.activity import Activity, Status
from halimede.hosting.scaling.decision import LastScaling
from halimede.hosting.scaling.names import VariantId
from halimede.hosting.scaling.state import ScalingState

logger = logging.getLogger("halimede")


class Changes:
    """Makes changes, and sees what becomes of them."""

    def __init__(self, state: ScalingState, variants: Variants, now: Callable[[], float]) -> None:
        self._state = state
        self._activities = state.activities
        self._variants = variants
        self._now = now

    async def begin(
        self, variant: VariantId, before: int, after: int, cause: str, *, by_policy: bool
    ) -> None:
        """Begin a change.

        Args:
            variant: what is changed.
            before: how many instances there were to be.
            after: how many there are to be.
            cause: why.
            by_policy: a cooldown follows.

        Raises:
            ApiError: it cannot be written down, and has not been begun.
        """
        await self._override(variant, after)
        activity = Activity.of_change(
            variant, self._activities.next_number(), cause, before, after, self._now(), by_policy=by_policy
        )
        logger.info("%s: from %d instances to %d: %s", variant.resource, before, after, cause)
        await self._activities.put(activity)
        await self._set(activity)

    async def _override(self, variant: VariantId, after: int) -> None:
        """See to the end of the change before, if there is one."""
        before = self._activities.unfinished(variant)
        if before is not None:
            await self.follow(before)
        before = self._activities.unfinished(variant)
        if before is not None:
            await self._activities.put(before.overridden(after, self._now()))

    async def _set(self, activity: Activity) -> None:
        variant = activity.variant
        try:
            await self._variants.set_count(variant.endpoint_id, variant.variant, activity.after)
        except ApiError as error:
            logger.warning("%s: %s", variant.resource, error.message)
            await self._activities.put(activity.refused(error, self._now()))
        except Exception:  # of one variant, and the log has what nobody foresaw
            logger.exception("%s cannot be changed", variant.resource)
            reason = "internal error; the log of the host has the details"
            await self._activities.put(activity.failed(reason, self._now()))
        else:
            await self._activities.put(activity.accepted())

    async def follow(self, activity: Activity) -> None:
        """See what has become of a change that was not over.

        Raises:
            ApiError: it cannot be written down.
        """
        variant, now = activity.variant, self._now()
        capacity = self._variants.capacity(variant.endpoint_id, variant.variant)
        if capacity is None:
            await self._activities.put(activity.unfulfilled(now))
        elif not capacity.is_settled:
            return
        elif capacity.desired == activity.after:
            await self._finish(activity, now)
        elif activity.status is Status.PENDING:
            await self._resume(activity)
        elif capacity.reason:
            await self._activities.put(activity.failed(capacity.reason, now))
        else:
            await self._activities.put(activity.overridden(capacity.desired, now))

    async def _resume(self, activity: Activity) -> None:
        """The host ended before the change had been begun."""
        target = self._state.targets.get(activity.variant)
        if target is None or target.limits.nearest(activity.after) != activity.after:
            reason = "the host was started again, and the target does not allow it any more"
            await self._activities.put(activity.failed(reason, self._now()))
        else:
            await self._set(activity)

    async def _finish(self, activity: Activity, now: float) -> None:
        """A change is complete. Its cooldown is written first: an activity that is not over is looked at again."""
        target = self._state.targets.get(activity.variant)
        if activity.by_policy and target is not None:
            last = LastScaling(now, activity.before, activity.after)
            await self._state.put_target(replace(target, last=last))
        await self._activities.put(activity.fulfilled(now))
