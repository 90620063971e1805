"""The text of tokens that come one by one. No character is split: one that is not whole waits for its rest."""

from collections.abc import Callable, Sequence
from typing import Final

Decode = Callable[[Sequence[int]], str]
"""``decode(tokens)`` gives their text; bytes that are no characters become U+FFFD."""

_CONTEXT: Final = 6
"""So many tokens of the prompt are decoded with the first ones of the text: a space may depend on what it follows."""

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """Turns tokens into pieces of text.

    Only a few tokens are decoded each time: those since the last piece, behind those of the piece before, without
    which a tokenizer may take the space at their beginning away.

    Args:
        decode: decodes tokens.
        prompt: the tokens that the text follows.
    """

    __slots__ = ("_decode", "_read", "_shown", "_tokens")

    def __init__(self, decode: Decode, prompt: Sequence[int]) -> None:
        self._decode = decode
        self._tokens = list(prompt[-_CONTEXT:])
        self._read = len(self._tokens)  # of these, so many are in the text that was given out
        self._shown = decode(self._tokens) if self._tokens else ""

    def take(self, token: int) -> str:
        """The text that the token adds; "" if it is part of a character that is not whole."""
        self._tokens.append(token)
        text = self._decode(self._tokens)
        if text.endswith(_REPLACEMENT):
            return ""
        return self._give_out(text)

    def end(self) -> str:
        """What was held back, now that no more tokens come."""
        return self._give_out(self._decode(self._tokens))

    def _give_out(self, text: str) -> str:
        piece = text[len(self._shown) :]
        if piece:
            del self._tokens[: self._read]
            self._read = len(self._tokens)
            self._shown = self._decode(self._tokens)
        return piece
