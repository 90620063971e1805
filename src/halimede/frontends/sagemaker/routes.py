"""Which call a path and a method mean."""

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from halimede.core.memo import Memo

_MAX_MEMO_PATH: Final = 256
_MODELS_PATH: Final = re.compile(r"/models/?(?P<name>[^/]+)?(?P<invoke>/invoke)?")


class Call(Enum):
    """A call, with its category for restrictions and its label in metrics."""

    PING = ("ping", "health")
    INVOCATIONS = ("invocations", "inference")
    LIST = ("list models", "model-repository")
    GET = ("get a model", "model-repository")
    LOAD = ("load a model", "model-repository")
    UNLOAD = ("unload a model", "model-repository")
    INVOKE = ("invoke a model", "inference")

    def __init__(self, _words: str, category: str) -> None:
        self.category = category
        self.label = self._name_.lower()


class Route(NamedTuple):
    """What a path means.

    Attributes:
        calls: method → call.
        other: the status for other methods.
        name: the model that the path names, decoded; "" for none.
    """

    calls: Mapping[str, Call]
    other: int
    name: str = ""


_PING: Final = Route({"GET": Call.PING, "HEAD": Call.PING}, 405)
_INVOCATIONS: Final = Route({"POST": Call.INVOCATIONS}, 405)
_NOTHING: Final = Route({}, 400)
_MODEL: Final = {"GET": Call.GET, "POST": Call.LOAD, "DELETE": Call.UNLOAD}
_MODELS: Final = {**_MODEL, "GET": Call.LIST}
_INVOKE: Final = {**_MODEL, "POST": Call.INVOKE}


def find_route(path: str) -> Route:
    """What a path, which is not decoded, means."""
    return _MEMO[path] if len(path) <= _MAX_MEMO_PATH else _find_route(path)


def group_of(path: str, method: str) -> str:
    """The category of the call that a path and a method mean, "" for none."""
    call = find_route(path).calls.get(method)
    return call.category if call is not None else ""


def is_health(path: str) -> bool:
    """Whether the path is that of a health check."""
    return find_route(path) is _PING


def _find_route(path: str) -> Route:
    if path == "/ping":
        return _PING
    if path == "/invocations":
        return _INVOCATIONS
    match = _MODELS_PATH.fullmatch(path)
    if match is None:
        return _NOTHING
    name = _decode(match["name"] or "")
    if match["invoke"]:
        return Route(_INVOKE, 400, name)
    return Route(_MODEL if name else _MODELS, 400, name)


def _decode(name: str) -> str:
    """The name that a path spells. What is not UTF-8 becomes what no name has, so that none is mistaken for another."""
    return unquote_to_bytes(name.encode("latin-1")).decode("utf-8", "surrogateescape")


_MEMO: Final = Memo(_find_route, limit=1024)
