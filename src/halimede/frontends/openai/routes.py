"""Which call of OpenAI's API a path means."""

import re
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import unquote

PREFIX: Final = "/v1/"
"""How the paths of OpenAI's calls begin."""

_OF_VLLM: Final = frozenset(("/health", "/version", "/tokenize", "/detokenize"))
"""Paths that vLLM's server has beside them."""


class Call(Enum):
    """A call: its path as a regular expression, its method, and its category for restrictions."""

    MODELS = (r"/v1/models", "GET", "metadata")
    MODEL = (r"/v1/models/(?P<model>[^/]+)", "GET", "metadata")
    CHAT_COMPLETIONS = (r"/v1/chat/completions", "POST", "inference")
    COMPLETIONS = (r"/v1/completions", "POST", "inference")
    RESPONSES = (r"/v1/responses", "POST", "inference")
    EMBEDDINGS = (r"/v1/embeddings", "POST", "inference")
    TOKENIZE = (r"/tokenize", "POST", "inference")
    DETOKENIZE = (r"/detokenize", "POST", "inference")
    HEALTH = (r"/health", "GET", "health")
    VERSION = (r"/version", "GET", "metadata")

    def __init__(self, pattern: str, method: str, category: str) -> None:
        self.pattern = re.compile(pattern)
        self.method = method
        self.category = category
        self.label = f"openai_{self._name_.lower()}"


class Route(NamedTuple):
    """A call, and the model that its path names, decoded; "" for none."""

    call: Call
    model: str = ""


def is_of_api(path: str) -> bool:
    """Whether a path as it was sent belongs to OpenAI's API, or is one of vLLM's server."""
    return path.startswith(PREFIX) or path in _OF_VLLM


def find_route(path: str) -> Route | None:
    """What a path as it was sent means, None for nothing."""
    for call in Call:
        match = call.pattern.fullmatch(path)
        if match is not None:
            return Route(call, unquote(match.groupdict().get("model", "")))
    return None


def group_of(path: str) -> str:
    """The category of the call that a path means, "" for none."""
    route = find_route(path)
    return route.call.category if route is not None else ""
