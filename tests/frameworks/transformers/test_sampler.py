"""How tokens are chosen: penalties are those of their definitions, and cost what is new of a text."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import RepetitionPenaltyLogitsProcessor

from halimede.backends.language.sampling import Sampling
from halimede.backends.transformers.sampler import Sampler

VOCABULARY = 24
PROMPT = [3, 5, 3, 7, 5, 5]
SAMPLINGS = {
    "repetition": Sampling(temperature=0, repetition_penalty=1.7),
    "frequency": Sampling(temperature=0, frequency_penalty=0.6),
    "presence": Sampling(temperature=0, presence_penalty=0.9),
    "all": Sampling(temperature=0, repetition_penalty=0.6, frequency_penalty=0.3, presence_penalty=0.4),
}


class Watched(list[int]):
    """Tokens that count how many of them are read."""

    read = 0

    def __iter__(self) -> Iterator[int]:
        for each in super().__iter__():
            self.read += 1
            yield each

    def __add__(self, other: Any) -> Any:
        self.read += len(self)
        return super().__add__(other)

    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        self.read += len(found) if isinstance(found, list) else 1
        return found


def expected(sampling: Sampling, logits: torch.Tensor, tokens: list[int]) -> int:
    """The most probable token, by the definitions of the penalties, from all tokens anew."""
    penalty = RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty)
    scores = penalty(torch.tensor([PROMPT + tokens]), logits[None].clone())[0]
    for token in set(tokens):
        scores[token] -= sampling.frequency_penalty * tokens.count(token) + sampling.presence_penalty
    return int(scores.argmax())


@pytest.mark.parametrize("name", SAMPLINGS)
def test_penalties_are_those_of_all_tokens_at_each_step(name: str) -> None:
    sampling = SAMPLINGS[name]
    sampler = Sampler(sampling, PROMPT, frozenset())
    random = torch.Generator().manual_seed(5)
    tokens: list[int] = []
    for step in range(200):
        logits = torch.randn(VOCABULARY, generator=random)
        token = sampler.choose(logits, tokens)
        assert token == expected(sampling, logits, tokens), step
        assert sampler.choose(logits, tokens) == token  # a step that is done again
        tokens.append(token)
        if step % 50 == 49:
            tokens.append(step % VOCABULARY)  # what was written without it
    assert len(set(tokens)) > 5


@pytest.mark.parametrize("name", SAMPLINGS)
def test_a_step_reads_what_is_new_of_a_text_and_nothing_of_the_prompt(name: str) -> None:
    prompt, tokens = Watched([1, 2] * 500), Watched()
    sampler = Sampler(SAMPLINGS[name], prompt, frozenset())
    read = prompt.read
    assert read <= len(prompt)
    logits = torch.linspace(1, 2, VOCABULARY)
    for _ in range(100):
        tokens.append(sampler.choose(logits, tokens))
    assert prompt.read == read
    assert tokens.read <= 2 * len(tokens)
