"""The texts that are asked about, and a tokenizer for them where there is none of a checkpoint."""

import re
import string
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

TEXTS = [
    "The moon is bright tonight.",
    "A server answers requests.",
    "What do you call a request that waits for others?",
    "It joins a batch.",
    "Halimede is a moon of Neptune that takes more than five years for one orbit, far out and the wrong way round.",
    "Texts of different lengths are padded to a common one, and a mask tells the model which tokens are padding.",
    "Unknown words are spelt.",
    "Supercalifragilistic!",
]
KNOWN = TEXTS[:6]

PADDING = 16
"""Tokens are padded to a multiple of it, so that texts of much the same length have the same and can share a batch."""

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def small_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """A WordPiece tokenizer that works as BERT's does, with the words of those texts; all others are spelt."""
    words = sorted({word for text in texts for word in re.findall(r"[a-z]+", text.lower())})
    letters = [*string.ascii_lowercase, *string.digits]
    pieces = [*SPECIAL, *string.punctuation, *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys([*pieces, *words]))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"])
    )
    return tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of a file `tokenizer.json`, which pads on request only."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    return tokenizer
