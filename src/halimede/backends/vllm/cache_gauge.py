"""How full vLLM's cache for keys and values is."""

from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase


class CacheGauge:
    """What vLLM has told last.

    Attributes:
        usage: share of the cache in use, 0 to 1; None before the first step.
    """

    def __init__(self) -> None:
        self.usage: float | None = None

    def make_logger(self, vllm_config: Any, engine_index: int) -> Any:
        """What vLLM tells after each step: see `StatLoggerFactory`."""
        return _StatLogger(self)


class _StatLogger(StatLoggerBase):  # type: ignore[misc]  # vLLM may not be installed
    """Keeps what the gauge wants of what vLLM tells."""

    def __init__(self, gauge: CacheGauge) -> None:
        self._gauge = gauge

    def record(self, scheduler_stats: Any, *others: Any, **more: Any) -> None:
        """Note the share; vLLM's versions tell other things besides."""
        if scheduler_stats is not None:
            self._gauge.usage = scheduler_stats.kv_cache_usage

    def log_engine_initialized(self) -> None:
        """There is nothing to say."""
