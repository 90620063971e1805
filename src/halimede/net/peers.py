"""Who is at the other end of a connection."""

import asyncio
import socket

_UNKNOWN = "unknown"


def peer_address(transport: asyncio.BaseTransport) -> str:
    """The address of the other end, without its port; "" at a Unix domain socket, "unknown" for one that has gone."""
    name = transport.get_extra_info("peername")
    if isinstance(name, tuple) and name:
        return str(name[0])
    connection = transport.get_extra_info("socket")
    return "" if getattr(connection, "family", None) == socket.AF_UNIX else _UNKNOWN


def client_text(transport: asyncio.BaseTransport) -> str:
    """The address of a connection's client: host:port, [host]:port of IPv6, or unix for a Unix socket."""
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple) or len(peer) < 2:
        return "unix"
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
