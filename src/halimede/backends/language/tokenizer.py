"""A model's tokenizer: texts to tokens and back."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from halimede.backends.language.vocabulary_pieces import VocabularyPieces
from halimede.core.errors import InternalError, InvalidArgumentError

LEAST_CHARACTERS: Final = 16
"""A token counts as at least so many characters, as some tokenizers shorten texts before they look for tokens."""

_UNKNOWN_CHARACTERS: Final = 1024
"""The same of tokenizers that have a token for whatever they do not know, which may be of any length."""


class Tokenizer(Protocol):
    """What a language model needs of its tokenizer.

    Attributes:
        max_characters: the most characters of a text that become one token.
    """

    max_characters: int

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens of a prompt; with `special`, with those that the model wants at its beginning.

        Raises:
            HalimedeError: the tokenizer fails.
        """

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """The text of tokens; special ones are part of it with `special` only."""

    def piece(self, token: int) -> bytes:
        """The bytes of one token; those of a special one are its name."""


class HuggingFaceTokenizer:
    """The tokenizer of a directory as `transformers` saves it.

    Attributes:
        end_tokens: what it has as the end of a text.
        max_characters: the most characters of a text that become one token.
        own: the tokenizer of `transformers`.

    Args:
        directory: where its files are.

    Raises:
        InvalidArgumentError: they cannot be loaded.
    """

    def __init__(self, directory: Path) -> None:
        from transformers import AutoTokenizer

        try:
            self.own: Any = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        except Exception as error:  # the files of a model may be anything, and each kind fails in its own way
            msg = f"cannot load the tokenizer in '{directory}': {type(error).__name__}: {error}"
            raise InvalidArgumentError(msg) from error
        self._begin: str = self.own.bos_token or ""
        self._pieces = VocabularyPieces(self.own)
        model = getattr(getattr(self.own, "backend_tokenizer", None), "model", None)
        unknown = self.own.unk_token_id is not None
        self.max_characters = most_characters(self.own.get_vocab(), model, unknown=unknown)
        end = self.own.eos_token_id
        self.end_tokens: frozenset[int] = frozenset(() if end is None else (end,))

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens of a prompt. One that begins with the token of the beginning gets no second one."""
        special = special and not (self._begin and text.startswith(self._begin))
        try:
            tokens: list[int] = self.own.encode(text, add_special_tokens=special)
        except Exception as error:
            raise InternalError(f"the model's tokenizer failed: {type(error).__name__}: {error}") from error
        return tokens

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """The text of tokens; special ones are part of it with `special` only."""
        text: str = self.own.decode(
            tokens, skip_special_tokens=not special, clean_up_tokenization_spaces=False
        )
        return text

    def piece(self, token: int) -> bytes:
        """The bytes of one token; those of a special one are its name."""
        return self._pieces.bytes_of(token)


class PromptLimit(NamedTuple):
    """How long the text of a prompt can be, so that a longer one need not become tokens.

    Attributes:
        context: so many tokens a prompt has at the most.
        per_token: so many characters become one token at the most.
    """

    context: int
    per_token: int

    @property
    def characters(self) -> int:
        """The most characters."""
        return self.context * self.per_token

    def check(self, text: str, name: str) -> None:
        """Refuse a text that is longer.

        Args:
            text: to check.
            name: what the error calls it.

        Raises:
            InvalidArgumentError: it is longer.
        """
        if len(text) > self.characters:
            msg = (
                f"{name} has {len(text)} characters, but the model's context holds {self.context} tokens, which are at "
                f"most {self.characters} characters"
            )
            raise InvalidArgumentError(msg)


def longest_token(vocabulary: Iterable[str | bytes]) -> int:
    """The most characters of a text that become one token, by the tokens' names, which are at least as long."""
    return max(LEAST_CHARACTERS, max(map(len, vocabulary), default=0))


def most_characters(vocabulary: Iterable[str], model: Any, *, unknown: bool) -> int:
    """The most characters of a text that become one token.

    Args:
        vocabulary: the names of the tokens.
        model: that of the package tokenizers, None without one.
        unknown: there is a token for what the tokenizer does not know, which may be a word of any length.
    """
    longest = longest_token(vocabulary)
    if not unknown or getattr(model, "byte_fallback", False) or type(model).__name__ == "BPE":
        return longest
    return max(longest, _UNKNOWN_CHARACTERS)
