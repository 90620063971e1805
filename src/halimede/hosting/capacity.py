"""Capacity of variants, as autoscaling sees and sets it. The control plane implements it, or a model of it does."""

from dataclasses import dataclass
from typing import Protocol

from halimede.hosting.identity import EndpointId


@dataclass(frozen=True, slots=True)
class VariantCapacity:
    """How many instances a variant has.

    Attributes:
        desired: how many it is to have.
        running: how many take requests.
        is_settled: its endpoint is in service, so that `desired` may be changed.
        instance_type: such as ``ml.local.cpu``.
        reason: why the last change did not come about, "" if it did.
        least: so many instances it must have; 0 for a variant of an asynchronous endpoint.
    """

    desired: int
    running: int
    is_settled: bool
    instance_type: str
    reason: str = ""
    least: int = 1


class Variants(Protocol):
    """All variants of all endpoints."""

    def capacity(self, endpoint: EndpointId, variant: str) -> VariantCapacity | None:
        """How many instances a variant has; None if there is none of that name, or its endpoint is being deleted."""

    async def set_count(self, endpoint: EndpointId, variant: str, count: int) -> None:
        """Have so many instances. It returns before they are there.

        Raises:
            ApiError: that cannot be changed now.
        """
