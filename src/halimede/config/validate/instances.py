"""Instance groups: where instances may be."""

from collections.abc import Iterator

from halimede.config.model_config_pb2 import ModelConfig, ModelInstanceGroup
from halimede.config.validate.problem import Problem

MIN_COMPUTE_CAPABILITY = "6.000000"


def instance_problems(config: ModelConfig, gpus: tuple[int, ...], missing: str = "") -> Iterator[Problem]:
    """Problems of instance groups on a machine with these GPUs; `missing` says why there are none."""
    for index, group in enumerate(config.instance_group):
        where = f"instance_group[{index}]"
        start = f"instance group {group.name} of model {config.name}"
        if group.kind == ModelInstanceGroup.KIND_CPU and group.gpus:
            message = f"{start} has kind KIND_CPU but specifies one or more GPUs"
            yield Problem(config.name, f"{where}.gpus", message, "kind: KIND_GPU")
        if group.kind != ModelInstanceGroup.KIND_GPU:
            continue
        if not gpus:
            message = f"{start} has kind KIND_GPU but no GPUs are available"
            message += f": {missing}" if missing else ""
            yield Problem(config.name, f"{where}.kind", message, "kind: KIND_CPU")
            continue
        for number, gpu in enumerate(group.gpus):
            if gpu not in gpus:
                available = ", ".join(map(str, gpus))
                message = (
                    f"{start} specifies invalid or unsupported gpu id {gpu}. GPUs with at least the minimum "
                    f"required CUDA compute compatibility of {MIN_COMPUTE_CAPABILITY} are: {available}"
                )
                yield Problem(config.name, f"{where}.gpus[{number}]", message, f"gpus: [ {available} ]")
