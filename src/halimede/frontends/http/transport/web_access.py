"""Which requests are refused because a foreign web page may have sent them, and what browsers are told of the others.

    Host of a client on this machine ── unknown: 403
    Origin ─┬─ none, or a page of this server: served
            ├─ allowed: served, with the headers that let the page read the response (CORS, https://fetch.spec.whatwg.org)
            └─ any other: GET and HEAD are served, but browsers keep the response from the page; the rest is 403

A request is looked at as soon as its head is there, before any of its body.
"""

import re
from typing import Final

from halimede.core.memo import Memo
from halimede.core.origins import OriginPolicy, is_loopback
from halimede.http1.head import Head, Refusal

_READING: Final = frozenset(("GET", "HEAD"))
_METHODS: Final = "GET, HEAD, POST, DELETE"
_EXPOSED: Final = "Inference-Header-Content-Length, Content-Encoding"
"""Headers of responses that pages need and may not read otherwise."""
_MAX_AGE_S: Final = 7200
"""How long browsers need not ask again; none of them remembers an answer for longer."""

_ASKED_METHOD: Final = "access-control-request-method"
_ASKED_HEADERS: Final = "access-control-request-headers"
_ASKED_NETWORK: Final = "access-control-request-private-network"
_NAMES: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+(?:[ \t]*,[ \t]*[!#$%&'*+.^_`|~0-9A-Za-z-]+)*")

_REMEMBERED_BYTES: Final = 255
"""A longer Host is looked at each time; no name in DNS is longer."""
_SHOWN: Final = 100
"""How much of a header is repeated to the client."""

Headers = tuple[tuple[str, str], ...]


class WebAccess:
    """The rule for one listener or several.

    Args:
        policy: the hosts and origins that requests may name.
    """

    def __init__(self, policy: OriginPolicy) -> None:
        self._policy = policy
        self._hosts = Memo(policy.knows_host, 256)

    def check(self, head: Head, peer: str) -> Headers:
        """What the response to a request needs beside its own headers, () if nothing.

        Args:
            head: the request's.
            peer: the client's address; "" at a Unix socket, which no browser reaches.

        Raises:
            Refusal: it is not served; the text names the flag that would change that.
        """
        if not peer:
            return ()
        headers = head.headers
        host = headers.get("host")
        if host is not None and not self._knows(host) and is_loopback(peer):
            raise _unknown_host(host)
        origin = headers.get("origin")
        if origin is None:
            return ()
        if self._policy.allows_origin(origin):
            return _preflight_headers(head, origin) if is_preflight(head) else _headers(origin)
        if head.method in _READING or self._policy.is_own(origin, host or ""):
            return ()
        raise _foreign_origin(origin)

    def _knows(self, host: str) -> bool:
        return self._hosts[host] if len(host) <= _REMEMBERED_BYTES else self._policy.knows_host(host)


def is_preflight(head: Head) -> bool:
    """Whether a browser asks if a page may send a request."""
    return head.method == "OPTIONS" and _ASKED_METHOD in head.headers and "origin" in head.headers


def _headers(origin: str) -> Headers:
    return (
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Expose-Headers", _EXPOSED),
        ("Vary", "Origin"),
    )


def _preflight_headers(head: Head, origin: str) -> Headers:
    if head.length:
        raise Refusal(400, "a CORS preflight has no body")
    headers = [
        ("Access-Control-Allow-Origin", origin),
        ("Access-Control-Allow-Methods", _METHODS),
        ("Access-Control-Max-Age", str(_MAX_AGE_S)),
        ("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
    ]
    asked = head.headers.get(_ASKED_HEADERS, "")
    if _NAMES.fullmatch(asked):
        headers.append(("Access-Control-Allow-Headers", asked))
    if head.headers.get(_ASKED_NETWORK) == "true":
        headers.append(("Access-Control-Allow-Private-Network", "true"))
    return tuple(headers)


def _unknown_host(host: str) -> Refusal:
    shown = host[:_SHOWN]
    return Refusal(
        403,
        f"the Host header names '{shown}', which is not known as a name of this machine; "
        f"start the server with --allow-host=NAME to allow it, or send an address or localhost",
    )


def _foreign_origin(origin: str) -> Refusal:
    return Refusal(
        403,
        f"web pages of '{origin[:_SHOWN]}' may not send such requests; "
        f"start the server with --allow-origin=ORIGIN to allow them",
    )
