"""What an engine counts."""

from dataclasses import dataclass, field


@dataclass
class SchedulerStats:
    """Of its scheduler."""

    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    kv_cache_usage: float = 0.0


@dataclass
class FinishedRequestStats:
    """Of a request that is over."""

    finish_reason: str
    e2e_latency: float
    num_prompt_tokens: int
    num_generation_tokens: int


@dataclass
class IterationStats:
    """Of one step."""

    num_prompt_tokens: int = 0
    num_generation_tokens: int = 0
    time_to_first_tokens_iter: list[float] = field(default_factory=list)
    inter_token_latencies_iter: list[float] = field(default_factory=list)
    finished_requests: list[FinishedRequestStats] = field(default_factory=list)
    n_params_iter: list[int] = field(default_factory=list)


class MultiModalCacheStats:
    """Of pictures."""
