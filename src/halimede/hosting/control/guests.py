"""Others than endpoints that have fleets: the control plane lets them find their instances again, and tells them."""

from collections.abc import Collection, Mapping
from typing import Protocol

from halimede.hosting.identity import Scope
from halimede.hosting.substrates.base import RunningInstance


class Guest(Protocol):
    """Has fleets of its own. Called on the event loop."""

    def fleets(self) -> Collection[str]:
        """The ids of its fleets; instances of other fleets are ended when the host starts."""

    def adopt(self, instances: Mapping[str, RunningInstance]) -> None:
        """Instances that still run, by id; those of its fleets are its."""

    def ended(self, instance_id: str, reason: str) -> bool:
        """An instance has ended by itself: whether it is one of its."""

    async def has_made(self, arn: str, scope: Scope) -> bool:
        """Whether an ARN is that of something that it has made in an account and region.

        Raises:
            ApiError: that cannot be found out.
        """
