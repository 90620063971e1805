"""What an instance of a language model tells of its texts now and then."""

from dataclasses import dataclass
from typing import Final

from halimede.core.requests import InferRequest

GAP_BOUNDS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0,
)  # fmt: skip
"""Buckets of the times between tokens: those of vLLM, and some below."""


@dataclass(frozen=True, slots=True)
class TextCounts:
    """A report: what was counted since the one before, and how things are.

    Attributes:
        first_tokens: requests whose first token has come, and when, on the steady clock.
        running: texts that are being written.
        cache_usage: share of the cache for keys and values that is in use, 0 to 1; None if the engine does not say.
        prompt_tokens: tokens of the prompts of texts whose first token has come.
        tokens: tokens that were written.
        gaps: times between tokens, by the buckets of `GAP_BOUNDS_S` and one for all above.
        gaps_ns: their sum.
    """

    first_tokens: list[tuple[InferRequest, int]]
    running: int
    cache_usage: float | None
    prompt_tokens: int
    tokens: int
    gaps: list[int]
    gaps_ns: int
