"""Writes texts with a model of `transformers`: prompts are read in pieces, between steps that all texts share."""

from collections.abc import Callable, Collection

from torch import Tensor

from halimede.backends.language.engine import Engine, failure_of, log_unexpected
from halimede.backends.language.generation import Generation
from halimede.backends.language.sampling import Sampling
from halimede.backends.language.structure import Structure
from halimede.backends.transformers.abilities import Ability, logger
from halimede.backends.transformers.forward import Forward
from halimede.backends.transformers.grammars import Grammars
from halimede.backends.transformers.logprobs import logprob_of, logprobs_of
from halimede.backends.transformers.reading import Reading
from halimede.backends.transformers.rows import MakeCache
from halimede.backends.transformers.sampler import Sampler
from halimede.backends.transformers.writers import SingleWriter, TogetherWriter, Writer


class TransformersEngine(Engine):
    """The engine of one instance.

    A step gives each text that was read one more token, and reads at most `step_tokens` tokens of prompts, those that
    came first before others: long prompts delay the others' tokens by little.

    If the pass that texts share fails, each of them is read anew by itself, so that only those fail that fail alone. An
    error in whatever is done for one text ends that text only.

    Args:
        forward: calls the model.
        ability: how it writes texts.
        make_cache: makes an empty cache of the kind that goes with the ability.
        step_tokens: see above.
        ends: the tokens that end a text.
        grammars: compiles the forms of texts.
        encode: gives the tokens of a word.
    """

    def __init__(
        self,
        forward: Forward,
        ability: Ability,
        make_cache: MakeCache,
        step_tokens: int,
        ends: frozenset[int],
        grammars: Grammars,
        encode: Callable[[str], list[int]],
    ) -> None:
        self._forward = forward
        self._ability = ability
        self._make_cache = make_cache
        self._step_tokens = step_tokens
        self._ends = ends
        self._grammars = grammars
        self._encode = encode
        self._unread: list[Reading] = []
        self._texts: dict[Generation, Reading] = {}
        self._failure: Exception | None = None  # why the writer cannot be used any more
        self._writer = self._make_writer()

    def knows(self, structure: Structure) -> bool:
        """Whether a form is compiled, or known to be impossible."""
        return self._grammars.knows(structure)

    def check(self, sampling: Sampling) -> None:
        """Compile the form that a text is to have.

        Raises:
            InvalidArgumentError: there is no such form.
            UnsupportedError: it is not possible here.
        """
        if sampling.structure is not None:
            self._grammars.matcher(sampling.structure)

    def add(self, generation: Generation) -> None:
        """Begin a text; its prompt is read by the next steps."""
        sampling = generation.asked.sampling
        matcher = None if sampling.structure is None else self._grammars.matcher(sampling.structure)
        forms = [self._encode(form) for word in sampling.bad_words for form in (word, f" {word}")]
        sampler = Sampler(sampling, generation.prompt, self._ends, matcher, [form for form in forms if form])
        cache = None if self._ability is Ability.AGAIN else self._make_cache()
        text = self._texts[generation] = Reading(generation, sampler, cache)
        self._unread.append(text)

    def step(self) -> None:
        """Write a token of each text that was read, and read on."""
        written: list[Reading] = []
        try:
            if self._failure is not None:
                raise self._failure
            for text, logits in self._writer.step():
                written.append(text)
                self._choose(text, logits)
        except Exception as error:
            logger.warning(
                "a step of several texts failed; each is read by itself: %s", failure_of(error).message
            )
            self._write_anew(written)
        left = self._step_tokens
        while left > 0 and self._unread:
            text = self._unread[0]
            count = text.unread
            if self._ability is Ability.TOGETHER:  # others may not be able to read in pieces
                count = min(count, left)
            left -= count
            self._read(text, count)

    def remove(self, generations: Collection[Generation]) -> None:
        """Forget texts."""
        for generation in generations:
            self._texts.pop(generation, None)
        self._unread = [text for text in self._unread if text.generation in self._texts]
        try:
            self._writer.keep([text for text in self._texts.values() if text not in self._unread])
        except Exception as error:  # the memory for those that are kept, say
            self._failure = error

    def clear(self) -> None:
        """Forget all texts."""
        self._texts.clear()
        self._unread.clear()
        self._writer = self._make_writer()

    def _make_writer(self) -> Writer:
        self._failure = None
        if self._ability is Ability.TOGETHER:
            return TogetherWriter(self._forward, self._make_cache)
        return SingleWriter(self._forward, keeps=self._ability is Ability.SINGLY)

    def _read(self, text: Reading, count: int) -> None:
        """Read so many tokens of a prompt. After the last of them comes the first token of the text."""
        tokens = text.generation.prompt[text.read : text.read + count]
        try:
            logits = self._after(text, tokens)
        except Exception as error:
            self._unread.remove(text)
            _fail(text, error)
            return
        text.read += count
        if not text.unread:
            self._unread.remove(text)
            if text.generation.room:
                self._choose(text, logits)
            else:
                text.generation.end("length")
            self._join(text)

    def _after(self, text: Reading, tokens: list[int]) -> Tensor:
        """The logits after the next tokens of a prompt, whose own log probabilities are told if that is asked for."""
        generation = text.generation
        count = generation.asked.sampling.prompt_logprobs
        if count is None:
            return self._forward.read(tokens, text.read, text.cache)[0]
        logits = self._forward.read_every(tokens, text.read, text.cache)
        following = generation.prompt[text.read + 1 : text.read + len(tokens) + 1]
        generation.prompt_logprobs += logprobs_of(logits[: len(following)], following, count)
        return logits[-1].float()

    def _write_anew(self, written: Collection[Reading]) -> None:
        """Write a token of each text but those that have one, with nothing that was kept from before a failed step."""
        self._writer = self._make_writer()
        for text in self._texts.values():
            if text in self._unread or text.generation.finish:
                continue
            if text not in written:
                tokens = text.generation.prompt + text.generation.tokens
                text.cache = None if self._ability is Ability.AGAIN else self._make_cache()
                try:
                    logits = self._forward.read(tokens, 0, text.cache)
                except Exception as error:
                    _fail(text, error)
                    continue
                text.read = len(tokens)
                self._choose(text, logits[0])
            self._join(text)

    def _join(self, text: Reading) -> None:
        """Let a text go on with the others, unless it has ended."""
        if text.generation.finish:
            return
        try:
            self._writer.join(text)
        except Exception as error:  # the memory for one more, say; the others are as they were
            _fail(text, error)

    def _choose(self, text: Reading, logits: Tensor) -> None:
        """Give a text its next token."""
        generation = text.generation
        sampling = generation.asked.sampling
        try:
            token = text.sampler.choose(logits, generation.tokens)
            own = token in self._ends and (sampling.structure is not None or not sampling.ignore_eos)
            ends = own or token in sampling.stop_token_ids
            logprob = None if sampling.logprobs is None else logprob_of(logits, token, sampling.logprobs)
            generation.take(token, ends=ends, last=text.sampler.completes(token), logprob=logprob)
        except Exception as error:
            _fail(text, error)


def _fail(text: Reading, error: Exception) -> None:
    """End a text that cannot go on."""
    log_unexpected(error)
    text.cache = None
    text.generation.give_up(failure_of(error))
