"""What the elements of a datatype may be, and the errors for those that are something else."""

import json
from collections.abc import Sequence
from typing import Final

import numpy as np

from halimede.core.datatypes import BOOL, BYTES, Datatype
from halimede.core.errors import InvalidArgumentError

_LONGEST_VALUE: Final = 64


def expected_value(datatype: Datatype) -> str:
    """What an element of the datatype is, in words, with its range."""
    if datatype is BOOL:
        return "true or false"
    if datatype is BYTES:
        return "a string"
    if datatype.numpy.kind in "iu":
        limits = np.iinfo(datatype.numpy)
        return f"an integer from {limits.min} to {limits.max}"
    largest = float(np.finfo(datatype.numpy).max)
    return f"a number from {-largest!r} to {largest!r}"


def unexpected_value(name: str, datatype: Datatype, value: object, position: Sequence[int]) -> str:
    """Which element is no value of its input's datatype, and what it should be.

    Args:
        name: the input.
        datatype: of the input.
        value: the element.
        position: its index in each dimension, counted from 0.
    """
    where = ",".join(map(str, position))
    return (
        f"input '{name}' of datatype {datatype} has {shortened(value)} at position [{where}], "
        f"expected {expected_value(datatype)}"
    )


def out_of_range(
    name: str, datatype: Datatype, value: object, position: Sequence[int]
) -> InvalidArgumentError:
    """The error for a number that its input's datatype cannot hold; arguments as of `unexpected_value`."""
    return InvalidArgumentError(f"value out of range: {unexpected_value(name, datatype, value, position)}")


def shortened(value: object) -> str:
    """The value as JSON, cut off where it becomes long."""
    if type(value) is list:
        return "an array"
    if isinstance(value, dict | list):  # a list of members, of which names may be repeated
        return "an object"
    if isinstance(value, str):
        value = value[:_LONGEST_VALUE]
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"
