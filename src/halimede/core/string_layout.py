"""Where the elements of a large BYTES tensor begin, found without a look at each in turn."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from halimede.core.tensors import Buffer

Positions = npt.NDArray[np.int64]

MIN_ELEMENTS = 64
"""Of fewer elements each can be looked at in less time."""


class Layout(NamedTuple):
    """The bytes of a BYTES tensor, and at which its elements' lengths are: in order, [elements]."""

    data: npt.NDArray[np.uint8]
    starts: Positions


def layout_of(data: Buffer, elements: int) -> Layout | None:
    """The layout of so many strings; None if there are fewer or more, or if they are not laid out as texts are.

    Texts have no NUL, and are short, so that the NULs are those of their lengths: three for up to 255 bytes, two for
    up to 65,535, and four for each that is empty. What follows from that is only taken if each length leads to the
    next, and the last to the end, as it may be about other data.
    """
    if elements < MIN_ELEMENTS:
        return None
    content = np.frombuffer(data, np.uint8)
    zeros = np.flatnonzero(content == 0)
    starts = zeros[::3] - 1
    if len(zeros) != 3 * elements or (zeros[2::3] - starts != 3).any():  # some are empty, or long
        starts = _starts(zeros)
    if len(starts) != elements or starts[0]:
        return None
    lengths = content[starts] + (content[starts + 1].astype(np.int64) << 8)
    ends = starts + lengths + 4
    if ends[-1] != len(content) or not np.array_equal(ends[:-1], starts[1:]):
        return None
    return Layout(content, starts)


def whole_elements(data: Buffer, most: int) -> tuple[int, int]:
    """How many strings a piece of a BYTES tensor begins with, and in how many bytes.

    Found as by `layout_of`; (0, 0) if they are few, or not laid out as texts of 1 to 255 bytes are.

    Args:
        data: what begins with the length of a string, and ends anywhere.
        most: of so many strings at most.
    """
    content = np.frombuffer(data, np.uint8)
    zeros = np.flatnonzero(content == 0)[: 3 * most]
    zeros = zeros[: len(zeros) // 3 * 3]
    starts = zeros[::3] - 1
    if len(starts) < MIN_ELEMENTS or starts[0] or (zeros[2::3] - starts != 3).any():
        return 0, 0
    ends = starts + content[starts] + 4
    if not np.array_equal(ends[:-1], starts[1:]):
        return 0, 0
    count = int(np.searchsorted(ends, len(content), side="right"))
    return count, int(ends[count - 1]) if count else 0


def _starts(zeros: Positions) -> Positions:
    """Where lengths begin if all these bytes, and no others of them, are zero."""
    if not len(zeros):
        return zeros
    begins = np.flatnonzero(np.diff(zeros, prepend=-2) != 1)  # of each run of zeros
    runs = np.diff(begins, append=len(zeros))
    ends_a_length = (runs == 2) | (runs == 3)
    first = zeros[begins] - np.where(ends_a_length, 4 - runs, 0)
    counts = np.where(ends_a_length, 1, runs // 4)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    starts: Positions = np.repeat(first, counts) + 4 * within
    return starts
