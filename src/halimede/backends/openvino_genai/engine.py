"""Writes texts with the continuous batching of OpenVINO GenAI, whose scheduler decides what a step does."""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import openvino
import openvino_genai

from halimede.backends.language.engine import Engine, failure_of, log_unexpected, logger
from halimede.backends.language.generation import Generation
from halimede.backends.language.logprobs import TokenLogprob
from halimede.backends.language.sampling import Sampling
from halimede.backends.language.structure import Structure
from halimede.backends.openvino_genai.grammars import GenAIGrammars, structured_output
from halimede.core.errors import InternalError, InvalidArgumentError, UnavailableError


class _Text:
    """A text in the pipeline.

    Attributes:
        handle: of the pipeline.
        repeated: so many tokens, which the text has already, come again.
    """

    __slots__ = ("handle", "repeated")

    def __init__(self, handle: Any, repeated: int) -> None:
        self.handle = handle
        self.repeated = repeated


class GenAIEngine(Engine):
    """The engine of one instance.

    A pipeline whose step has failed fails in all later ones. Then there is a new one, in which each text is first
    written alone, from its beginning to one token more than it has, so that only those fail that fail alone. The
    tokens that it has come again, as the pipeline chooses them by the seed of the request, or by 0.

    Args:
        make_pipeline: makes an `openvino_genai.ContinuousBatchingPipeline`.
        ends: the tokens that end a text.
        grammars: checks the forms of texts.
        draft_tokens: how many tokens a draft model proposes at a time, 0 without one.
        fixed_cache: the cache has a fixed size, and does not grow with the texts.

    Raises:
        InvalidArgumentError: there is no memory for the cache.
    """

    def __init__(
        self,
        make_pipeline: Callable[[], Any],
        ends: frozenset[int],
        grammars: GenAIGrammars,
        draft_tokens: int = 0,
        *,
        fixed_cache: bool,
    ) -> None:
        self._draft_tokens = draft_tokens
        self._make_pipeline = make_pipeline
        self._pipeline = make_pipeline()
        self._grammars = grammars
        self._ends = ends
        self._texts: dict[Generation, _Text] = {}
        self._number = 0
        self.reserved_bytes = _cache_bytes(self._pipeline, draft_tokens) if fixed_cache else 0

    def knows(self, structure: Structure) -> bool:
        """Whether a form was compiled before, or is known to be impossible."""
        return self._grammars.knows(structure)

    def check(self, sampling: Sampling) -> None:
        """Compile the form that a text is to have.

        Raises:
            InvalidArgumentError: there is no such form.
        """
        if sampling.structure is not None:
            self._grammars.check(sampling.structure)

    def add(self, generation: Generation) -> None:
        """Begin a text.

        Raises:
            InvalidArgumentError: the pipeline cannot choose tokens in this way.
        """
        config = _generation_config(generation.asked.sampling, generation.room, self._ends)
        if self._draft_tokens:
            config.num_assistant_tokens = self._draft_tokens
        tokens = openvino.Tensor(np.array([generation.prompt], np.int64))
        self._number += 1
        try:
            handle = self._pipeline.add_request(self._number, tokens, config)
        except RuntimeError as error:
            raise InvalidArgumentError(f"OpenVINO GenAI refuses the request: {error}") from error
        self._texts[generation] = _Text(handle, len(generation.tokens))

    def step(self) -> None:
        """Let the pipeline take a step, and hand out the tokens that came of it."""
        try:
            self._pipeline.step()
        except Exception as error:
            logger.warning(
                "a step of OpenVINO GenAI failed; the model is loaded again, and each text is written by itself: %s",
                failure_of(error).message,
            )
            self._write_apart()
        else:
            self._hand_out()

    def _write_apart(self) -> None:
        """Find the texts that fail alone, and begin the others again."""
        texts = [each for each in self._texts if not each.finish]
        self.clear()
        for generation in texts:
            before = len(generation.tokens)
            try:
                self.add(generation)
                while len(generation.tokens) == before and not generation.finish:
                    self._pipeline.step()
                    self._hand_out()
            except Exception as error:
                log_unexpected(error)
                generation.give_up(failure_of(error))
                self.clear()
            else:
                self.remove([generation])
        for generation in texts:
            if not generation.finish:
                self.add(generation)

    def _hand_out(self) -> None:
        """Give the texts the tokens that the last step has made."""
        for generation, text in self._texts.items():
            try:
                while text.handle.can_read() and not generation.finish:
                    for output in text.handle.read().values():
                        self._take(generation, text, output.generated_ids, output.generated_log_probs)
            except Exception as error:  # of a tokenizer, say
                log_unexpected(error)
                generation.give_up(failure_of(error))
            status = text.handle.get_status()
            if not generation.finish and status != openvino_genai.GenerationStatus.RUNNING:
                generation.give_up(
                    UnavailableError(
                        "the text does not fit into the cache; raise cache_size or num_kv_blocks, or send less"
                    )
                )

    def cache_usage(self) -> float:
        """Share of the cache that was in use in the last step."""
        return float(self._pipeline.get_metrics().cache_usage) / 100

    def remove(self, generations: Collection[Generation]) -> None:
        """Forget texts; what the pipeline keeps of them is free at its next step."""
        for generation in generations:
            text = self._texts.pop(generation, None)
            if text is not None and text.handle.get_status() == openvino_genai.GenerationStatus.RUNNING:
                text.handle.cancel()

    def clear(self) -> None:
        """Forget all texts, and make a new pipeline."""
        self._texts.clear()
        self._pipeline = None  # its memory is free before the next one takes its own
        self._pipeline = self._make_pipeline()

    def _take(self, generation: Generation, text: _Text, tokens: list[int], logprobs: list[float]) -> None:
        sampling = generation.asked.sampling
        for token, logprob in zip(tokens, logprobs, strict=True):
            if text.repeated:
                if token != generation.tokens[-text.repeated]:
                    raise InternalError("a step failed, and the text that was repeated is another one")
                text.repeated -= 1
                continue
            own = token in self._ends and (sampling.structure is not None or not sampling.ignore_eos)
            told = None if sampling.logprobs is None else TokenLogprob(logprob)
            generation.take(token, ends=own or token in sampling.stop_token_ids, logprob=told)
            if generation.finish:
                return


def _cache_bytes(pipeline: Any, draft_tokens: int) -> int:
    """The size of the cache, which is made in the first step: this takes it.

    Raises:
        InvalidArgumentError: there is no memory for it.
    """
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = 1
    if draft_tokens:
        config.num_assistant_tokens = draft_tokens
    try:
        handle = pipeline.add_request(0, openvino.Tensor(np.array([[0]], np.int64)), config)
        while handle.get_status() == openvino_genai.GenerationStatus.RUNNING:
            pipeline.step()
    except RuntimeError as error:
        raise InvalidArgumentError(f"OpenVINO GenAI cannot make its cache: {error}") from error
    return int(pipeline.get_metrics().cache_size_in_bytes)


def _generation_config(sampling: Sampling, room: int, ends: frozenset[int]) -> Any:
    """How the pipeline chooses tokens.

    Raises:
        InvalidArgumentError: it cannot do so in this way.
    """
    for name in ("logit_bias", "allowed_token_ids", "bad_words"):
        if getattr(sampling, name):
            raise InvalidArgumentError(f"sampling_parameters: '{name}' is not possible with OpenVINO GenAI")
    if sampling.prompt_logprobs is not None:
        raise InvalidArgumentError("'prompt_logprobs' is not possible with OpenVINO GenAI")
    if not room:
        raise InvalidArgumentError("'max_tokens' must be at least 1 with OpenVINO GenAI")
    if sampling.logprobs:
        msg = (
            f"{sampling.logprobs} alternatives of each token are not possible with OpenVINO GenAI, which tells only "
            f"the log probability of the chosen one: leave 'top_logprobs' out, or set 'logprobs' of completions to 0"
        )
        raise InvalidArgumentError(msg)
    config = openvino_genai.GenerationConfig()
    config.logprobs = 0 if sampling.logprobs is None else 1
    config.max_new_tokens = room
    config.min_new_tokens = min(sampling.min_tokens, room)
    config.ignore_eos = sampling.ignore_eos and sampling.structure is None
    config.stop_token_ids = set(sampling.stop_token_ids) | (set() if config.ignore_eos else set(ends))
    if sampling.structure is not None:
        config.structured_output_config = structured_output(sampling.structure)
    config.repetition_penalty = sampling.repetition_penalty
    config.frequency_penalty = sampling.frequency_penalty
    config.presence_penalty = sampling.presence_penalty
    config.do_sample = sampling.temperature > 0
    if config.do_sample:
        config.temperature = sampling.temperature
        config.top_p = sampling.top_p
        config.min_p = sampling.min_p
        if sampling.top_k:
            config.top_k = sampling.top_k
        if sampling.seed is not None:
            config.rng_seed = sampling.seed % (1 << 64)
    return config
