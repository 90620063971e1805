"""Who is told of what an engine counts."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from ...config import VllmConfig
from .stats import IterationStats, MultiModalCacheStats, SchedulerStats


class StatLoggerBase(ABC):
    """One of those."""

    @abstractmethod
    def __init__(self, vllm_config: VllmConfig, engine_index: int = 0) -> None:
        """Of one engine."""

    @abstractmethod
    def record(
        self,
        scheduler_stats: SchedulerStats | None,
        iteration_stats: IterationStats | None,
        mm_cache_stats: MultiModalCacheStats | None = None,
        engine_idx: int = 0,
    ) -> None:
        """After a step."""

    @abstractmethod
    def log_engine_initialized(self) -> None:
        """The engine runs."""


StatLoggerFactory = Callable[[VllmConfig, int], StatLoggerBase]


def build_1_2_5_buckets(max_value: int) -> list[int]:
    """1, 2, 5, 10, … up to it."""
    found: list[int] = []
    scale = 1
    while True:
        for each in (1, 2, 5):
            if each * scale > max_value:
                return found
            found.append(each * scale)
        scale *= 10
