"""A request that was accepted, as it is kept until its result is written."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import orjson

from halimede.hosting.identity import EndpointId


@dataclass(slots=True)
class AsyncRequest:
    """A request; it never changes, and is made faster than a frozen one. Times are seconds since 1970.

    Attributes:
        seq: its place in the queue; no other request that waits has it.
        endpoint: whose it is.
        id: its `InferenceId`.
        accepted: when it was accepted.
        expires: when it is too late to begin with it.
        timeout_s: how long an instance may take to answer it.
        output: the URL of its result.
        failure: the URL of what is written if it fails; "" for nothing.
        is_named_here: its URLs are no other request's, as their names were made here.
        source: the URL of its input; "" for one that came with the request, which is `body`.
        headers: those that the instance gets, by lower-case name.
        body: the input that came with the request.
    """

    seq: int
    endpoint: EndpointId
    id: str
    accepted: float
    expires: float
    timeout_s: int
    output: str
    failure: str
    is_named_here: bool
    source: str
    headers: Mapping[str, str]
    body: bytes = b""

    def row(self) -> tuple[int, str, float, bytes, bytes]:
        """What is kept of it: its place, its endpoint, when it expires, all else as JSON, its body."""
        document = {name: getattr(self, name) for name in _IN_DOCUMENT}
        return self.seq, key_of(self.endpoint), self.expires, orjson.dumps(document), self.body

    @classmethod
    def from_row(cls, seq: int, key: str, expires: float, document: bytes, body: bytes) -> "AsyncRequest":
        """The request that was kept."""
        return cls(seq=seq, endpoint=endpoint_of(key), expires=expires, body=body, **orjson.loads(document))


_IN_COLUMNS = ("seq", "endpoint", "expires", "body")
_IN_DOCUMENT = tuple(field.name for field in fields(AsyncRequest) if field.name not in _IN_COLUMNS)


def key_of(endpoint: EndpointId) -> str:
    """What the requests of an endpoint are kept under."""
    return "/".join(endpoint)


def endpoint_of(key: str) -> EndpointId:
    """The endpoint whose requests are kept under a key."""
    return EndpointId(*key.split("/"))


@dataclass(frozen=True, slots=True)
class Notice:
    """A message that a topic is still to get.

    Attributes:
        id: no other message has it.
        topic: the topic's ARN.
        endpoint: of whose request it tells.
        variant: the variant that had the request.
        text: the message.
    """

    id: str
    topic: str
    endpoint: EndpointId
    variant: str
    text: str

    def row(self) -> tuple[str, bytes]:
        """What is kept of it."""
        return self.id, orjson.dumps({**asdict(self), "endpoint": key_of(self.endpoint)})

    @classmethod
    def from_row(cls, _: str, document: bytes) -> "Notice":
        """The message that was kept."""
        known: dict[str, Any] = orjson.loads(document)
        return cls(**{**known, "endpoint": endpoint_of(known["endpoint"])})
