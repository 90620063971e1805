"""The tokenizer of a model of OpenVINO GenAI, which is a model of OpenVINO itself."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import openvino_genai
import tokenizers

from halimede.backends.language.tokenizer import longest_token
from halimede.core.errors import InternalError, InvalidArgumentError

_REPLACED: Final = re.compile("\N{REPLACEMENT CHARACTER}+")
_SAMPLES: Final = 32
_SAMPLE_TOKENS: Final = 6
"""So many texts of so many tokens both ways of decoding have to agree on."""

_STRIDE: Final = 7919
"""From one token of these to the next: a prime number, so that they come from all of the vocabulary."""


class GenAITokenizer:
    """The tokenizer of a directory: openvino_tokenizer.xml and openvino_detokenizer.xml.

    The detokenizer is a model of OpenVINO, whose inference takes 0.1 ms for a token. If there is a tokenizer.json too,
    and it decodes alike, it is used in its place, as it takes a few microseconds.

    Attributes:
        end_tokens: what it has as the end of a text.
        max_characters: the most characters of a text that become one token.
        own: the tokenizer of OpenVINO GenAI.

    Args:
        directory: where its files are.

    Raises:
        InvalidArgumentError: they cannot be loaded.
    """

    def __init__(self, directory: Path) -> None:
        for name in ("openvino_tokenizer.xml", "openvino_detokenizer.xml"):
            if not (directory / name).is_file():
                msg = f"there is no file '{directory / name}': convert the tokenizer with openvino_tokenizers"
                raise InvalidArgumentError(msg)
        try:
            self.own: Any = openvino_genai.Tokenizer(directory)
        except RuntimeError as error:
            raise InvalidArgumentError(f"cannot load the tokenizer in '{directory}': {error}") from error
        vocabulary: dict[bytes, int] = self.own.get_vocab()
        self._pieces = {number: piece for piece, number in vocabulary.items()}
        self.max_characters = longest_token(vocabulary)
        self._begin: str = self.own.get_bos_token()
        end: int = self.own.get_eos_token_id()
        self.end_tokens: frozenset[int] = frozenset((end,) if end >= 0 else ())
        self._fast = self._fast_decoder(directory / "tokenizer.json")

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens of a prompt. One that begins with the token of the beginning gets no second one."""
        special = special and not (self._begin and text.startswith(self._begin))
        try:
            encoded = self.own.encode(text, add_special_tokens=special)
        except RuntimeError as error:
            raise InternalError(f"the model's tokenizer failed: {error}") from error
        tokens: list[int] = encoded.input_ids.data.reshape(-1).tolist()
        return tokens

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """The text of tokens; special ones are part of it with `special` only."""
        if self._fast is not None:
            fast: str = self._fast.decode(tokens, skip_special_tokens=not special)
            return fast
        return self._decode(tokens, special=special)

    def _decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        text: str = self.own.decode(list(tokens), skip_special_tokens=not special)
        return text

    def piece(self, token: int) -> bytes:
        """The bytes of one token; those of a special one are its name."""
        return self._pieces.get(token, b"")

    def _fast_decoder(self, path: Path) -> tokenizers.Tokenizer | None:
        """What decodes as OpenVINO's model does, but faster; None if there is nothing."""
        if not path.is_file():
            return None
        try:
            fast = tokenizers.Tokenizer.from_file(str(path))
        except Exception:  # the library raises this class itself; the file may be of a newer version of it
            return None
        size = fast.get_vocab_size()
        for sample in range(_SAMPLES):
            tokens = [(sample * _STRIDE + place * _STRIDE**2) % size for place in range(_SAMPLE_TOKENS)]
            if _comparable(fast.decode(tokens, skip_special_tokens=True)) != _comparable(
                self._decode(tokens)
            ):
                return None
        return fast


def _comparable(text: str) -> str:
    """A text without how often bytes that are no characters were replaced, in which they differ."""
    return _REPLACED.sub("\N{REPLACEMENT CHARACTER}", text)
