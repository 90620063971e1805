"""The tokenizer in a model's files: texts to tokens and back, for calls that the model itself does not answer."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from halimede.backends.language.tokenizer import most_characters
from halimede.core.errors import InvalidArgumentError

logger = logging.getLogger("halimede")

LONG: Final = 4096
"""Texts of more characters, and lists of more tokens, take milliseconds, for which the server's loop does not wait."""


class TextTokenizer:
    """What a file `tokenizer.json` says. Any thread may use it.

    Attributes:
        max_characters: the most characters of a text that become one token.

    Args:
        path: the file.

    Raises:
        ImportError: the package tokenizers is not installed.
        InvalidArgumentError: the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer

        try:
            self._own = Tokenizer.from_file(str(path))
            self._own.no_padding()
            self._own.no_truncation()
        except Exception as error:  # the package's errors have no type of their own
            raise InvalidArgumentError(f"cannot read '{path}': {error}") from None
        self._path = path
        model = self._own.model
        unknown = getattr(model, "unk_token", None) is not None or getattr(model, "unk_id", None) is not None
        self.max_characters = most_characters(self._own.get_vocab(), model, unknown=unknown)

    def encode(self, text: str, *, special: bool) -> list[int]:
        """The tokens of a text.

        Args:
            text: the text.
            special: with the tokens that the tokenizer itself adds, such as that of the beginning.

        Raises:
            InvalidArgumentError: the tokenizer fails on this text.
        """
        try:
            ids: list[int] = self._encoding(text, special).ids
        except Exception as error:
            raise InvalidArgumentError(f"the tokenizer of the model fails on this text: {error}") from None
        return ids

    def count(self, text: str, special: bool) -> int | None:
        """How many tokens a text has; None if the tokenizer fails on it, which is logged."""
        try:
            return len(self._encoding(text, special))
        except Exception as error:
            logger.warning("OpenAI: '%s' fails to count the tokens of a text: %s", self._path, error)
            return None

    def names(self, tokens: Sequence[int]) -> list[str]:
        """What the vocabulary calls the tokens, which are in it."""
        return [self._own.id_to_token(token) or "" for token in tokens]

    def decode(self, tokens: list[int]) -> str:
        """The text of tokens, with the special ones.

        Raises:
            InvalidArgumentError: a token is not in the vocabulary, or the tokenizer fails.
        """
        for token in set(tokens):
            if self._own.id_to_token(token) is None:
                raise InvalidArgumentError(f"the vocabulary of the model has no token {token}")
        try:
            texts: list[str] = self._own.decode_batch([tokens], skip_special_tokens=False)
        except Exception as error:
            raise InvalidArgumentError(f"the tokenizer of the model fails on these tokens: {error}") from None
        return texts[0]

    def _encoding(self, text: str, special: bool) -> Any:
        if len(text) <= LONG:
            return self._own.encode(text, add_special_tokens=special)
        # a batch is encoded without the interpreter's lock, so that the server's other threads go on
        return self._own.encode_batch_fast([text], add_special_tokens=special)[0]
