"""How the parts of a response are put together for the socket."""

from collections.abc import Sequence
from typing import Final

from halimede.core.tensors import Buffer

JOINED_BYTES: Final = 65_536
"""Parts up to this size are copied into one write; larger ones go to the socket as they are."""


def joined(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Neighbouring small buffers as one; large ones as they are."""
    joined: list[Buffer] = []
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < JOINED_BYTES:
            small.append(buffer)
            continue
        if small:
            joined.append(b"".join(small))
            small = []
        joined.append(buffer)
    if small:
        joined.append(b"".join(small))
    return joined
