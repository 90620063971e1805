"""Small models with random weights, as `transformers` saves them."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.utils import logging

from examples.chat.language_model import make_tokenizer

CONTEXT = 128
TEXTS = ["The moon walks the wrong way around the planet.", "naïve café – 10 € 😀", "one two three four five"]

SIZES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 1},
    "mistral": {"num_key_value_heads": 1, "sliding_window": 4},
    "qwen2": {"num_key_value_heads": 2},
    "gpt2": {},
    "bloom": {},
    "mamba": {"state_size": 4},
    "rwkv": {"attention_hidden_size": 32},
}
"""Model type → settings beyond those that all have."""

COMMON: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.4,  # so that a token depends on those before it
}


@cache
def tokenizer() -> Any:
    """A tokenizer of bytes and of a few pieces of words."""
    return make_tokenizer(TEXTS, 300)


def make(kind: str, **settings: Any) -> Any:
    """A model of a type, in evaluation mode, with other settings than usual."""
    logging.disable_progress_bar()
    torch.set_num_threads(1)  # small as they are, more would wait for each other
    torch.manual_seed(1)
    words = tokenizer()
    config = transformers.AutoConfig.for_model(
        kind,
        vocab_size=len(words),
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
        **{**COMMON, **SIZES[kind], **settings},
    )
    factory: Any = transformers.AutoModelForCausalLM
    return factory.from_config(config).eval()


def save(kind: str, directory: Path, **settings: Any) -> None:
    """Write a model and its tokenizer."""
    make(kind, **settings).save_pretrained(directory)
    tokenizer().save_pretrained(directory)
