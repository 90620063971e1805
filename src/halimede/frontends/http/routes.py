"""Which call a path means."""

import re
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from halimede.core.errors import InvalidArgumentError
from halimede.core.memo import Memo
from halimede.frontends.restrictions import PUBLIC

_MAX_MEMO_PATH: Final = 256
_MODEL: Final = r"/v2/models/(?P<model>[^/]+)"
_VERSIONED: Final = rf"{_MODEL}(?:/versions/(?P<version>[0-9]+))?"
_SYSTEM_REGION: Final = r"/v2/systemsharedmemory(?:/region/(?P<region>[^/]+))?"
_CUDA_REGION: Final = r"/v2/cudasharedmemory(?:/region/(?P<region>[^/]+))?"
_REPOSITORY: Final = r"/v2/repository(?:/(?P<repository>[^/]+))?"


class Call(Enum):
    """A call: its path as a regular expression, its methods, its category for restrictions, its label in metrics.

    The first whose path matches is meant.
    """

    SERVER_METADATA = (r"/v2", ("GET",), "metadata")
    SERVER_LIVE = (r"/v2/health/live", ("GET", "HEAD"), "health")
    SERVER_READY = (r"/v2/health/ready", ("GET", "HEAD"), "health")
    INFER = (rf"{_VERSIONED}/infer", ("POST",), "inference")
    ALL_STATISTICS = (r"/v2/models/stats", ("GET",), "statistics")
    MODELS = (r"/v2/models", ("GET",), "metadata")
    MODEL_METADATA = (_VERSIONED, ("GET",), "metadata")
    MODEL_READY = (rf"{_VERSIONED}/ready", ("GET", "HEAD"), "health")
    MODEL_CONFIG = (rf"{_VERSIONED}/config", ("GET",), "model-config")
    MODEL_STATISTICS = (rf"{_VERSIONED}/stats", ("GET",), "statistics")
    INDEX = (rf"{_REPOSITORY}/index", ("POST",), "model-repository")
    LOAD = (rf"{_REPOSITORY}/models/(?P<model>[^/]+)/load", ("POST",), "model-repository")
    UNLOAD = (rf"{_REPOSITORY}/models/(?P<model>[^/]+)/unload", ("POST",), "model-repository")
    GENERATE = (rf"{_VERSIONED}/generate", ("POST",), "inference")
    GENERATE_STREAM = (rf"{_VERSIONED}/generate_stream", ("POST",), "inference")
    SYSTEM_SHARED_MEMORY_STATUS = (rf"{_SYSTEM_REGION}/status", ("GET",), "shared-memory")
    SYSTEM_SHARED_MEMORY_REGISTER = (rf"{_SYSTEM_REGION}/register", ("POST",), "shared-memory")
    SYSTEM_SHARED_MEMORY_UNREGISTER = (rf"{_SYSTEM_REGION}/unregister", ("POST",), "shared-memory")
    CUDA_SHARED_MEMORY_STATUS = (rf"{_CUDA_REGION}/status", ("GET",), "shared-memory")
    CUDA_SHARED_MEMORY_REGISTER = (rf"{_CUDA_REGION}/register", ("POST",), "shared-memory")
    CUDA_SHARED_MEMORY_UNREGISTER = (rf"{_CUDA_REGION}/unregister", ("POST",), "shared-memory")
    TRACE = (rf"(?:/v2|{_MODEL})/trace/setting", ("GET", "POST"), "trace")
    LOGGING = (r"/v2/logging", ("GET", "POST"), "logging")
    PROFILE = (r"/v2/debug/profile", ("POST",), "trace")
    LANDING = (r"/", ("GET",), PUBLIC)
    OPENAPI = (r"/openapi\.json", ("GET",), "metadata")
    CONSOLE = (r"/console/?(?P<file>[a-z_/]+\.(?:js|css)|)", ("GET",), PUBLIC)
    CONSOLE_SNAPSHOT = (r"/v2/console/snapshot", ("GET",), "model-repository")
    CONSOLE_EVENTS = (r"/v2/console/events", ("GET",), "model-repository")
    CONSOLE_LOGS = (r"/v2/console/logs", ("GET",), "logging")

    def __init__(self, pattern: str, methods: tuple[str, ...], category: str) -> None:
        self.pattern = re.compile(pattern)
        self.methods = methods
        self.category = category
        self.label = self._name_.lower()


class Route(NamedTuple):
    """A call, and what its path names.

    Attributes:
        call: the call.
        model: the model, decoded; "" for none.
        version_text: the version's digits, "" for none.
        repository: the repository, "" for none.
        region: the region of shared memory, decoded; "" for none.
        file: the file of the console, "" for its page.
    """

    call: Call
    model: str = ""
    version_text: str = ""
    repository: str = ""
    region: str = ""
    file: str = ""

    @property
    def version(self) -> int:
        """The version, -1 for none. No model has a version 0.

        Raises:
            InvalidArgumentError: it is larger than any version.
        """
        return _number(self.version_text) if self.version_text else -1


def find_route(path: str) -> Route | None:
    """What a path as it was sent means, None for nothing. It ends without a slash."""
    return _MEMO[path] if len(path) <= _MAX_MEMO_PATH else _find_route(path)


def group_of(path: str) -> str:
    """The category of the call that a path means, "" for none."""
    route = find_route(path)
    return route.call.category if route is not None else ""


def is_health(path: str) -> bool:
    """Whether the path is that of a health check."""
    return group_of(path) == "health"


def _find_route(path: str) -> Route | None:
    for call in Call:
        match = call.pattern.fullmatch(path)
        if match is not None:
            names = match.groupdict("")
            model = _decode_name(names.get("model", ""))
            region = _decode_name(names.get("region", ""))
            if model is None or region is None:
                return None
            version, repository, file = (names.get(name, "") for name in ("version", "repository", "file"))
            return Route(call, model, version, repository, region, file)
    return None


def _decode_name(encoded: str) -> str | None:
    """The name that a segment of a path spells, decoded once; None for one that no model can have."""
    try:
        name = unquote_to_bytes(encoded.encode("latin-1")).decode()
    except UnicodeDecodeError:
        return None
    return None if "/" in name or "\0" in name else name


_MEMO: Final = Memo(_find_route, limit=1024)


def _number(digits: str) -> int:
    significant = digits.lstrip("0") or "0"
    if len(significant) > len("9223372036854775807") or int(significant) >= 1 << 63:
        msg = (
            f"failed to get model version from specified version string '{digits[:64]}' (details: stol), version "
            f"should be an integral value > 0"
        )
        raise InvalidArgumentError(msg)
    return int(significant)
