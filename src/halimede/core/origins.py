"""Which web pages may send requests: by the `Host` and the `Origin` that a browser adds to them.

A page anywhere on the web can make a browser send requests to servers on the browser's own machine. Two headers, which
scripts cannot set, tell such requests from others. `Host` is the name in the page's address bar if an attacker's DNS
lets that name stand for this machine (DNS rebinding). `Origin` is the page that a request comes from
(https://fetch.spec.whatwg.org/#origin-header); other clients, such as tritonclient and boto3, send none.
"""

import re
import socket
from collections.abc import Iterable
from ipaddress import ip_address

_LOOPBACK_NAMES = (
    "localhost",
    "localhost.localdomain",
    "ip6-localhost",
    "ip6-loopback",
    "host.docker.internal",
)
"""Names that stand for this machine wherever they are known at all; nobody can have them in public DNS."""

_ORIGIN = re.compile(r"\*|null|[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s,]+/?")

ANY = "*"
"""Stands for every host, or every origin."""


def is_loopback(address: str) -> bool:
    """Whether a peer's address, as `getpeername` gives it, is on this machine; a Unix domain socket's, "", is."""
    if not address:
        return True
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return (mapped or parsed).is_loopback


def host_name(host: str) -> str:
    """The name in a `Host` header, in lower case, without port, brackets and the dot of a full name."""
    host = host.strip().lower()
    name, _, port = host.rpartition(":")
    if not (name and port.isascii() and port.isdigit()):
        name = host
    if name.startswith("[") and name.endswith("]"):
        return name[1:-1]
    return name.rstrip(".")


def is_local(address: str) -> bool:
    """Whether who listens at an address can be reached from this machine only."""
    return bool(address) and (is_loopback(address) or host_name(address) == "localhost")


def is_origin(text: str) -> bool:
    """Whether a text is an origin as `OriginPolicy` takes it: scheme and host, `null` or `*`."""
    return bool(_ORIGIN.fullmatch(text))


class OriginPolicy:
    """Which hosts and which origins requests may name.

    Args:
        hosts: further names of this machine, as `--allow-host` gives them; `*` for every name.
        origins: origins of pages that may send requests, as `--allow-origin` gives them: `https://app.example`,
            `http://localhost:3000`, `null`, or `*`.
    """

    def __init__(self, hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        machine = socket.gethostname().lower()
        self._hosts = {*_LOOPBACK_NAMES, machine, machine.partition(".")[0], *map(host_name, hosts)}
        self._any_host = ANY in self._hosts
        self._origins = {origin.rstrip("/").lower() for origin in origins}
        self._any_origin = ANY in self._origins

    def knows_host(self, host: str) -> bool:
        """Whether a `Host` header names this machine: by an address, a loopback name, its own name or an allowed one.

        An address is no danger: DNS has no part in it.
        """
        name = host_name(host)
        if self._any_host or name in self._hosts or name.endswith(".localhost"):
            return True
        try:
            ip_address(name.partition("%")[0])
        except ValueError:
            return False
        return True

    def allows_origin(self, origin: str) -> bool:
        """Whether pages of the origin may send any request and read its answer."""
        return self._any_origin or origin.rstrip("/").lower() in self._origins

    def is_own(self, origin: str, host: str) -> bool:
        """Whether a request comes from a page that this server itself has served, under a name of this machine."""
        scheme, separator, authority = origin.lower().partition("://")
        return (
            bool(separator)
            and scheme in ("http", "https")
            and authority == host.strip().lower()
            and self.knows_host(host)
        )
