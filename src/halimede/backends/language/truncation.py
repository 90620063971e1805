"""Prompts that are cut to a number of tokens: vLLM's `truncate_prompt_tokens` and `truncation_side`."""

from dataclasses import dataclass
from typing import Any, Final

from halimede.core.errors import InvalidArgumentError

_MAX: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Truncation:
    """How a prompt is cut.

    Attributes:
        tokens: so many are kept; -1 for as many as the context holds beside the answer.
        left: they are the last ones, otherwise the first ones.
    """

    tokens: int
    left: bool

    def of(self, prompt: list[int], room: int) -> list[int]:
        """The tokens of the prompt that are kept, at most `room` if the request does not say how many."""
        kept = max(1, room if self.tokens == -1 else self.tokens)
        return prompt[-kept:] if self.left else prompt[:kept]


def read_truncation(tokens: Any, side: Any) -> Truncation | None:
    """How a prompt is cut; None to leave it whole.

    Args:
        tokens: `truncate_prompt_tokens`, None without the field.
        side: `truncation_side`, likewise.

    Raises:
        InvalidArgumentError: a field has a value that it cannot have.
    """
    if side not in (None, "left", "right"):
        raise InvalidArgumentError(f"'truncation_side' must be left or right, got {side!r:.64}")
    if tokens is None:
        return None
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not (tokens == -1 or 0 < tokens <= _MAX):
        msg = f"'truncate_prompt_tokens' must be a whole number above 0, or -1, got {tokens!r:.64}"
        raise InvalidArgumentError(msg)
    return Truncation(tokens, left=side != "right")
