"""Changing the instances of a version that serves: only those that are missing are made, and only the rest is ended.

Like loading, it blocks, and what fails gives back all that it took.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from halimede.backends.placement import placement
from halimede.config.model_config_pb2 import ModelConfig
from halimede.config.normalise import normalise
from halimede.core.errors import HalimedeError, InternalError
from halimede.engine.lifecycle.loading import (
    WantedInstance,
    create_instances,
    instance_specs,
    refuse_places,
)
from halimede.engine.lifecycle.warmup import WarmUpPace, warm_up
from halimede.engine.loaded_version import LoadedInstance, LoadedVersion
from halimede.engine.settings import EngineSettings
from halimede.engine.statistics import ModelStatistics

logger = logging.getLogger("halimede")


@dataclass(frozen=True, slots=True)
class InstanceChange:
    """What becomes of the instances of a version.

    Attributes:
        kept: those that go on, under the names that they have.
        missing: those that are to be made.
    """

    kept: tuple[LoadedInstance, ...]
    missing: tuple[WantedInstance, ...]


def change_of(present: Sequence[LoadedInstance], wanted: Sequence[WantedInstance]) -> InstanceChange:
    """How the instances that are present become those that are wanted: names matter only among equals."""
    free = list(present)
    kept: list[LoadedInstance] = []
    missing: list[WantedInstance] = []
    by_name = {entry.spec.name: entry for entry in present}
    others = []
    for each in wanted:
        entry = by_name.get(each.spec.name)
        if entry in free and entry is not None and _likeness(entry) == _likeness(each):
            free.remove(entry)
            kept.append(entry)
        else:
            others.append(each)
    for each in others:
        alike = (entry for entry in free if _likeness(entry) == _likeness(each))
        if (entry := next(alike, None)) is not None:
            free.remove(entry)
            kept.append(entry)
        else:
            missing.append(each)
    names = {entry.spec.name for entry in kept}
    numbers = {entry.spec.index for entry in kept}
    fresh = []
    for each in missing:
        name = each.spec.name
        group = name.rpartition("_")[0]
        number = 0
        while name in names:
            name, number = f"{group}_{number}", number + 1
        index = next(number for number in range(len(present) + len(wanted)) if number not in numbers)
        names.add(name)
        numbers.add(index)
        fresh.append(each._replace(spec=replace(each.spec, name=name, index=index)))
    return InstanceChange(tuple(kept), tuple(fresh))


def can_change(before: ModelConfig, after: ModelConfig, gpus: Collection[int]) -> bool:
    """Whether the instances of `after` can take the place of those of `before` one by one.

    They can't if the groups place them otherwise than by kind and device, or if they move between processors and GPUs.
    """
    groups = (*before.instance_group, *after.instance_group)
    if any(group.profile or group.secondary_devices for group in groups):
        return False
    kinds = [{group.kind for group in config.instance_group} for config in (before, after)]
    return kinds[0] == kinds[1] or not gpus


def make_instances(
    loaded: LoadedVersion,
    groups: ModelConfig,
    settings: EngineSettings,
    on_long: Callable[[], None] = lambda: None,
) -> tuple[LoadedInstance, ...]:
    """The instances that a version is to have, those among them that are missing made and warmed up. Blocks.

    Args:
        loaded: the version, whose configuration takes over the instance groups.
        groups: a configuration with the instance groups.
        settings: of the engine.
        on_long: called once if their warm-up takes long.

    Raises:
        HalimedeError: one cannot be made; nothing has changed.
    """
    source = loaded.source
    before = ModelConfig()
    before.CopyFrom(source.config)
    after = ModelConfig()
    after.CopyFrom(source.config)
    _set_groups(after, groups)
    places = placement(after, settings.gpus)
    normalise(after, places.gpus)
    refuse_places(after, places)
    change = change_of(loaded.instances, instance_specs(after, settings.host_policies))
    try:
        with ExitStack() as undo:
            undo.callback(partial(_set_groups, source.config, before))
            _set_groups(source.config, after)
            specs = [each.spec for each in change.missing]
            created = create_instances(loaded.backend, specs, undo) if specs else []
            made = []
            pace = WarmUpPace(on_long)
            undo.callback(pace.close)
            for each, instance in zip(change.missing, created, strict=True):
                # its own counts: those of the version are the event loop's by now
                with each.spec.placed():
                    warm_up(source, loaded.signature, instance, each.spec.name, ModelStatistics(), pace)
                made.append(LoadedInstance(each.spec, each.passive, instance, each.limits))
            pace.close()
            undo.pop_all()
    except HalimedeError:
        raise
    except Exception as error:
        logger.exception("failed to change the instances of '%s' version %d", source.name, source.version)
        raise InternalError(f"{type(error).__name__}: {error}") from error
    return (*change.kept, *made)


def _likeness(instance: LoadedInstance | WantedInstance) -> object:
    """What an instance is beside its name."""
    spec = instance.spec
    return spec.kind, spec.device, spec.policy, instance.passive, instance.limits


def _set_groups(config: ModelConfig, other: ModelConfig) -> None:
    """Give a configuration the instance groups of another."""
    del config.instance_group[:]
    config.instance_group.extend(other.instance_group)
