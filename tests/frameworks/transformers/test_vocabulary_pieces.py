"""The bytes of single tokens are those of the text that they make together."""

import pytest

pytest.importorskip("transformers", reason="needs transformers: pip install 'halimede[transformers]'")

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from halimede.backends.language.vocabulary_pieces import VocabularyPieces
from tests.frameworks.transformers.tiny_models import tokenizer

TEXT = "naïve café – 10 € 😀\n"


def test_vocabularies_of_bytes() -> None:
    pieces = VocabularyPieces(tokenizer())
    tokens = tokenizer().encode(TEXT, add_special_tokens=False)
    assert b"".join(map(pieces.bytes_of, tokens)) == TEXT.encode()
    assert pieces.bytes_of(tokenizer().bos_token_id) == b"<|begin|>"
    assert pieces.bytes_of(100_000) == b""


def test_vocabularies_of_sentencepiece() -> None:
    words = ["<unk>", "\u2581the", "\u2581", "caf", "<0xC3>", "<0xA9>"]
    model = Tokenizer(
        models.BPE(
            {word: number for number, word in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True
        )
    )
    model.pre_tokenizer = pre_tokenizers.Metaspace()
    model.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    pieces = VocabularyPieces(PreTrainedTokenizerFast(tokenizer_object=model))
    assert [pieces.bytes_of(token) for token in (1, 2, 3, 4, 5)] == [b" the", b" ", b"caf", b"\xc3", b"\xa9"]
