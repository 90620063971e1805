"""What the process sets about itself at start: the C library's allocator, Python's collector, its limit of files."""

import ctypes
import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_MIB = 1 << 20
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

MMAP_THRESHOLDS = (128 * _MIB, 32 * _MIB)
"""Blocks from this size on come from the system and go back to it at once. Older glibc takes no more than the
second."""

TRIM_THRESHOLD = 256 * _MIB
"""So much freed memory at the end of a heap is kept for reuse."""


def keep_freed_memory() -> bool:
    """Make glibc keep freed blocks for reuse, and say whether it does.

    By default it gives blocks beyond 128 KiB back to the system and gets them anew, zeroed page by page, for
    each request with large tensors, which costs more than the request. Kept memory still counts as resident:
    up to `TRIM_THRESHOLD` more than is in use. Unloading a model trims it.

    All threads share one heap: trimming gives back nothing but the end of the first one, so that each thread that
    ever loaded a model would keep as much as that took.

    What the environment sets is left alone.
    """
    names = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
    if any(name in os.environ for name in names):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # not glibc
        return False
    mallopt(_M_ARENA_MAX, 1)
    kept = any(mallopt(_M_MMAP_THRESHOLD, threshold) for threshold in MMAP_THRESHOLDS)
    return bool(mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD)) and kept


OPEN_FILES = 65_536
"""Each connection is one, a worker process some ten, and a shared segment two."""


def allow_open_files() -> None:
    """Raise the soft limit of open files as far as that is allowed, to `OPEN_FILES` at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def importing() -> Iterator[None]:
    """Import many modules in this block: the collector of cycles neither looks at them meanwhile, nor ever again.

    It would look at all of them several times, which takes an eighth of the time of the imports, and find nothing.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def tune_garbage_collector() -> None:
    """Spare the collector of cycles what lives as long as the process, and call it less often.

    What exists now, modules above all, is never looked at again. A request leaves no cycles behind, so that
    younger objects need looking at rarely; the pause for a collection of the youngest stays below a
    millisecond. Models that come and go leave some, and all are looked at once so many thousand are new.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 5, 5)
