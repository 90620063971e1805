"""Chooses the tokens of one text."""

import secrets
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final

import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from halimede.backends.language.sampling import Sampling
from halimede.backends.transformers.grammars import Matcher
from halimede.core.errors import InvalidArgumentError

_SEED_BITS: Final = 32
"""So many bits of a seed matter to PyTorch's generator for processors."""


class Sampler:
    """Chooses each token by the logits that the model gives.

    Args:
        sampling: how.
        prompt: the prompt's tokens.
        ends: the tokens that end a text.
        matcher: says which tokens may come next, None for all.
        bad_words: the tokens of each word that the text may not have.
    """

    def __init__(
        self,
        sampling: Sampling,
        prompt: list[int],
        ends: frozenset[int],
        matcher: Matcher | None = None,
        bad_words: Sequence[list[int]] = (),
    ) -> None:
        self._sampling = sampling
        self._ends = sorted(ends)
        self._matcher = matcher
        self._bad_words = bad_words
        self._random: torch.Generator | None = None
        processors: list[Any] = []
        if sampling.temperature > 0:
            seed = secrets.randbits(_SEED_BITS) if sampling.seed is None else _seed_of(sampling.seed)
            self._random = torch.Generator().manual_seed(seed)
            if sampling.temperature != 1:
                processors.append(TemperatureLogitsWarper(sampling.temperature))
            if sampling.top_k > 0:
                processors.append(TopKLogitsWarper(sampling.top_k))
            if sampling.top_p < 1:
                processors.append(TopPLogitsWarper(sampling.top_p))
            if sampling.min_p > 0:
                processors.append(MinPLogitsWarper(sampling.min_p))
        self._processors = LogitsProcessorList(processors)
        self._bias: tuple[Tensor, Tensor] | None = None
        self._allowed: Tensor | None = None
        self._repetition = None
        if sampling.repetition_penalty != 1:
            self._repetition = RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty)
            self._distinct = _Distinct(prompt)
        self._counts = _Counts()

    def choose(self, logits: Tensor, tokens: list[int]) -> int:
        """The next token.

        Args:
            logits: FP32, shape [vocabulary].
            tokens: of the text so far; those of the last call, and what was written since.

        Raises:
            InvalidArgumentError: the form of the text is too complex.
        """
        if self._random is None and not self._shifts(tokens):
            return int(logits.argmax())
        scores = self._shifted(logits.to("cpu", copy=True), tokens)[None]
        if self._random is None:
            return int(scores.argmax())
        scores = self._processors(torch.empty((1, 0), dtype=torch.long), scores)
        return int(torch.multinomial(scores.softmax(-1), 1, generator=self._random))

    def completes(self, token: int) -> bool:
        """Whether the text has all of its form with the token that was chosen; always False without a form."""
        return self._matcher is not None and self._matcher.take(token)

    def _shifts(self, tokens: list[int]) -> bool:
        """Whether some logits change before a token is chosen."""
        sampling = self._sampling
        return bool(
            sampling.repetition_penalty != 1
            or sampling.frequency_penalty
            or sampling.presence_penalty
            or sampling.logit_bias
            or sampling.allowed_token_ids
            or self._bad_words
            or len(tokens) < sampling.min_tokens
            or self._matcher is not None
        )

    def _shifted(self, scores: Tensor, tokens: list[int]) -> Tensor:
        """The logits after penalties and biases, of shape [vocabulary]."""
        sampling = self._sampling
        if self._repetition is not None:
            scores = self._repetition(self._distinct.with_text(tokens)[None], scores[None])[0]
        if tokens and (sampling.frequency_penalty or sampling.presence_penalty):
            counts = self._counts.of_text(tokens, len(scores))
            scores -= sampling.frequency_penalty * counts + sampling.presence_penalty * (counts > 0)
        if sampling.logit_bias:
            tokens_with_bias, biases = self._biases(len(scores))
            scores[tokens_with_bias] += biases
        if len(tokens) < sampling.min_tokens:
            scores[[token for token in self._ends if token < len(scores)]] = -torch.inf
        if sampling.allowed_token_ids:
            scores = scores.masked_fill(~self._is_allowed(len(scores)), -torch.inf)
        for *before, last in self._bad_words:
            if last < len(scores) and tokens[len(tokens) - len(before) :] == before:
                scores[last] = -torch.inf
        if self._matcher is not None:
            scores = self._matcher.mask(scores)
        if bool(torch.isneginf(scores).all()):
            raise InvalidArgumentError(
                "sampling_parameters: no token is possible any more, as each is excluded by 'allowed_token_ids', "
                "'bad_words', 'min_tokens' or the form of the text"
            )
        return scores

    def _biases(self, size: int) -> tuple[Tensor, Tensor]:
        """The tokens that have a bias, and their biases.

        Raises:
            InvalidArgumentError: one is not in a vocabulary of this size.
        """
        if self._bias is None:
            given = self._sampling.logit_bias
            _check_tokens("logit_bias", given, size)
            self._bias = torch.tensor([*given], dtype=torch.long), torch.tensor([*given.values()])
        return self._bias

    def _is_allowed(self, size: int) -> Tensor:
        """Of each token of a vocabulary of this size, whether it may come.

        Raises:
            InvalidArgumentError: one of those that may is not in it.
        """
        if self._allowed is None:
            allowed = self._sampling.allowed_token_ids
            _check_tokens("allowed_token_ids", allowed, size)
            self._allowed = torch.zeros(size, dtype=torch.bool)
            self._allowed[list(allowed)] = True
        return self._allowed


def _seed_of(seed: int) -> int:
    """The seed of the generator for one of 64 bits, of which each matters."""
    if 0 <= seed < 1 << _SEED_BITS:
        return seed
    return int.from_bytes(blake2b(seed.to_bytes(8, "big", signed=True), digest_size=_SEED_BITS // 8).digest())


def _check_tokens(name: str, tokens: Iterable[int], size: int) -> None:
    """Refuse tokens that are not in a vocabulary of this size."""
    highest = max(tokens)
    if highest >= size:
        msg = f"sampling_parameters: '{name}' contains {highest}, which is not in the model's vocabulary"
        raise InvalidArgumentError(msg)


class _Distinct:
    """The tokens of a prompt and of the text after it, each once. Takes what is new only, as both may be long.

    Args:
        prompt: the prompt's tokens.
    """

    def __init__(self, prompt: list[int]) -> None:
        self._known = dict.fromkeys(prompt)
        self._tokens = torch.tensor([*self._known], dtype=torch.long)
        self._taken = 0

    def with_text(self, tokens: list[int]) -> Tensor:
        """All of them, of shape [tokens]."""
        new = [token for token in dict.fromkeys(tokens[self._taken :]) if token not in self._known]
        self._taken = len(tokens)
        if new:
            self._known.update(dict.fromkeys(new))
            self._tokens = torch.cat((self._tokens, torch.tensor(new)))
        return self._tokens


class _Counts:
    """How often each token is in a text. Takes what is new only."""

    def __init__(self) -> None:
        self._counts: Tensor | None = None
        self._taken = 0

    def of_text(self, tokens: list[int], size: int) -> Tensor:
        """The counts of a vocabulary of this size."""
        if self._counts is None:
            self._counts = torch.zeros(size, dtype=torch.long)
        for token in tokens[self._taken :]:
            self._counts[token] += 1
        self._taken = len(tokens)
        return self._counts
