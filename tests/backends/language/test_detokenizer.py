"""Tokens become text piece by piece, whatever the pieces of characters they are."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from halimede.backends.language.detokenizer import Detokenizer

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\ufffd\u2581"), max_size=30)
LEARNED = ["the quick brown fox", "jumps over the lazy dog", "naïve café – 10 € 😀😀", "日本語のテキスト"]


@cache
def byte_level() -> Tokenizer:
    """Tokens of bytes, some of which are parts of characters, as Llama 3, Qwen and GPT-2 have them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LEARNED, trainer)
    return tokenizer


@cache
def byte_fallback() -> Tokenizer:
    """Tokens of words, and of bytes for unknown characters, as Llama 2 and Mistral have them."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdehlotu", "▁t", "▁th", "▁the"]
    merges = [("▁", "t"), ("▁t", "h"), ("▁th", "e")]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return tokenizer


def pieces(tokenizer: Tokenizer, prompt: list[int], tokens: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer.decode, prompt)
    return [*(detokenizer.take(token) for token in tokens), detokenizer.end()]


@given(text=TEXTS)
@pytest.mark.parametrize("make", [byte_level, byte_fallback])
def test_pieces_of_a_text_are_whole_characters(make: object, text: str) -> None:
    tokenizer = make()  # type: ignore[operator]
    tokens = tokenizer.encode(text).ids
    found = pieces(tokenizer, [], tokens)
    assert "".join(found) == tokenizer.decode(tokens) == text
    assert not any("\ufffd" in piece for piece in found)


@given(tokens=st.lists(st.integers(0, 299), max_size=40))
def test_any_tokens_give_the_text_of_them_all(tokens: list[int]) -> None:
    assert "".join(pieces(byte_level(), [], tokens)) == byte_level().decode(tokens)


@given(prompt=TEXTS, tokens=st.lists(st.integers(0, 299), max_size=40))
def test_a_text_goes_on_from_its_prompt(prompt: str, tokens: list[int]) -> None:
    tokenizer = byte_level()
    read = tokenizer.encode(prompt).ids
    assert prompt + "".join(pieces(tokenizer, read, tokens)) == tokenizer.decode(read + tokens)


@given(prompt=TEXTS.filter(bool), text=TEXTS)
def test_the_space_between_prompt_and_text_is_kept(prompt: str, text: str) -> None:
    tokenizer = byte_fallback()
    read, tokens = tokenizer.encode(prompt).ids, tokenizer.encode(text).ids if text else []
    assert prompt + "".join(pieces(tokenizer, read, tokens)) == tokenizer.decode(read + tokens)


def test_a_space_after_a_special_token_is_kept() -> None:
    tokenizer = byte_level()
    tokens = [
        *tokenizer.encode("the").ids,
        tokenizer.token_to_id("<|end|>") or 0,
        *tokenizer.encode(" lazy dog").ids,
    ]
    assert "".join(pieces(tokenizer, [], tokens)) == "the lazy dog"
