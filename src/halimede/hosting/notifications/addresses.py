"""Addresses of this machine alone: a subscription of one makes the host call other programs on the machine."""

import asyncio
import ipaddress
import socket
from enum import Enum

FLAG = "--allow-loopback-subscriptions"

_LOCAL_NAMES = ("localhost", "localhost.localdomain")


class LoopbackSubscriptions(Enum):
    """From whom subscriptions of endpoints at this machine's own addresses are accepted."""

    LOOPBACK = "loopback"
    ALL = "all"
    NONE = "none"

    def permits(self, *, is_local: bool) -> bool:
        """Whether a client may subscribe such endpoints.

        Args:
            is_local: the client is on this machine.
        """
        return self is LoopbackSubscriptions.ALL or (self is LoopbackSubscriptions.LOOPBACK and is_local)


class OwnAddressError(OSError):
    """A name stands for an address of this machine alone, and the subscription may not reach it."""


def is_own(host: str) -> bool:
    """Whether a host of a URL is an address of this machine alone, without asking the network for names."""
    name = host.rstrip(".").lower()
    if name in _LOCAL_NAMES or name.endswith(".localhost"):
        return True
    try:
        found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False  # a name, which is looked up when something is sent
    return any(_is_own_address(str(sockaddr[0])) for *_, sockaddr in found)


async def addresses_of(host: str, *, may_reach_own: bool) -> list[str]:
    """The addresses that a name stands for, at least one.

    Raises:
        OwnAddressError: one of them is an address of this machine alone, and that is not permitted.
        OSError: there is none.
    """
    found = await asyncio.to_thread(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
    addresses = [str(sockaddr[0]) for *_, sockaddr in found]
    if not may_reach_own and any(map(_is_own_address, addresses)):
        raise OwnAddressError(f"{host} is an address of the host's own machine, which {FLAG} does not allow")
    return addresses


def _is_own_address(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
