"""A small T5 and its tokenizer, made from nothing but pairs of texts."""

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

Pair = tuple[str, str]

SEED = 0
BATCH = 64
LEARNING_RATE = 3e-3
VOCABULARY = 150
PAD, END, UNKNOWN = "<pad>", "</s>", "<unk>"
_IGNORED = -100
"""The label of padding, which the loss leaves out."""


def make_tokenizer(pairs: list[Pair]) -> PreTrainedTokenizerFast:
    """A tokenizer of pieces of words (byte-pair encoding), learned from the texts of both languages."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[PAD, END, UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator([text for pair in pairs for text in pair], trainer)
    end = (END, tokenizer.token_to_id(END))
    tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[end])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=UNKNOWN
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> T5ForConditionalGeneration:
    """The architecture of T5 with few and narrow layers, and weights as they start."""
    torch.manual_seed(SEED)
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "num_layers": 1,
        "num_heads": 4,
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 128,
        "dropout_rate": 0.0,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.pad_token_id,
    }
    return T5ForConditionalGeneration(T5Config(**settings))


def train(
    model: T5ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, pairs: list[Pair], steps: int
) -> float:
    """Train the model on batches of the pairs; the loss of the last one.

    One thread does it: the matrices are so small that more would wait for each other.
    """
    sources = tokenizer([source for source, _ in pairs], padding=True, return_tensors="pt")
    targets = tokenizer([target for _, target in pairs], padding=True, return_tensors="pt")
    labels = targets.input_ids.masked_fill(targets.attention_mask == 0, _IGNORED)
    generator = torch.Generator().manual_seed(SEED)
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    torch.set_num_threads(1)
    model.train()
    loss = torch.tensor(torch.nan)
    for _ in range(steps):
        rows = torch.randint(len(pairs), (BATCH,), generator=generator)
        loss = model(
            input_ids=sources.input_ids[rows],
            attention_mask=sources.attention_mask[rows],
            labels=labels[rows],
        ).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return loss.item()
