"""One pass of a model that `transformers` has loaded."""

import inspect
from typing import Any, Final

import torch
from torch import Tensor

_CACHE_NAMES: Final = ("cache", "past_key_values")
"""What models call the argument for the keys and values of earlier tokens."""


class Forward:
    """Calls a model with the arguments that it has.

    Attributes:
        device: where it computes.
        keeps: it can keep what it has computed of earlier tokens.

    Args:
        model: a causal model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self.device: torch.device = model.device
        known = inspect.signature(model.forward).parameters
        self._cache = next((name for name in _CACHE_NAMES if name in known), None)
        self._positions = "position_ids" in known
        self._keep = {"logits_to_keep": 1} if "logits_to_keep" in known else {}

    @property
    def keeps(self) -> bool:
        """Whether it takes a cache."""
        return self._cache is not None

    def __call__(self, tokens: Tensor, positions: Tensor, mask: Tensor | None, cache: Any | None) -> Tensor:
        """The logits of what follows the last token of each row: FP32, shape [rows, vocabulary].

        Args:
            tokens: INT64, shape [rows, new tokens].
            positions: of each, from 0, of the same shape.
            mask: INT64, shape [rows, earlier and new tokens]: 0 for those that only fill a row up, on the left. None
                if there are none of these; recurrent models take no mask beside a cache.
            cache: what is kept of earlier tokens, to which that of the new ones is added; None to keep nothing.
        """
        return self._logits(tokens, positions, mask, cache, self._keep)[:, -1].float()

    def _logits(
        self, tokens: Tensor, positions: Tensor, mask: Tensor | None, cache: Any | None, keep: dict[str, int]
    ) -> Tensor:
        arguments: dict[str, Any] = {"use_cache": cache is not None, **keep}
        if mask is not None:
            arguments["attention_mask"] = mask
        if self._positions:
            arguments["position_ids"] = positions
        if cache is not None:
            assert self._cache is not None, "only models that take a cache are given one"
            arguments[self._cache] = cache
        with torch.inference_mode():
            logits: Tensor = self._model(input_ids=tokens, **arguments).logits
            return logits

    def read(self, tokens: list[int], before: int, cache: Any | None) -> Tensor:
        """The logits after the tokens of one text, shape [1, vocabulary].

        Args:
            tokens: the next tokens.
            before: how many there are already in the cache.
            cache: of this text alone.
        """
        row, positions = self._row(tokens, before)
        return self(row, positions, None, cache)

    def read_every(self, tokens: list[int], before: int, cache: Any | None) -> Tensor:
        """The same after each of the tokens, shape [tokens, vocabulary], in the precision of the model."""
        row, positions = self._row(tokens, before)
        return self._logits(row, positions, None, cache, {})[0]

    def _row(self, tokens: list[int], before: int) -> tuple[Tensor, Tensor]:
        """Tokens of one text and their positions."""
        positions = torch.arange(before, before + len(tokens), device=self.device)[None]
        return torch.tensor([tokens], device=self.device), positions
