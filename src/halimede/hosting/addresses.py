"""Where clients reach the host."""

_LOOPBACK_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - it is compared
"""Address to listen at everywhere → one to connect to."""


def is_wildcard(address: str) -> bool:
    """Whether who listens there is reached by any address of the machine."""
    return address in _LOOPBACK_ADDRESSES


def url_of(address: str, port: int) -> str:
    """The URL at which clients on this machine reach who listens there."""
    host = _LOOPBACK_ADDRESSES.get(address, address)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
