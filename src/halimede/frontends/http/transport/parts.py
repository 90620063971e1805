"""The parts of a response, as few writes."""

from collections.abc import Sequence

from halimede.core.tensors import Buffer

JOINED_BYTES = 65_536
"""Parts up to this size are copied into one write; larger ones go to the socket as they are."""


def joined(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Neighbouring small buffers as one; large ones as they are."""
    parts: list[Buffer] = []
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < JOINED_BYTES:
            small.append(buffer)
            continue
        if small:
            parts.append(b"".join(small))
            small = []
        parts.append(buffer)
    if small:
        parts.append(b"".join(small))
    return parts
