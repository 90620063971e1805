"""What is wrong with the resources that instances declare for the rate limiter.

A server without one ignores them; how much there is of each, only its flags say.
"""

from collections.abc import Iterator, Mapping, Sequence

from halimede.config.model_config_pb2 import ModelConfig, ModelRateLimiter
from halimede.config.validate import Problem
from halimede.engine.scheduling.rate_limits.pools import Resource, limit_of, too_few
from halimede.engine.settings import ResourceLimit


def resource_problems(config: ModelConfig) -> Iterator[Problem]:
    """Resources of a model that have no name, or of which nothing is needed."""
    for where, resource in _resources(config):
        if not resource.name:
            message = "a resource of the rate limiter has no name"
            yield Problem(config.name, f"{where}.name", message, 'name: "R1"')
        if not resource.count:
            message = f"of resource '{resource.name}' an instance needs 0, which limits nothing"
            yield Problem(config.name, f"{where}.count", message, "count: 1")


def scope_problems(configs: Mapping[str, ModelConfig]) -> Iterator[Problem]:
    """Resources of models of one server, by their names, that are global in one place, and of devices in another."""
    first: dict[str, tuple[bool, str]] = {}
    for name, config in sorted(configs.items()):
        for where, resource in _resources(config):
            is_global: bool = getattr(resource, "global")
            scope, model = first.setdefault(resource.name, (is_global, name))
            if scope != is_global:
                message = (
                    f'Resource "{resource.name}" is present as both global and device-specific resource in the model '
                    f"configuration. In model '{model}' it is {'global' if scope else 'device-specific'}"
                )
                yield Problem(name, f"{where}.global", message, f"global: {str(scope).lower()}")


def pool_problems(configs: Mapping[str, ModelConfig], limits: Sequence[ResourceLimit]) -> Iterator[Problem]:
    """Resources of which models, by their names, need more than there is as the flags say."""
    if not limits:
        return
    counts = {(each.name, each.device): each.count for each in limits}
    for name, config in sorted(configs.items()):
        for where, resource in _resources(config):
            group = config.instance_group[int(where[len("instance_group[") : where.index("]")])]
            devices: Sequence[int | None] = list(group.gpus) or [0]
            if getattr(resource, "global"):
                devices = [None]
            pools = [Resource(resource.name, device) for device in devices]
            limit, pool = min((limit_of(counts, each), each) for each in pools)
            if limit < resource.count:
                fix = (
                    f"count: {limit}" if limit else f"--rate-limit-resource={resource.name}:{resource.count}"
                )
                yield Problem(name, f"{where}.count", too_few(pool, limit, resource.count), fix)


def _resources(config: ModelConfig) -> Iterator[tuple[str, ModelRateLimiter.Resource]]:
    """Each resource that is declared, with its place."""
    for index, group in enumerate(config.instance_group):
        for number, resource in enumerate(group.rate_limiter.resources):
            yield f"instance_group[{index}].rate_limiter.resources[{number}]", resource
