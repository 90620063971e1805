"""How many elements a tensor of a shape has, and the shapes that have too many."""

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from halimede.core.datatypes import Datatype
from halimede.core.errors import InvalidArgumentError

INT64_MAX: Final = (1 << 63) - 1
MAX_DIMS: Final = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
"""Of numpy's arrays."""


def check_rank(name: str, shape: Sequence[int]) -> None:
    """Refuse a shape that has more dimensions than arrays have.

    Raises:
        InvalidArgumentError: it has.
    """
    if len(shape) > MAX_DIMS:
        msg = f"shape of input '{name}' has {len(shape)} dimensions, and the maximum is {MAX_DIMS}"
        raise InvalidArgumentError(msg)


def element_count(name: str, shape: Sequence[int], datatype: Datatype) -> int:
    """How many elements an input of this shape has.

    Raises:
        InvalidArgumentError: more than can be counted, or more bytes; or it has more dimensions than arrays have.
    """
    check_rank(name, shape)
    count = prod(shape)
    if count > INT64_MAX:
        msg = f"shape {list(shape)} of input '{name}' causes total element count to exceed maximum size of {INT64_MAX}"
        raise InvalidArgumentError(msg)
    if count * datatype.itemsize > INT64_MAX:
        raise InvalidArgumentError(f"byte size overflow for input '{name}' of shape {list(shape)}")
    return count
