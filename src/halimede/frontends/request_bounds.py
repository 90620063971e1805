"""How many tensors and parameters a request may have, and how many bytes one that has no data.

Each tensor and parameter costs time and memory besides its bytes, so that the size of a request does not bound them.
"""

from typing import Final

from halimede.core.errors import InvalidArgumentError

MAX_ENTRIES: Final = 4096
"""Inputs of a request, outputs that it asks for, and parameters: so many of each."""


MAX_SMALL_BYTES: Final = 65_536
"""Bytes of a request that has neither tensors nor files nor texts: it is read on the event loop, in a millisecond."""


def check_count(what: str, count: int) -> None:
    """Refuse a request with more of something than it may have.

    Args:
        what: such as `inputs`.
        count: how many it has.

    Raises:
        InvalidArgumentError: they are too many.
    """
    if count > MAX_ENTRIES:
        raise InvalidArgumentError(f"the request has {count} {what}, and the maximum is {MAX_ENTRIES}")
