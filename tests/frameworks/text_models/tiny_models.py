"""Small text models with random weights, as `sentence-transformers` and `transformers` save them."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers.utils import logging

CONTEXT = 48
TEXTS = [
    "The moon walks the wrong way around the planet.",
    "naïve café – 10 € 😀",
    "x",
    "",
    "one two three four five six seven " * 20,
    "Wo ist der nächste Bahnhof?",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
COMMON: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": CONTEXT + 2,
    "initializer_range": 0.4,  # so that a token depends on the others
}


@cache
def tokenizer(pad_id: int) -> Any:
    """Pieces of words, between marks; padding has the given id."""
    words = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    words.normalizer = normalizers.BertNormalizer(lowercase=True)
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [*SPECIAL[1 : pad_id + 1], SPECIAL[0], *SPECIAL[pad_id + 1 :]]
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=special, show_progress=False)
    words.train_from_iterator(TEXTS, trainer)
    marks = [(mark, words.token_to_id(mark)) for mark in ("[CLS]", "[SEP]")]
    words.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=marks)
    names = {f"{name.strip('[]').lower()}_token": name for name in SPECIAL}
    factory: Any = transformers.PreTrainedTokenizerFast
    return factory(tokenizer_object=words, model_max_length=CONTEXT, **names)


def save(kind: str, directory: Path, task: str = "", **settings: Any) -> None:
    """Save a model of `transformers` with its tokenizer; `task` is the end of its class, such as ForMaskedLM."""
    logging.disable_progress_bar()
    torch.set_num_threads(1)  # small as they are, more would wait for each other
    torch.manual_seed(1)
    words = tokenizer(1 if kind in ("roberta", "mpnet") else 0)
    config = transformers.AutoConfig.for_model(
        kind, vocab_size=len(words), pad_token_id=words.pad_token_id, **{**COMMON, **settings}
    )
    factory: Any = getattr(transformers, f"AutoModel{task}")
    factory.from_config(config).eval().save_pretrained(directory)
    words.save_pretrained(directory)


def save_embedder(
    kind: str,
    directory: Path,
    pooling: str | tuple[str, ...] = "mean",
    *,
    normalise: bool = True,
    **options: Any,
) -> None:
    """Save a model of `sentence-transformers`."""
    plain = directory.parent / f"{directory.name}-plain"
    save(kind, plain)
    transformer = Transformer(str(plain), max_seq_length=CONTEXT)
    modules = [transformer, Pooling(COMMON["hidden_size"], pooling_mode=pooling)]
    if normalise:
        modules.append(Normalize())
    SentenceTransformer(modules=modules, device="cpu", **options).save(str(directory))
