"""What a signature is verified against: the path as it was sent, and the hash of the body."""

import asyncio
from hashlib import sha256

from halimede.http1.head import Head

_HASHED_HERE_BYTES = 1 << 18
"""The hash of a longer body is computed on another thread."""


def target_of(head: Head) -> str:
    """Path and query as they were sent."""
    return f"{head.path}?{head.query}" if head.query else head.path


async def digest(body: bytes) -> str:
    """The SHA-256 of a body, in hexadecimal digits."""
    if len(body) <= _HASHED_HERE_BYTES:
        return sha256(body).hexdigest()
    return await asyncio.to_thread(lambda: sha256(body).hexdigest())
