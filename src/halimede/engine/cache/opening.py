"""The server's response cache, as the settings say."""

from asyncio import AbstractEventLoop

from halimede.core.clock import Clock
from halimede.engine.cache.local import LocalCache
from halimede.engine.cache.redis import RedisCache
from halimede.engine.cache.store import Cache
from halimede.engine.settings import LocalCacheSettings, RedisCacheSettings


def open_cache(
    settings: LocalCacheSettings | RedisCacheSettings | None, clock: Clock, loop: AbstractEventLoop
) -> Cache | None:
    """The cache; None if there is to be none.

    Raises:
        InvalidArgumentError: it cannot be used; the text says what would be right.
    """
    if settings is None:
        return None
    if isinstance(settings, LocalCacheSettings):
        return LocalCache(settings.size, clock)
    return RedisCache(settings, clock, loop)
