"""Ids of requests: as UUIDs look, and never the same."""

import os
from itertools import count
from uuid import UUID

_PREFIX = os.urandom(10).hex()
_BEGIN = f"{_PREFIX[:8]}-{_PREFIX[8:12]}-4{_PREFIX[13:16]}-8{_PREFIX[17:20]}-"
_HEADER = f"x-amzn-RequestId: {_BEGIN}%012x\r\n".encode()
_NUMBERS = count()


def new_request_id() -> str:
    """A new id."""
    return f"{_BEGIN}{next(_NUMBERS):012x}"


def request_id_header() -> bytes:
    """A new id in the header that tells clients of the runtime."""
    return _HEADER % next(_NUMBERS)


def ordered_id(now: float) -> str:
    """A UUID of version 7 (RFC 9562): random, but later ones come behind earlier ones in the order of texts.

    Args:
        now: the time, in seconds since 1970.
    """
    random = int.from_bytes(os.urandom(10))
    number = (int(now * 1000) & (1 << 48) - 1) << 80 | random
    number = number & ~(0xF << 76) & ~(0x3 << 62) | 7 << 76 | 2 << 62
    return str(UUID(int=number))
