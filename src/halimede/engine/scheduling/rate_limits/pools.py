"""The pools of resources that instances of all models share, and how much of each is in use.

A resource is no thing: it is a name, and a number of which instances need some while they execute. A global one has a
pool for the whole server, any other one for each device.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from halimede.config.model_config_pb2 import ModelRateLimiter
from halimede.core.errors import InvalidArgumentError
from halimede.engine.settings import ResourceLimit


class Resource(NamedTuple):
    """What has a pool: a resource, and the device that it is of; None for a global one."""

    name: str
    device: int | None = None


Needs = Mapping[Resource, int]
"""How much an execution needs of each resource."""


def declared_needs(limits: ModelRateLimiter, device: int) -> dict[Resource, int]:
    """What an instance on the device declares; of a resource that is declared twice, the last."""
    return {
        Resource(each.name, None if each.global_ else device): each.count
        for each in map(_Declaration, limits.resources)
    }


class _Declaration:
    """A resource of a configuration; `global` is no attribute that Python can write."""

    __slots__ = ("count", "global_", "name")

    def __init__(self, resource: ModelRateLimiter.Resource) -> None:
        self.name: str = resource.name
        self.count: int = resource.count
        self.global_: bool = getattr(resource, "global")


class Pools:
    """How much there is of each resource, and how much of that is in use.

    Attributes:
        used: what executions hold of each resource; never more than there was when they took it.
    """

    def __init__(self, limits: Sequence[ResourceLimit]) -> None:
        """Pools of the sizes that the limits say; without any, each is as large as the largest declaration."""
        # of several limits for one resource and device, the last counts
        self._limits = {(each.name, each.device): each.count for each in limits}
        self._sizes: dict[Resource, int] = {}
        self.used: dict[Resource, int] = {}

    def size(self, resource: Resource) -> int:
        """How much there is of a resource that is declared."""
        return self._sizes.get(resource, 0)

    def available(self, resource: Resource) -> int:
        """How much is left; below 0 while executions hold more than what the pool has shrunk to."""
        return self._sizes.get(resource, 0) - self.used.get(resource, 0)

    def holds(self, needs: Needs) -> bool:
        """Whether there is enough left for an execution."""
        return all(self.available(resource) >= count for resource, count in needs.items())

    def take(self, needs: Needs) -> None:
        """Let an execution have what it needs, of which there is enough."""
        for resource, count in needs.items():
            self.used[resource] = self.used.get(resource, 0) + count

    def give_back(self, resource: Resource, count: int) -> None:
        """Take back what an execution had."""
        left = self.used[resource] - count
        assert left >= 0, "more was given back than was taken"
        if left:
            self.used[resource] = left
        else:
            del self.used[resource]

    def resize(self, declared: Iterable[Needs]) -> None:
        """Give the pools the sizes that these declarations, of all instances, ask for.

        Raises:
            InvalidArgumentError: one of them could never be met; the sizes stay.
        """
        sizes: dict[Resource, int] = {}
        for needs in declared:
            for resource, count in needs.items():
                sizes[resource] = max(count, sizes.get(resource, 0))
        if self._limits:
            for resource, count in sizes.items():
                sizes[resource] = limit = limit_of(self._limits, resource)
                if limit < count:
                    raise InvalidArgumentError(too_few(resource, limit, count))
        for resource in sizes:
            if resource.device is not None and Resource(resource.name) in sizes:
                raise InvalidArgumentError(
                    f'Resource "{resource.name}" is present as both global and device-specific resource in the '
                    f"model configuration."
                )
        self._sizes = sizes


def limit_of(limits: Mapping[tuple[str, int | None], int], resource: Resource) -> int:
    """The largest number that limits, by name and device, give of the resource; for a global one, of all devices."""
    name, device = resource
    if device is None:
        return max((count for (each, _), count in limits.items() if each == name), default=0)
    return max(limits.get((name, device), 0), limits.get((name, None), 0))


def too_few(resource: Resource, limit: int, count: int) -> str:
    """What to say of a resource of which there is less than an instance needs."""
    return (
        f'Resource count for "{resource.name}" is limited to {limit} which will prevent scheduling of one or more '
        f"model instances, the minimum required count is {count}"
    )
