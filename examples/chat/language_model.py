"""A small model in the shape of Llama or Qwen, and its tokenizer, made from nothing but texts."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from examples.chat.pages import Turn

KINDS = ("llama", "qwen2")
"""Architectures, as `transformers` calls them."""

SEED = 0
CONTEXT = 512
VOCABULARY = 2000
LEARNING_RATE = 3e-3
BATCH = 8
LONGEST = 128
"""So many tokens of a conversation are learned."""
BEGIN, END = "<|begin|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> PreTrainedTokenizerFast:
    """A tokenizer of bytes and of pieces of words (byte-pair encoding), learned from the texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[BEGIN, END, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    begin = (BEGIN, tokenizer.token_to_id(BEGIN))
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[begin])
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END, pad_token=END, model_max_length=CONTEXT
    )
    made.chat_template = TEMPLATE
    return made


def make_model(
    tokenizer: PreTrainedTokenizerFast, kind: str = KINDS[0], width: int = 128, layers: int = 3
) -> PreTrainedModel:
    """An architecture with few and narrow layers, and weights as they start."""
    torch.manual_seed(SEED)
    settings: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": width,
        "intermediate_size": 3 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 32,
        "num_key_value_heads": width // 64,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    factory: Any = AutoModelForCausalLM
    made: PreTrainedModel = factory.from_config(AutoConfig.for_model(kind, **settings))
    return made


def train(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, turns: Sequence[Turn], steps: int
) -> float:
    """Train the model on conversations of one turn; the loss of the last batch.

    One thread does it: the matrices are so small that more would wait for each other.
    """
    texts = [
        tokenizer.encode(f"{BEGIN}<|user|>{said}{END}<|assistant|>{answer}{END}", add_special_tokens=False)
        for said, answer in turns
    ]
    texts = [text[:LONGEST] for text in texts]
    random = torch.Generator().manual_seed(SEED)
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    torch.set_num_threads(1)
    model.train()
    loss = torch.tensor(torch.nan)
    for _ in range(steps):
        chosen = [texts[row] for row in torch.randint(len(texts), (BATCH,), generator=random).tolist()]
        longest = max(map(len, chosen))
        rows = torch.tensor([row + [tokenizer.pad_token_id] * (longest - len(row)) for row in chosen])
        real = torch.arange(longest) < torch.tensor([len(row) for row in chosen])[:, None]
        loss = model(input_ids=rows, attention_mask=real.long(), labels=rows.masked_fill(~real, -100)).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.eval()
    return loss.item()


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, directory: Path) -> None:
    """Write both as `transformers` does: config.json, model.safetensors, tokenizer.json and the chat template."""
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
