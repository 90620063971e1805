"""Writes texts with vLLM's engine, which decides by itself what its steps do."""

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Final

from vllm.v1.engine.exceptions import EngineDeadError

from halimede.backends.language.engine import Engine
from halimede.backends.language.generation import Generation
from halimede.backends.language.logprobs import TokenLogprob
from halimede.backends.language.structure import Structure
from halimede.backends.vllm.cache_gauge import CacheGauge
from halimede.backends.vllm.engine_loop import EngineLoop
from halimede.backends.vllm.errors import as_error
from halimede.backends.vllm.sampling import sampling_params
from halimede.core.errors import InternalError

_LOOK_S: Final = 0.1
"""While vLLM gives nothing, a text that nobody wants any more is found within this time."""


class VllmEngine(Engine):
    """The engine of one instance.

    Each text has a task on the loop, which hands on what vLLM gives out; a step takes what has come.

    Args:
        loop: where vLLM's engine lives.
        gauge: told of its cache.
    """

    def __init__(self, loop: EngineLoop, gauge: CacheGauge) -> None:
        self._loop = loop
        self._gauge = gauge
        self._numbers = count(1)
        self._tasks: dict[Generation, Future[None]] = {}
        self._come: SimpleQueue[tuple[Generation, Any] | None] = SimpleQueue()

    def knows(self, structure: Structure) -> bool:
        """Always: vLLM compiles forms by itself, in its own processes."""
        return True

    def add(self, generation: Generation) -> None:
        """Begin a text.

        Raises:
            InvalidArgumentError: vLLM cannot choose its tokens so.
        """
        params = sampling_params(generation.asked.sampling, generation.room)
        self._tasks[generation] = self._loop.begin(
            self._follow(generation, params, f"text-{next(self._numbers)}")
        )

    async def _follow(self, generation: Generation, params: Any, number: str) -> None:
        prompt = {"prompt_token_ids": generation.prompt}
        try:
            async for output in self._loop.engine.generate(prompt, params, number):
                self._come.put((generation, output))
        except Exception as error:
            self._come.put((generation, error))

    def step(self) -> None:
        """Wait until vLLM gives something, and hand out all that it has given."""
        try:
            come = self._come.get(timeout=_LOOK_S)
            while True:
                if come is not None and come[0] in self._tasks:
                    self._take(*come)
                come = self._come.get_nowait()
        except Empty:
            return

    def cache_usage(self) -> float | None:
        """Share of the cache in use, as vLLM tells it after each step."""
        return self._gauge.usage

    def wake(self) -> None:
        """Let a `step` that only waits return."""
        self._come.put(None)

    def remove(self, generations: Collection[Generation]) -> None:
        """Forget texts; vLLM aborts those that it is still writing, as their tasks are cancelled."""
        for generation in generations:
            task = self._tasks.pop(generation, None)
            if task is not None:
                task.cancel()

    def clear(self) -> None:
        """Forget all texts."""
        self.remove([*self._tasks])

    def _take(self, generation: Generation, come: Any) -> None:
        """Hand out new tokens of a text, or what went wrong."""
        if isinstance(come, EngineDeadError):
            self.broken = f"vLLM's engine has died: {come}"
        elif isinstance(come, Exception):
            generation.give_up(as_error(come))
        elif not generation.finish:  # else a stop word has ended it
            self._take_prompt(generation, come.prompt_logprobs)
            if not generation.room:
                generation.end("length")
                return
            self._take_tokens(generation, come.outputs[0], ended=come.finished)

    def _take_prompt(self, generation: Generation, told: Any) -> None:
        """Take the log probabilities of a prompt, which come with the first output."""
        most = generation.asked.sampling.prompt_logprobs
        if most is None or not told or len(generation.prompt_logprobs) > 1:
            return
        pairs = zip(generation.prompt[1:], told[1:], strict=True)
        generation.prompt_logprobs += [_logprob(token, each, most) for token, each in pairs]

    def _take_tokens(self, generation: Generation, output: Any, *, ended: bool) -> None:
        tokens, logprobs = output.token_ids, output.logprobs
        most = generation.asked.sampling.logprobs
        stops = len(tokens) - 1 if ended and output.finish_reason == "stop" else len(tokens)
        for position, token in enumerate(tokens):
            told = None if most is None else _logprob(token, logprobs[position], most)
            generation.take(token, ends=position == stops, logprob=told)
            if generation.finish:
                return
        if ended:
            if output.finish_reason in ("stop", "length"):
                generation.end(output.finish_reason)
            else:
                generation.give_up(InternalError(f"vLLM has ended the text: {output.finish_reason}"))


def _logprob(token: int, told: Mapping[int, Any], most: int) -> TokenLogprob:
    """How probable a token was, and at most so many of the most probable ones."""
    ranked = sorted(told.items(), key=lambda each: each[1].rank or len(told))
    top = tuple((each, found.logprob) for each, found in ranked[:most])
    return TokenLogprob(told[token].logprob, told[token].rank, top)
