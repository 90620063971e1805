"""The beginning of a file given back to the disk, while everything else keeps its position (`fallocate`, Linux)."""

import ctypes

_KEEP_SIZE, _PUNCH_HOLE = 1, 2


def punch(descriptor: int, end: int) -> bool:
    """Whether the bytes before a position could be given back; they read as zeros then."""
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _KEEP_SIZE | _PUNCH_HOLE
    return not libc.fallocate(descriptor, flags, ctypes.c_int64(0), ctypes.c_int64(end))
