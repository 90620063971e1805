"""Arguments of the engine: those that repositories have in model.json."""

from dataclasses import dataclass
from typing import Any

from ..config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
from ..usage.usage_lib import UsageContext


@dataclass
class AsyncEngineArgs:
    """As vLLM has them; unknown ones are a TypeError."""

    model: str = "Qwen/Qwen3-0.6B"
    tokenizer: str | None = None
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float = 0.9
    kv_cache_memory_bytes: int | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    enforce_eager: bool = False
    enable_lora: bool = False
    max_loras: int = 1
    stream_interval: int = 1
    disable_log_stats: bool = False
    enable_log_requests: bool = False
    aggregate_engine_logging: bool = False

    def create_engine_config(self, usage_context: UsageContext | None = None) -> VllmConfig:
        """The configuration, or what vLLM raises for a model that it cannot load."""
        if self.model == "missing":
            raise OSError(f"{self.model} is not a local folder and is not a valid model identifier")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise ValueError("GPU memory utilization must be in (0, 1]")
        model: Any = ModelConfig(self.model, self.max_model_len or 2048)
        scheduler = SchedulerConfig(self.max_num_seqs or 4, self.stream_interval)
        return VllmConfig(model, scheduler, CacheConfig(self.kv_cache_memory_bytes))
