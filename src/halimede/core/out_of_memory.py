"""Whether an error means that memory, or room on a disk, ran out.

Errors of our own and of Python have types that say so. Frameworks and models say it in words: those that SageMaker's
Triton container looks for, and a few more, count as whole words only. Names and paths may contain such words (a model
called OOM), so they are taken out of the text first.
"""

import errno
import re
from collections.abc import Iterable

from halimede.core.errors import OutOfMemoryError

_PHRASES = (
    "CUDA out of memory",
    "CUDA_OUT_OF_MEMORY",
    "Out of memory",
    "Out Of Memory",
    "out of memory",
    "MemoryError",
    "OutOfMemory",
    "OOM",
    "Dst tensor is not initialized",
    "Src tensor is not initialized",
    "CNMEM_STATUS_OUT_OF_MEMORY",
    "CUDNN_STATUS_NOT_INITIALIZED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "Failed to allocate memory",
    "failed to allocate memory",
    "No space left on device",
)
"""As the container looks for them, in upper and lower case as here."""

_MORE_PHRASES = (
    "_ArrayMemoryError",  # numpy
    "OutOfMemoryError",  # torch
    "DefaultCPUAllocator: not enough memory",  # torch
    "DefaultCPUAllocator: can't allocate memory",
    "bad_alloc",  # C++
    "Cannot allocate memory",  # the system's ENOMEM
    "out-of-memory killer, which has ended",  # of a worker process
)

_SHORTAGE = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, (*_PHRASES, *_MORE_PHRASES)))})(?!\w)")

_NUMBERS = frozenset({errno.ENOMEM, errno.ENOSPC})


def is_out_of_memory(message: str, names: Iterable[str] = ()) -> bool:
    """Whether a text that is not ours says that memory ran out.

    Args:
        message: the text.
        names: names and paths in it that say nothing, as those of the model.
    """
    for name in sorted(filter(None, names), key=len, reverse=True):
        message = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "'", message)
    return _SHORTAGE.search(message) is not None


def lacks_memory(error: BaseException) -> bool:
    """Whether the type of the error, or of one that caused it, means that memory ran out."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError | OutOfMemoryError):
            return True
        if isinstance(cause, OSError) and cause.errno in _NUMBERS:
            return True
        cause = cause.__cause__
    return False
