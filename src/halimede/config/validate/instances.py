"""Instance groups: where instances may be."""

from collections.abc import Iterator

from halimede.config.model_config_pb2 import ModelConfig, ModelInstanceGroup
from halimede.config.validate.problem import Problem

MIN_COMPUTE_CAPABILITY = "6.000000"

MAX_INSTANCES = 1024
"""So many instances a model may have, of all its groups on all their GPUs."""


def instance_count_problems(config: ModelConfig) -> Iterator[Problem]:
    """A problem if a model asks for more instances than it may have."""
    total = 0
    for index, group in enumerate(config.instance_group):
        total += max(0, group.count) * max(1, len(group.gpus))
        if total > MAX_INSTANCES:
            message = (
                f"instance group {group.name} of model {config.name} has a count of {group.count}, which makes "
                f"{total} instances of the model, but a model may have at most {MAX_INSTANCES}"
            )
            yield Problem(config.name, f"instance_group[{index}].count", message, "count: 1")
            return


def instance_problems(config: ModelConfig, gpus: tuple[int, ...], missing: str = "") -> Iterator[Problem]:
    """Problems of instance groups on a machine with these GPUs; `missing` says why there are none."""
    for index, group in enumerate(config.instance_group):
        where = f"instance_group[{index}]"
        start = f"instance group {group.name} of model {config.name}"
        if group.count < 0:
            message = f"{start} has a count of {group.count}, which must not be negative"
            yield Problem(config.name, f"{where}.count", message, "count: 1")
        if group.kind in (ModelInstanceGroup.KIND_CPU, ModelInstanceGroup.KIND_MODEL) and group.gpus:
            kind = ModelInstanceGroup.Kind.Name(group.kind)
            message = f"{start} has kind {kind} but specifies one or more GPUs"
            message += f". None can be used: {missing}" if missing else ""
            yield Problem(config.name, f"{where}.gpus", message, "kind: KIND_GPU" if gpus else "remove gpus")
        if group.kind == ModelInstanceGroup.KIND_GPU:
            yield from _gpu_problems(config, group, where, start, gpus, missing)
        if group.profile and "tensorrt" not in (config.backend, config.platform.removesuffix("_plan")):
            platform = f"{config.platform} " if config.platform else ""
            message = (
                f"{start} and platform {platform}specifies profile field which is only supported for TensorRT "
                "models"
            )
            yield Problem(config.name, f"{where}.profile", message, "remove profile")
    if config.instance_group and all(group.passive for group in config.instance_group):
        message = (
            f"all instance groups of model {config.name} are passive: no instance would take its requests"
        )
        yield Problem(config.name, "instance_group[0].passive", message, "passive: false")


def _gpu_problems(
    config: ModelConfig,
    group: ModelInstanceGroup,
    where: str,
    start: str,
    gpus: tuple[int, ...],
    missing: str,
) -> Iterator[Problem]:
    """Problems of a group that is to be on GPUs; without any named, it is on all of them."""
    reason = f": {missing}" if missing else ""
    if not gpus and not group.gpus:
        message = f"{start} has kind KIND_GPU but no GPUs are available{reason}"
        yield Problem(config.name, f"{where}.kind", message, "kind: KIND_CPU")
    for number, gpu in enumerate(group.gpus):
        if gpu not in gpus:
            available = ", ".join(map(str, gpus))
            message = (
                f"{start} specifies invalid or unsupported gpu id {gpu}. GPUs with at least the minimum "
                f"required CUDA compute compatibility of {MIN_COMPUTE_CAPABILITY} are: "
                f"{available or f'none{reason}'}"
            )
            fix = f"gpus: [ {available} ]" if gpus else "kind: KIND_CPU"
            yield Problem(config.name, f"{where}.gpus[{number}]", message, fix)
