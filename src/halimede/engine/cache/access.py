"""Which versions have a response cache, and what tells their entries apart."""

import logging
import os
from dataclasses import dataclass

from halimede.config.model_config_pb2 import ModelConfig
from halimede.core.clock import Clock
from halimede.engine.cache.keys import ALGORITHM, digest
from halimede.engine.cache.store import Cache
from halimede.engine.cache.version_cache import Outcome, Schedule, VersionCache
from halimede.engine.statistics import ModelStatistics

logger = logging.getLogger("halimede")


@dataclass(frozen=True, slots=True)
class CacheAccess:
    """The cache, for one version.

    Attributes:
        cache: the cache.
        identity: tells the version's entries from all others; 32 bytes.
    """

    cache: Cache
    identity: bytes

    def open(
        self, statistics: ModelStatistics, clock: Clock, schedule: Schedule, outcome: Outcome
    ) -> VersionCache:
        """The cache in front of the version's scheduler; see `VersionCache`."""
        return VersionCache(self.cache, self.identity, statistics, clock, schedule, outcome)


def cache_access(
    cache: Cache | None, config: ModelConfig, version: int, content: bytes | None
) -> CacheAccess | None:
    """The cache for a version that is loaded now, None if it has none.

    Args:
        cache: the server's cache.
        config: the version's configuration, with the model's name in the server.
        version: the version.
        content: what it was loaded from; None if that is not known.
    """
    if not config.response_cache.enable:
        return None
    if cache is None:
        logger.warning(
            "'%s' enables the response cache, which has no effect: the server has none (--cache-config)",
            config.name,
        )
        return None
    if content is None or not cache.outlives:
        content = os.urandom(16)  # whatever is loaded later is something else
    described = repr((ALGORITHM, config.name, version, content))
    return CacheAccess(cache, digest(described.encode()))
