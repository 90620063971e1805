"""Ids of requests: as UUIDs look, and never the same."""

import os
from itertools import count

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
