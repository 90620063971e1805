"""Application Auto Scaling for the variants of endpoints: all of it, put together."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from halimede.core.tasks import Tasks
from halimede.hosting.api.services import Service
from halimede.hosting.capacity import Variants
from halimede.hosting.each_second import EachSecond
from halimede.hosting.errors import ApiError, invalid
from halimede.hosting.identity import Caller, EndpointId
from halimede.hosting.scaling.activity_operations import ActivityOperations
from halimede.hosting.scaling.alarms import AlarmAction, Alarms, delete_alarms
from halimede.hosting.scaling.names import POLICY_PREFIX
from halimede.hosting.scaling.policy_operations import PolicyOperations
from halimede.hosting.scaling.records import Target
from halimede.hosting.scaling.scaler import Scaler
from halimede.hosting.scaling.schedule_operations import ScheduleOperations
from halimede.hosting.scaling.scheduler import Scheduler
from halimede.hosting.scaling.state import ScalingState
from halimede.hosting.scaling.target_operations import TargetOperations

logger = logging.getLogger("halimede")


def _same(seconds: float) -> float:
    """As long as AWS's."""
    return seconds


class Autoscaling:
    """Scales variants. Lives on the event loop."""

    def __init__(
        self,
        path: Path,
        variants: Variants,
        alarms: Alarms,
        seconds: Callable[[float], float] = _same,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is scaled before `start`.

        Args:
            path: the file that keeps targets, policies, scheduled actions and activities.
            variants: what is scaled.
            alarms: because of which.
            seconds: what a time of AWS's takes here; scheduled actions go by the clock nonetheless.
            now: the time, in seconds since 1970.
        """
        self._state = ScalingState(path)
        self._variants = variants
        self._alarms = alarms
        self._scaler = Scaler(self._state, variants, alarms, seconds, now)
        self._scheduler = Scheduler(self._state, now)
        self._policies = PolicyOperations(self._state, alarms, now)
        self._now = now
        self._is_open = False
        alarms.add_action(POLICY_PREFIX, self._note)
        self._ticking = EachSecond("autoscaling", self.tick)
        self._forgetting = Tasks()

    def service(self) -> Service:
        """The service's operations."""
        targets = TargetOperations(
            self._state, self._scaler, self._variants, self._alarms, self._now, self._policies.complete
        )
        operations = {
            **targets.operations(),
            **self._policies.operations(),
            **ScheduleOperations(self._state, self._variants, self._now).operations(),
            **ActivityOperations(self._state, self._now).operations(),
        }
        return Service("application-autoscaling", operations, about=self._about)

    def _about(self, _: str, request: Mapping[str, Any], caller: Caller) -> Collection[str]:
        """The endpoint of the scalable target whose ARN a request has."""
        arn = request.get("ResourceARN")
        return [
            target.variant.endpoint for target in self._state.targets_of(caller.scope) if target.arn == arn
        ]

    async def open(self) -> None:
        """Read what was there before. The alarms and the variants have been read already.

        Raises:
            DatabaseError: the file cannot be used.
        """
        await self._state.open()
        for target in list(self._state.targets.values()):
            variant = target.variant
            if self._variants.capacity(variant.endpoint_id, variant.variant) is None:
                await self._remove(target)
        try:
            await self._policies.complete()
        except ApiError as error:
            logger.error("alarms of scaling policies cannot be made: %s", error.message)
        self._is_open = True

    async def start(self) -> None:
        """Read what was there before, and go on with it.

        Raises:
            DatabaseError: the file cannot be used.
        """
        await self.open()
        self._ticking.start()

    async def stop(self) -> None:
        """Scale no more. What is being done goes on when the host is started again."""
        await self._ticking.stop()
        await self._forgetting.wait()
        async with self._state.changing:
            await self._state.close()

    def _note(self, action: AlarmAction) -> None:
        if self._is_open:  # alarms are evaluated before, and will be again
            self._scaler.note(action)

    async def tick(self) -> None:
        """What is done each second."""
        async with self._state.changing:
            await self._scheduler.tick()
            await self._scaler.tick()

    # endpoints

    def check_update(self, endpoint: EndpointId, instance_types: Mapping[str, str]) -> None:
        """Refuse an update of an endpoint that its targets forbid.

        Args:
            endpoint: which is to be updated.
            instance_types: variant → instance type, of all variants that it is to have.

        Raises:
            ApiError: a target would be removed, or get another instance type.
        """
        held = []
        for variant in self._state.targets:
            if variant.endpoint_id == endpoint:
                capacity = self._variants.capacity(endpoint, variant.variant)
                if capacity is not None and instance_types.get(variant.variant) != capacity.instance_type:
                    held.append(variant.variant)
        if held:
            raise invalid(
                f'The variant(s) "[{", ".join(sorted(held))}]" must be deregistered as scalable targets with AWS Auto '
                f"Scaling before they can be removed or have their instance type updated."
            )

    def forget(self, endpoint: EndpointId) -> None:
        """An endpoint is gone: its targets, policies, scheduled actions and alarms go too."""
        for target in list(self._state.targets.values()):
            if target.variant.endpoint_id == endpoint:
                what = f"deregistering {target.variant.resource}"
                self._forgetting.start(what, self._remove_logged(target))

    async def _remove_logged(self, target: Target) -> None:
        async with self._state.changing:
            try:
                await self._remove(target)
            except ApiError as error:
                logger.error("%s: %s", target.variant.resource, error.message)

    async def _remove(self, target: Target) -> None:
        variant = target.variant
        if variant not in self._state.targets or self._state.targets[variant].arn != target.arn:
            return
        alarms = [name for policy in self._state.policies(variant).values() for name in policy.alarms]
        try:
            await delete_alarms(self._alarms, variant.scope, alarms)
        except ApiError as error:
            logger.warning("%s: %s", variant.resource, error.message)
        self._scaler.forget(variant)
        await self._state.remove_target(target)
