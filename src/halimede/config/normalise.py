"""Normal form of a configuration: what it leaves out is written down, so that nothing else needs defaults."""

from halimede.config.autofill import ENSEMBLE
from halimede.config.model_config_pb2 import ModelConfig, ModelInstanceGroup

MAX_SEQUENCE_IDLE_MICROSECONDS = 1_000_000

CPU_INSTANCES = {"onnxruntime": 2, "tensorflow": 2}
"""Instances of a group on CPUs that does not say how many; 1 for other backends."""


def normalise(config: ModelConfig, gpus: tuple[int, ...] = ()) -> None:
    """Write the defaults into the configuration, in place. Doing it twice changes nothing.

    Args:
        config: a configuration whose name and backend are filled in.
        gpus: device numbers of the GPUs that the model's backend can use.
    """
    if not config.HasField("version_policy"):
        config.version_policy.latest.num_versions = 1
    _normalise_scheduling(config)
    if config.platform == ENSEMBLE or config.HasField("ensemble_scheduling"):
        config.model_transaction_policy.SetInParent()
        return
    for buffer in ("input_pinned_memory", "output_pinned_memory"):
        if not config.optimization.HasField(buffer):
            getattr(config.optimization, buffer).enable = True
    _normalise_instance_groups(config, gpus)


def _normalise_scheduling(config: ModelConfig) -> None:
    largest = config.max_batch_size
    if config.HasField("dynamic_batching") and largest > 0:
        preferred = config.dynamic_batching.preferred_batch_size
        if not preferred:
            preferred.append(largest)
    if config.HasField("sequence_batching"):
        batching = config.sequence_batching
        if batching.max_sequence_idle_microseconds == 0:
            batching.max_sequence_idle_microseconds = MAX_SEQUENCE_IDLE_MICROSECONDS
        if batching.WhichOneof("strategy_choice") is None:
            batching.direct.SetInParent()
        if batching.HasField("oldest") and largest > 0 and not batching.oldest.preferred_batch_size:
            batching.oldest.preferred_batch_size.append(largest)


def _normalise_instance_groups(config: ModelConfig, gpus: tuple[int, ...]) -> None:
    if not config.instance_group:
        config.instance_group.add().name = config.name
    for index, group in enumerate(config.instance_group):
        if not group.name:
            group.name = f"{config.name}_{index}"
        if group.kind == ModelInstanceGroup.KIND_AUTO:
            group.kind = ModelInstanceGroup.KIND_GPU if gpus else ModelInstanceGroup.KIND_CPU
        if group.kind == ModelInstanceGroup.KIND_GPU and not group.gpus:
            group.gpus.extend(gpus)
        if group.count == 0:
            on_cpu = group.kind == ModelInstanceGroup.KIND_CPU
            group.count = CPU_INSTANCES.get(config.backend, 1) if on_cpu else 1
