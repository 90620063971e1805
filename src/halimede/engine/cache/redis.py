"""The cache in a Redis server (`--cache-config=redis,host=…`), which several servers may share.

No request waits longer for it than its timeout, and none fails because of it. While it fails it is left out.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, cast

from halimede.core.clock import MILLISECOND, Clock, Timer
from halimede.core.errors import InvalidArgumentError
from halimede.core.tasks import Tasks
from halimede.engine.cache.bypass import Bypass
from halimede.engine.cache.entries import Entry
from halimede.engine.cache.serialised import deserialise, serialise
from halimede.engine.cache.store import CacheCounts, Found
from halimede.engine.settings import RedisCacheSettings

if TYPE_CHECKING:
    from redis.asyncio import Redis

logger = logging.getLogger("halimede")

_PREFIX: Final = b"halimede:response:"
_LARGEST: Final = 512 << 20  # Redis takes no larger values
_MAX_UNSENT: Final = 64 << 20
"""Bytes of responses that may wait to be inserted; more are not."""


class RedisCache:
    """A cache in a Redis server. Lives on the event loop.

    Attributes:
        counts: what it did.
        outlives: its entries stay, and other servers find them.
        largest: the size of the largest entry that it keeps, in bytes.
    """

    outlives = True
    largest = _LARGEST

    def __init__(self, settings: RedisCacheSettings, clock: Clock, loop: AbstractEventLoop) -> None:
        """A cache that connects when it is first used; `begin` looks whether it can.

        Raises:
            InvalidArgumentError: the library that it needs is not there, or the certificates cannot be used.
        """
        self.counts = CacheCounts()
        self._clock = clock
        self._loop = loop
        self._timeout_ns = settings.timeout_ms * MILLISECOND
        self._client = _client(settings)
        self._tasks = Tasks()
        self._unsent = 0
        where = f"the response cache at redis {settings.where}"
        self._reading = Bypass(where, clock)
        self._writing = Bypass(f"inserting into {where}", clock)

    async def begin(self) -> None:
        """Look whether the server answers, and log it if not.

        Raises:
            InvalidArgumentError: it refuses the user or the password.
        """
        try:
            await self._client.ping()
        except Exception as error:  # errors of connections have no common base
            if _refuses_credentials(error):
                await self.close()
                raise InvalidArgumentError(f"Failed to initialize RedisCache: {_why(error)}") from None
            self._reading.failed(_why(error))

    def get(self, key: bytes) -> Entry | None:
        """None: nothing is in the memory of this server."""
        return None

    def find(self, key: bytes, found: Found) -> None:
        """Look an entry up: call `found` when the server has answered, or has not within the timeout."""
        if not self._reading.admits():
            found(None)
            return
        lookup = _Lookup(found)
        task = self._do(self._find(key, lookup))
        late = self._clock.now() + self._timeout_ns
        lookup.timer = self._clock.call_at(late, self._too_late, lookup, task)

    def insert(self, key: bytes, entry: Entry) -> None:
        """Keep an entry, if not too many others wait for that."""
        if self._reading.open or (self._unsent + entry.size > _MAX_UNSENT and self._unsent):
            return
        if self._writing.admits():
            self._unsent += entry.size
            self._do(self._insert(key, entry))

    def forget(self, keys: set[bytes]) -> None:
        """Entries of a version stay: they are found again when the same version is loaded again, here or elsewhere."""

    async def close(self) -> None:
        """Close the connections; what is under way is abandoned."""
        await self._tasks.close()
        await self._client.aclose()

    def _do(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        return self._tasks.start("calling the Redis cache", work)

    async def _find(self, key: bytes, lookup: "_Lookup") -> None:
        entry = None
        try:
            value = cast("bytes | None", await self._client.get(_PREFIX + key.hex().encode()))
        except Exception as error:
            if lookup.waits:
                self._reading.failed(_why(error))
        else:
            self._reading.worked()
            entry = None if value is None else _readable(value)
        lookup.end(entry)

    def _too_late(self, lookup: "_Lookup", task: "asyncio.Task[None]") -> None:
        if lookup.waits:
            self._reading.failed(f"no answer within {self._timeout_ns // MILLISECOND} ms")
            lookup.end(None)
            task.cancel()

    async def _insert(self, key: bytes, entry: Entry) -> None:
        try:
            await self._client.set(_PREFIX + key.hex().encode(), serialise(entry))
        except asyncio.CancelledError:
            self._writing.abandoned()
            raise
        except Exception as error:
            self._writing.failed(_why(error))
        else:
            self._writing.worked()
        finally:
            self._unsent -= entry.size


class _Lookup:
    """Who waits for a look-up."""

    __slots__ = ("_found", "timer", "waits")

    def __init__(self, found: Found) -> None:
        self._found = found
        self.waits = True
        self.timer: Timer | None = None

    def end(self, entry: Entry | None) -> None:
        """Tell it, if it was not told yet."""
        if self.waits:
            self.waits = False
            if self.timer is not None:
                self.timer.cancel()
            self._found(entry)


def _readable(value: bytes) -> Entry | None:
    try:
        return deserialise(value)
    except ValueError as error:
        logger.warning("the response cache has an entry that is of no use: %s", error)
        return None


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__


def _refuses_credentials(error: BaseException | None) -> bool:
    """Whether the server refuses the user or the password; the library wraps such an error in one of the connection."""
    from redis.exceptions import AuthenticationError, AuthenticationWrongNumberOfArgsError

    kinds = (AuthenticationError, AuthenticationWrongNumberOfArgsError)
    while error is not None and not isinstance(error, kinds):
        error = error.__cause__
    return error is not None


def _client(settings: RedisCacheSettings) -> "Redis":
    """A client with connections of its own, which does not try again by itself."""
    try:
        from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
        from redis.asyncio import UnixDomainSocketConnection as UnixConnection
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        msg = "--cache-config=redis needs the Python package redis: pip install 'halimede[cache-redis]'"
        raise InvalidArgumentError(msg) from None
    timeout_s = settings.timeout_ms / 1000
    options: dict[str, Any] = {
        "username": settings.user or None,
        "password": settings.password or None,
        "db": settings.db,
        "socket_connect_timeout": settings.connect_timeout_ms / 1000,
        "socket_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
    }
    kind: type[Connection | UnixConnection] = Connection
    if settings.host.startswith("/"):
        kind = UnixConnection
        options["path"] = settings.host
        del options["socket_connect_timeout"]
    else:
        options |= {"host": settings.host, "port": settings.port}
    if settings.tls:
        kind = SSLConnection
        options |= {
            "ssl_ca_certs": settings.tls_ca or None,
            "ssl_certfile": settings.tls_cert or None,
            "ssl_keyfile": settings.tls_key or None,
        }
    pool = BlockingConnectionPool(
        connection_class=kind,
        max_connections=settings.pool_size,
        timeout=settings.wait_timeout_ms / 1000,
        **options,
    )
    return Redis.from_pool(pool)
