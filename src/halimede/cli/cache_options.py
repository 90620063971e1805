"""`--cache-config`: which response cache there is, and its settings."""

import difflib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from halimede.cli.settings import BOOL, COUNT, PORT, POSITIVE
from halimede.core.secrets import read_secret, shown
from halimede.engine.memory.budget import budget_bytes, parse_budget
from halimede.engine.settings import LocalCacheSettings, RedisCacheSettings

_FLAG: Final = "--cache-config"
_FORM: Final = "<cache name>,<setting>=<value>"
_ADDRESS: Final = (
    f"Must at a minimum specify 'host' and 'port' in the configuration. Write {_FLAG}=redis,host=HOST,port=PORT, or "
    f"host=/PATH/OF/SOCKET"
)
_LOCAL: Final = ("size",)
_REDIS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "host": ("host", str),
    "port": ("port", PORT.parse),
    "user": ("user", str),
    "password": ("password", read_secret),
    "db": ("db", COUNT.parse),
    "connect_timeout": ("connect_timeout_ms", POSITIVE.parse),
    "socket_timeout": ("timeout_ms", POSITIVE.parse),
    "pool_size": ("pool_size", POSITIVE.parse),
    "wait_timeout": ("wait_timeout_ms", POSITIVE.parse),
    "tls_enabled": ("tls", BOOL.parse),
    "cacert": ("tls_ca", str),
    "cert": ("tls_cert", str),
    "key": ("tls_key", str),
}
"""Key → the setting, and what reads its value. Times are in milliseconds."""

_ENVIRONMENT: Final = {
    "user": "TRITONCACHE_REDIS_USERNAME",
    "password": "TRITONCACHE_REDIS_PASSWORD",
}


def read_cache_config(entries: Iterable[str]) -> LocalCacheSettings | RedisCacheSettings | None:
    """What the values of `--cache-config` say together; None if there are none.

    Raises:
        ValueError: the text says what would be right, and repeats no password.
    """
    caches: dict[str, dict[str, str]] = {}
    for entry in entries:
        name, settings = _read_entry(entry)
        caches.setdefault(name, {}).update(settings)
    if not caches:
        return None
    if len(caches) > 1:
        raise ValueError(
            f"{_FLAG}: found multiple cache configurations, but only a single cache is currently supported: "
            f"{' or '.join(sorted(caches))}"
        )
    ((name, settings),) = caches.items()
    if name == "local":
        return _local(settings)
    if name == "redis":
        return _redis(settings)
    nearest = difflib.get_close_matches(name, ("local", "redis"), 1)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    raise ValueError(f"{_FLAG}: unable to find cache '{name}'; there are local and redis{hint}")


def without_password(entry: str) -> str:
    """A value of `--cache-config`, as it may be shown: from a password on, whatever may be part of it is hidden."""
    front, found, rest = entry.partition("password=")
    if not found:
        return entry
    value, comma, after = rest.partition(",")
    known = comma and after.partition("=")[0] in _REDIS
    return f"{front}{found}{shown(value)}" + (f",{without_password(after)}" if known else "")


def _read_entry(entry: str) -> tuple[str, dict[str, str]]:
    """The cache's name, and its settings."""
    name, comma, rest = entry.partition(",")
    if not (name and comma) or "=" in name:
        got = without_password(entry)
        raise ValueError(f"No cache specified. {_FLAG} option format is {_FORM}. Got {got}")
    settings: dict[str, str] = {}
    for part in rest.split(","):
        key, _, value = part.partition("=")
        if not (key and value):
            raise ValueError(f"{_FLAG} option format is '{_FORM}'. Got {without_password(entry)}")
        settings[key] = value
    return name, settings


def _refuse_unknown(cache: str, settings: Iterable[str], known: Iterable[str]) -> None:
    for key in settings:
        if key not in known:
            raise ValueError(
                f"{_FLAG}={cache}: there is no setting of that name; there are {', '.join(known)}"
            )


def _local(settings: dict[str, str]) -> LocalCacheSettings:
    if "size" not in settings:
        raise ValueError(
            f"{_FLAG}: Failed to initialize LocalCache: config didn't contain a valid 'size' field. Write "
            f"{_FLAG}=local,size=BYTES"
        )
    _refuse_unknown("local", settings, _LOCAL)
    try:
        return LocalCacheSettings(budget_bytes(parse_budget(settings["size"])))
    except ValueError as error:
        raise ValueError(f"{_FLAG}=local,size: {error}") from None


def _redis(given: dict[str, str]) -> RedisCacheSettings:
    _refuse_unknown("redis", given, _REDIS)
    values: dict[str, Any] = {}
    for key, variable in _ENVIRONMENT.items():
        if key not in given and os.environ.get(variable):
            values[key] = os.environ[variable]
    for key, text in given.items():
        name, read = _REDIS[key]
        try:
            values[name] = read(text)
        except ValueError as error:
            hint = f". {_ADDRESS}" if key == "port" and not text.isdigit() else ""
            raise ValueError(f"{_FLAG}=redis,{key}: {error}{hint}") from None
    host, port = values.get("host"), values.get("port", 0)
    is_socket = host is not None and host.startswith("/")
    if host is None or not (port or is_socket):
        raise ValueError(f"{_FLAG}: Failed to initialize RedisCache, didn't specify address. {_ADDRESS}")
    settings = RedisCacheSettings(**{"port": 0, **values})
    for key, file in (("cacert", settings.tls_ca), ("cert", settings.tls_cert), ("key", settings.tls_key)):
        if file and not settings.tls:
            raise ValueError(f"{_FLAG}=redis,{key} has no effect without tls_enabled=true")
        if file and not Path(file).is_file():
            raise ValueError(f"{_FLAG}=redis,{key}: '{file}' is not a file")
    if settings.tls and is_socket:
        raise ValueError(f"{_FLAG}=redis,tls_enabled: a Unix socket takes no TLS")
    return settings
