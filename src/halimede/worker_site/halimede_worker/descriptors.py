"""File descriptors: which of them are kept for what matters most, and what is said when there are no more."""

import errno
import resource

_LARGEST_RESERVE = 512
_SHORTAGES = (errno.EMFILE, errno.ENFILE)


def usable() -> int:
    """A descriptor of this number or a higher one is in the reserve, for health checks and errors.

    The kernel gives the lowest number that is free: so many descriptors are open, at least, if it gives this one.
    """
    return _limit() - reserve()


def reserve() -> int:
    """How many descriptors are in the reserve."""
    return min(_LARGEST_RESERVE, _limit() // 4)


def are_out(error: OSError) -> bool:
    """Whether an error means that there are no more descriptors."""
    return error.errno in _SHORTAGES


def shortage() -> str:
    """What is said then."""
    return f"out of file descriptors, of which this process may have {_limit()}"


def reason(error: OSError) -> str:
    """Why something failed, in words."""
    return shortage() if are_out(error) else error.strerror or str(error)


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft
