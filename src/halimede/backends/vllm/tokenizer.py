"""The tokenizer that vLLM has loaded for a model."""

from collections.abc import Sequence
from typing import Any

from halimede.backends.language.tokenizer import LEAST_CHARACTERS, longest_token
from halimede.backends.language.vocabulary_pieces import VocabularyPieces
from halimede.core.errors import InternalError


class VllmTokenizer:
    """Texts to tokens and back.

    Attributes:
        max_characters: the most characters of a text that become one token.

    Args:
        tokenizer: of the engine.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._begin: str = getattr(tokenizer, "bos_token", None) or ""
        longest = getattr(tokenizer, "max_chars_per_token", None)  # which depends on vLLM's version
        self.max_characters = (
            max(LEAST_CHARACTERS, longest)
            if isinstance(longest, int)
            else longest_token(tokenizer.get_vocab())
        )
        of_transformers = hasattr(tokenizer, "added_tokens_decoder")
        self._pieces = VocabularyPieces(tokenizer) if of_transformers else None

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens of a prompt. One that begins with the token of the beginning gets no second one."""
        special = special and not (self._begin and text.startswith(self._begin))
        try:
            tokens: list[int] = self._tokenizer.encode(text, add_special_tokens=special)
        except Exception as error:
            raise InternalError(f"the model's tokenizer failed: {type(error).__name__}: {error}") from error
        return tokens

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """The text of tokens; special ones are part of it with `special` only."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=not special)
        return text

    def piece(self, token: int) -> bytes:
        """The bytes of one token; those of a special one are its name, if the tokenizer is one of `transformers`."""
        if self._pieces is not None:
            return self._pieces.bytes_of(token)
        text: str = self._tokenizer.decode([token], skip_special_tokens=False)
        return text.encode()
