"""How models are kept, loaded and made room for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ResidencySettings:
    """Settings of multi-model variants. Times are in seconds.

    Attributes:
        memory_share: the share of an instance's memory that models may take before others must go.
        footprint_factor: what a model that was never loaded is expected to take, relative to its files.
        disk_high, disk_low: shares of the volume: above the first, models that are not loaded are removed from disk,
            the least recently used first, down to the second.
        load_timeout_s: how long loading may take; requests wait less (SageMaker: 360).
        unload_timeout_s: how long unloading may take (SageMaker: 360).
        failure_s: so long a model that could not be loaded is not tried again.
        rounds: how often room is made for a model that the instance has none for.
        half_life: a model's requests count half after so many further ones for each model that its instance holds.
        least_recent, most_recent: bounds of the share of an instance's models that is not unloaded for others, as they
            were used last.
        node_archives: of each machine, so many archives are remembered that it has fetched.
        spill_inflight: an instance with so many requests of one model in flight is busy with it.
        spill_s: so long it must have been, until another instance loads the model too.
    """

    memory_share: float = 0.8
    footprint_factor: float = 1.2
    disk_high: float = 0.9
    disk_low: float = 0.8
    load_timeout_s: float = 360.0
    unload_timeout_s: float = 360.0
    failure_s: float = 5.0
    rounds: int = 5
    half_life: float = 32.0
    least_recent: float = 0.1
    most_recent: float = 0.5
    node_archives: int = 10_000
    spill_inflight: int = 8
    spill_s: float = 2.0
