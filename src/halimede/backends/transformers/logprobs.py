"""Log probabilities of a token that was chosen, by the logits of the model."""

from collections.abc import Sequence
from typing import Final

from torch import Tensor

from halimede.backends.language.logprobs import TokenLogprob

_ROWS: Final = 64
"""So many rows of logits are looked at together: each row is as long as the vocabulary."""


def logprobs_of(logits: Tensor, tokens: Sequence[int], count: int) -> list[TokenLogprob]:
    """The same for several tokens, by the logits before each, shape [tokens, vocabulary]."""
    found = []
    for begin in range(0, len(tokens), _ROWS):
        part = tokens[begin : begin + _ROWS]
        found += [
            logprob_of(row, token, count)
            for row, token in zip(logits[begin : begin + _ROWS].float(), part, strict=True)
        ]
    return found


def logprob_of(logits: Tensor, token: int, count: int) -> TokenLogprob:
    """How probable a token was, with so many of the most probable ones.

    Args:
        logits: as the model gives them, FP32, shape [vocabulary].
        token: the token.
        count: how many.
    """
    logprobs = logits.log_softmax(-1)
    own = logprobs[token]
    rank = int((logprobs > own).sum()) + 1
    values, tokens = logprobs.topk(min(count, len(logprobs)))
    return TokenLogprob(float(own), rank, tuple(zip(tokens.tolist(), values.tolist(), strict=True)))
