"""Texts that go on together: what is kept of their tokens in one cache, a row each, filled up on the left.

Two rows, of lengths 3 and 5::

    ·  ·  a  b  c
    d  e  f  g  h
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from halimede.backends.transformers.forward import Forward

_TOKENS: Final = -2
"""The dimension of tokens in keys and values, whose shape is [rows, heads, tokens, size]."""

MakeCache = Callable[[], Any]
"""Makes an empty cache: `transformers.DynamicCache` with layers that are plain keys and values."""


class Rows:
    """Texts of different lengths whose next tokens come from one pass.

    Attributes:
        lengths: tokens of each row.

    Args:
        make_cache: makes an empty cache.
    """

    def __init__(self, make_cache: MakeCache) -> None:
        self._make_cache = make_cache
        self._cache: Any = None
        self.lengths: list[int] = []

    def join(self, cache: Any, length: int) -> None:
        """Add a row, of a text that has been read.

        Args:
            cache: what is kept of it alone; not to be used any more.
            length: its tokens.
        """
        if self._cache is None:
            self._cache, self.lengths = cache, [length]
            return
        width = max(*self.lengths, length)
        joined = self._make_cache()
        for number, (before, new) in enumerate(zip(self._cache.layers, cache.layers, strict=True)):
            if before.is_initialized:
                keys = torch.cat([_widened(before.keys, width), _widened(new.keys, width)])
                values = torch.cat([_widened(before.values, width), _widened(new.values, width)])
                joined.update(keys, values, number)
        self._cache = joined
        self.lengths.append(length)

    def keep(self, rows: Sequence[int]) -> None:
        """Forget all rows but these."""
        if len(rows) == len(self.lengths):
            return
        if not rows:
            self._cache, self.lengths = None, []
            return
        lengths = [self.lengths[row] for row in rows]
        width = max(lengths)
        kept = self._make_cache()
        for number, layer in enumerate(self._cache.layers):
            if layer.is_initialized:
                index = torch.tensor(rows, device=layer.keys.device)
                kept.update(*(_narrowed(each, index, width) for each in (layer.keys, layer.values)), number)
        self._cache, self.lengths = kept, lengths

    def step(self, forward: Forward, tokens: Sequence[int]) -> Tensor:
        """The logits after the next token of each row, shape [rows, vocabulary]."""
        lengths = torch.tensor(self.lengths, device=forward.device)[:, None]
        width = max(self.lengths) + 1
        mask = None
        if min(self.lengths) < width - 1:
            mask = (torch.arange(width, device=forward.device) >= width - 1 - lengths).long()
        logits = forward(torch.tensor(tokens, device=forward.device)[:, None], lengths, mask, self._cache)
        self.lengths = [length + 1 for length in self.lengths]
        return logits


def _widened(tensor: Tensor, width: int) -> Tensor:
    """With as many tokens as `width`, by zeros before them."""
    return pad(tensor, (0, 0, width - tensor.shape[_TOKENS], 0))


def _narrowed(tensor: Tensor, rows: Tensor, width: int) -> Tensor:
    """The last `width` tokens of these rows."""
    return tensor.index_select(0, rows)[:, :, -width:].contiguous()
