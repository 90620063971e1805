"""The bytes of single tokens, by the vocabulary of a tokenizer of `transformers`.

Vocabularies write bytes as characters, in one of two ways: "byte level" (GPT-2, Llama 3, Qwen) has a printable
character for each byte; SentencePiece (Llama 2, Mistral) has "\N{LOWER ONE EIGHTH BLOCK}" for a space, and
"<0xE2>" for a byte that is no character.
"""

import re
from functools import cache
from typing import Any, Final

_SPACE: Final = "\N{LOWER ONE EIGHTH BLOCK}"
_BYTE: Final = re.compile("<0x([0-9A-F]{2})>")


class VocabularyPieces:
    """Looks tokens up.

    Args:
        tokenizer: of `transformers`.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._byte_level = "ByteLevel" in (repr(backend.decoder) if backend is not None else "")
        self._added = frozenset(tokenizer.added_tokens_decoder)

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token; none of one that is not in the vocabulary."""
        name: str | None = self._tokenizer.convert_ids_to_tokens(token)
        if name is None:  # models may have more logits than there are tokens
            return b""
        if token in self._added:
            return name.encode()
        if self._byte_level:
            characters = _byte_characters()
            return b"".join(characters[each] if each in characters else each.encode() for each in name)
        byte = _BYTE.fullmatch(name)
        return bytes([int(byte[1], 16)]) if byte else name.replace(_SPACE, " ").encode()


@cache
def _byte_characters() -> dict[str, bytes]:
    """Character → byte. Bytes that are printable in Latin-1 are themselves; others follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in printable]
    characters = {chr(byte): bytes([byte]) for byte in printable}
    return characters | {chr(0x100 + number): bytes([byte]) for number, byte in enumerate(others)}
