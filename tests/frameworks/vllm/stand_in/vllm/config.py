"""The configuration of an engine."""

from dataclasses import dataclass
from typing import Any


@dataclass
class ModelConfig:
    """Of the model; "pooler" makes embeddings, and others write texts."""

    model: str
    max_model_len: int

    def get_diff_sampling_param(self) -> dict[str, Any]:
        """What the model's generation_config.json says of sampling."""
        return {"temperature": 0.5, "max_tokens": 7} if self.model == "warm" else {}


@dataclass
class SchedulerConfig:
    """Of the scheduler."""

    max_num_seqs: int
    stream_interval: int


@dataclass
class CacheConfig:
    """Of the cache."""

    kv_cache_memory_bytes: int | None


@dataclass
class VllmConfig:
    """All of it."""

    model_config: ModelConfig
    scheduler_config: SchedulerConfig
    cache_config: CacheConfig
