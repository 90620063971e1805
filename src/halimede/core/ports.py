"""Ports for processes that are told where to listen, and do so a while later."""

import random
import socket
from collections.abc import Collection
from functools import cache
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 20_000
_TRIES = 1000


def free_port(address: str = "127.0.0.1", taken: Collection[int] = ()) -> int:
    """A TCP port at which nobody listens.

    It is none of those that the kernel gives to outgoing connections and to whoever binds port 0, as one of them could
    be given away before the process listens.

    Args:
        address: where the process will listen.
        taken: ports that others have been told and may not listen at yet.

    Raises:
        OSError: there is none, or the address is not one of this machine.
    """
    for port in random.sample(_candidates(), min(_TRIES, len(_candidates()))):
        if port not in taken:
            try:
                return _bind(address, port)
            except OSError:
                continue
    while (port := _bind(address, 0)) in taken:
        pass
    return port


def _bind(address: str, port: int) -> int:
    """The port, once it was bound."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listener:
        listener.bind((address, port))
        bound: int = listener.getsockname()[1]
        return bound


@cache
def _candidates() -> range:
    """The ports that the kernel gives to nobody: below its range, or above if that begins low."""
    first, last = (int(number) for number in _RANGE.read_text().split())
    below, above = range(_LOWEST, first), range(last + 1, 65_536)
    return max(below, above, key=len)
