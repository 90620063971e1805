"""Texts as tokens of RoBERTa, byte by byte: no vocabulary is needed for that."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BEGIN, PADDING, END = 0, 1, 2
FIRST_BYTE = 4


def tokens(texts: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`input_ids` and `attention_mask`, [texts, tokens], padded to the longest."""
    rows = [[BEGIN, *(FIRST_BYTE + byte for byte in text), END] for text in texts]
    longest = max(map(len, rows))
    ids = np.array([row + [PADDING] * (longest - len(row)) for row in rows], np.int64)
    return ids, (ids != PADDING).astype(np.int64)
